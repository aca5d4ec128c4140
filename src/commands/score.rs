//! `touchstone score`: the daemon's judgement of one answer as a Unix filter.

use std::io::{self, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use serde::Serialize;

use crate::clock::Stopwatch;
use crate::judge::{Ask, End, Head, Judge, Verdict};
use crate::sample::{Signals, Usage};
use crate::verdict::{FaultClass, FlagSet, Wire};

/// Judges one answer, a whole body or a stream of events, from standard input and writes its flags, class,
/// signals and usage as one JSON object.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  curl -sN $URL/v1/chat/completions -d @request.json | touchstone score --request request.json\n  \
                        touchstone score --wire completions < answer.json | jq .flags"
)]
pub struct Args {
    /// Protocol of the answer: chat, completions, embeddings, responses, messages, rerank, ollama_chat,
    /// ollama_generate, ollama_embed, kserve, tfserving
    #[arg(long, value_name = "WIRE", default_value = "chat", value_parser = wire)]
    pub wire: Wire,
    /// The request's body; with it the answer is held against what was asked (schema, tools, logprobs, language)
    #[arg(long, value_name = "FILE")]
    pub request: Option<PathBuf>,
    /// HTTP status of the answer
    #[arg(long, value_name = "CODE", default_value_t = 200)]
    pub status: u16,
    /// Content type of the answer; told from its first bytes if not given
    #[arg(long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Content encoding of the answer (gzip, deflate, br, zstd)
    #[arg(long, value_name = "ENCODING")]
    pub content_encoding: Option<String>,
    /// Inference-Header-Content-Length of the answer: bytes of its JSON document, where raw tensors follow (kserve)
    #[arg(long, value_name = "BYTES")]
    pub inference_header_length: Option<usize>,
}

fn wire(word: &str) -> Result<Wire, String> {
    Wire::parse(word).ok_or_else(|| {
        let all: Vec<_> = Wire::ALL.iter().map(|w| w.as_str()).collect();
        format!("one of {}", all.join(", "))
    })
}

#[derive(Serialize)]
struct Score<'a> {
    flags: FlagSet,
    class: Option<FaultClass>,
    signals: &'a Signals,
    usage: Usage,
    finish_reason: &'a Option<String>,
    model: &'a Option<String>,
    streamed: bool,
    ttft_ms: Option<u64>,
    tokens_per_second: Option<f64>,
    empty_cause: Option<&'static str>,
    error: &'a Option<String>,
    partial: bool,
}

/// Runs the filter on standard input and output.
///
/// # Errors
/// The request cannot be read, or standard input or output fails.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    let verdict = score(args, io::stdin().lock())?;
    match write(&verdict, io::stdout().lock()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(0),
        other => other.map(|()| 0).context("cannot write to standard output"),
    }
}

fn score(args: &Args, mut input: impl Read) -> anyhow::Result<Verdict> {
    let request = match &args.request {
        Some(path) => std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?,
        None => Vec::new(),
    };
    let ask = Ask::parse(args.wire, &request);
    if args.request.is_some() && !ask.readable {
        anyhow::bail!("the request is not a JSON object");
    }
    let head = Head {
        status: args.status,
        content_type: args.content_type.clone(),
        content_encoding: args.content_encoding.clone(),
        content_length: None,
        inference_header_length: args.inference_header_length.map(|n| n.to_string()),
    };
    let mut judge = Judge::new(Arc::new(ask), head);
    // A stream that is still running is judged while it runs, so that its timings mean something.
    let watch = Stopwatch::start();
    let mut piece = vec![0; 64 << 10];
    loop {
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => {
                let _ = judge.push(watch.elapsed_ms(), &piece[..n]);
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e).context("cannot read standard input"),
        }
    }
    Ok(judge.finish(watch.elapsed_ms(), End::Complete))
}

fn write(verdict: &Verdict, mut output: impl Write) -> io::Result<()> {
    let score = Score {
        flags: verdict.flags,
        class: verdict.class,
        signals: &verdict.signals,
        usage: verdict.usage,
        finish_reason: &verdict.finish_reason,
        model: &verdict.model,
        streamed: verdict.streamed,
        ttft_ms: verdict.ttft_ms,
        tokens_per_second: verdict.tokens_per_second,
        empty_cause: verdict.empty_cause,
        error: &verdict.error,
        partial: verdict.partial,
    };
    serde_json::to_writer(&mut output, &score)?;
    output.write_all(b"\n")?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args() -> Args {
        Args {
            wire: Wire::Chat,
            request: None,
            status: 200,
            content_type: None,
            content_encoding: None,
            inference_header_length: None,
        }
    }

    #[test]
    fn a_stream_comes_out_as_one_object() {
        let stream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hello.\"}}]}\n\n\
                      data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
        let verdict = score(&args(), stream.as_bytes()).expect("a verdict");
        let mut out = Vec::new();
        write(&verdict, &mut out).expect("written");
        let json: serde_json::Value = serde_json::from_slice(&out).expect("json");
        assert_eq!(json["flags"], serde_json::json!([]));
        assert_eq!((&json["class"], &json["streamed"]), (&serde_json::Value::Null, &serde_json::json!(true)));
        assert_eq!(json["signals"]["text_bytes"], 6);
        assert_eq!(json["usage"]["estimated"], true);
    }

    #[test]
    fn the_request_tells_what_was_asked() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("request.json");
        std::fs::write(&path, r#"{"response_format":{"type":"json_object"}}"#).expect("written");
        let with = Args { request: Some(path), ..args() };
        let body = r#"{"choices":[{"message":{"content":"no JSON"},"finish_reason":"stop"}]}"#;
        let verdict = score(&with, body.as_bytes()).expect("a verdict");
        assert_eq!(verdict.class, Some(FaultClass::QualityHard));
        assert!(score(&args(), body.as_bytes()).expect("a verdict").class.is_none());
    }

    #[test]
    fn an_unknown_wire_is_refused_with_the_known_ones() {
        assert!(wire("smtp").is_err_and(|e| e.contains("chat, completions")));
    }
}
