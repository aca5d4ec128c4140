//! `touchstone embed`: the daemon's embedder as a Unix filter.

use std::io::{self, BufRead, BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::embed::{Embedder, ModelSource};

/// Reads one JSON object with a `text` a line, writes one with its `tokens` and `embedding`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:\n  echo '{\"text\": \"Good morning\"}' | touchstone embed")]
pub struct Args {
    /// Folder with config.json, tokenizer.json and model.safetensors or model.gguf; without it, the model
    /// that the program carries
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Threads of one forward pass
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
}

#[derive(Deserialize)]
struct Line {
    text: String,
}

#[derive(Serialize)]
struct Answer<'a> {
    tokens: usize,
    embedding: &'a [f32],
}

/// Runs the filter on standard input and output.
///
/// # Errors
/// The model cannot be loaded, or a line cannot be embedded; the error names it.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    let source = args.model.clone().map_or(ModelSource::Builtin, ModelSource::Folder);
    let embedder = Embedder::load(&source, args.threads)?;
    filter(&embedder, io::stdin().lock(), BufWriter::new(io::stdout().lock()))?;
    Ok(0)
}

fn filter(embedder: &Embedder, mut input: impl BufRead, mut output: impl Write) -> anyhow::Result<()> {
    let mut bytes = Vec::new();
    for number in 1_u64.. {
        bytes.clear();
        if input.read_until(b'\n', &mut bytes).context("cannot read standard input")? == 0 {
            break;
        }
        let line: Line = serde_json::from_slice(&bytes).map_err(|e| fault(number, &e, &bytes))?;
        let embedding = embedder.embed(&line.text).with_context(|| format!("line {number}"))?;
        let answer = Answer { tokens: embedding.tokens, embedding: &embedding.vector };
        let written = serde_json::to_writer(&mut output, &answer)
            .map_err(io::Error::from)
            .and_then(|()| output.write_all(b"\n"))
            .and_then(|()| output.flush()); // a line out for each line in, for those who wait for it
        match written {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            other => other.context("cannot write to standard output")?,
        }
    }
    Ok(())
}

fn fault(number: u64, error: &serde_json::Error, bytes: &[u8]) -> anyhow::Error {
    if bytes.trim_ascii().is_empty() {
        return anyhow::anyhow!("line {number}: empty, wanted a JSON object with \"text\"");
    }
    let text = error.to_string();
    let cause = text.split(" at line ").next().unwrap_or_default();
    anyhow::anyhow!("line {number}: {cause} (column {})", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_on(input: &[u8]) -> (Vec<String>, Option<String>) {
        let embedder = Embedder::load(&ModelSource::Builtin, 1).expect("loads");
        let mut output = Vec::new();
        let error = filter(&embedder, input, &mut output).err().map(|e| e.to_string());
        let text = String::from_utf8(output).expect("UTF-8");
        (text.lines().map(str::to_owned).collect(), error)
    }

    #[test]
    fn a_line_out_for_each_line_in_and_in_order() {
        let (lines, error) = run_on(b"{\"text\":\"\"}\n{\"id\":7,\"text\":\"Good morning\"}");
        assert_eq!(error, None);
        assert!(lines[0].starts_with("{\"tokens\":2,\"embedding\":["));
        assert!(lines[1].starts_with("{\"tokens\":4,\"embedding\":["));
        let answer: serde_json::Value = serde_json::from_str(&lines[1]).expect("JSON");
        assert_eq!(answer["embedding"].as_array().map(Vec::len), Some(384));
    }

    #[test]
    fn a_bad_line_is_named_after_the_good_ones_before_it() {
        let cases: [(&[u8], &str); 5] = [
            (b"{\"text\":1}", "line 2: invalid type: integer"),
            (b"{\"txt\":\"a\"}", "line 2: missing field `text`"),
            (b"{\"text\":\"a\"", "line 2: EOF while parsing"),
            (b"{\"text\":\"\xff\"}", "line 2: invalid unicode"),
            (b"  ", "line 2: empty"),
        ];
        for (bad, reason) in cases {
            let (lines, error) = run_on(&[b"{\"text\":\"a\"}\n", bad, b"\n{\"text\":\"b\"}\n"].concat());
            assert_eq!(lines.len(), 1);
            let error = error.expect(reason);
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
