//! `touchstone replay`: the daemon's detectors over recorded exchanges.

mod meaning;
pub mod recording;
pub mod replayer;
mod telling;
pub mod thresholds;

use std::fs::File;
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;

use crate::cli::DONE;
use crate::detect::{border, rule};
use crate::embed::{Embedder, ModelSource};
use crate::golden::{Baselines, GoldenSet};

use recording::Index;
use replayer::{Options, Replayer};

/// Longest line that is read, bytes.
const MAX_LINE: u64 = 64 << 20;

/// Say when each arm would have fired on recorded exchanges: the same judge, detectors and breaker as in the
/// daemon. One exchange a line: {at_ms, target?, route?, wire?, request, status, response | chunks, latency_ms,
/// label?}. Answers to burst prompts of the golden set are a golden burst as the daemon would have judged it, once
/// there is a frozen baseline. Without a frozen baseline the arms learn from the beginning, which has to be healthy; where one
/// file ends and the next begins stands for a change. A label ("healthy", or the name of a fault) says of
/// each exchange what the target was, and gives delays, false alarms and a table of thresholds.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  touchstone replay healthy.jsonl degraded.jsonl\n  \
                        touchstone replay traffic.jsonl --golden golden/mine --rules rules.toml --format json | jq .firings")]
pub struct Args {
    /// Recorded exchanges, oldest first
    #[arg(required = true, value_name = "F")]
    files: Vec<PathBuf>,
    /// Folder of a golden set: its prompts are known again in the recording, its frozen baseline is compared with
    #[arg(long, value_name = "D")]
    golden: Option<PathBuf>,
    /// TOML file of [[rule]]s
    #[arg(long, value_name = "F")]
    rules: Option<PathBuf>,
    /// Embed what was answered, some ten milliseconds each: the likeness of golden answers, the drift of live ones
    #[arg(long)]
    embed: bool,
    /// text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = ["text", "json"])]
    format: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    #[serde(default)]
    rule: Vec<rule::Params>,
}

/// Runs it.
///
/// # Errors
/// A file that cannot be read; a line that is no exchange, by its number and field.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    let (mut index, baselines) = golden(args.golden.as_deref())?;
    let embedder = args.embed.then(|| Embedder::load(&ModelSource::Builtin, 1)).transpose()?.map(Arc::new);
    let mut options = Options { rules: rules(args.rules.as_deref())?, embedder, ..Options::default() };
    let mut size = 0;
    for path in &args.files {
        let known = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        size += known.len();
    }
    let mut known = std::collections::BTreeSet::new();
    let bar = bar(size);
    let mut replayer: Option<Replayer> = None;
    for path in &args.files {
        let name = path.display().to_string();
        let mut lines = BufReader::new(File::open(path).with_context(|| format!("cannot read {name}"))?);
        let (mut number, mut line) = (0_u64, String::new());
        if let Some(replayer) = &mut replayer {
            replayer.begin_file(&name);
        }
        loop {
            line.clear();
            number += 1;
            let read = std::io::Read::take(&mut lines, MAX_LINE).read_line(&mut line);
            let read = read.with_context(|| format!("{name}:{number}"))?;
            if read == 0 {
                break;
            }
            bar.inc(read as u64);
            if line.trim().is_empty() {
                continue;
            }
            let judged = match recording::judge(&line, &index) {
                Ok(judged) => judged,
                Err(why) => {
                    bar.abandon();
                    bail!("{name}:{number}: {why}");
                }
            };
            if let Some(baselines) = &baselines
                && known.insert(Arc::clone(&judged.sample.target))
                && let Some(baseline) = baselines.load(&judged.sample.target)?
            {
                index.add(&baseline.border.iter().flat_map(border::search::prompts).collect::<Vec<_>>());
                options.baselines.insert(Arc::clone(&judged.sample.target), Arc::new(baseline));
                if let Some(replayer) = &mut replayer {
                    replayer.know(&options);
                }
            }
            let replayer = replayer.get_or_insert_with(|| {
                let mut replayer = Replayer::new(options.clone());
                replayer.begin_file(&name);
                replayer
            });
            replayer.feed(judged).map_err(|why| anyhow::anyhow!("{name}:{number}: {why}"))?;
        }
    }
    bar.finish_and_clear();
    let Some(replayer) = replayer else { bail!("there is no exchange in {}", list(&args.files)) };
    telling::tell(&replayer.finish(), args.format == "json")?;
    Ok(DONE)
}

fn list(files: &[PathBuf]) -> String {
    files.iter().map(|f| f.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn golden(dir: Option<&Path>) -> anyhow::Result<(Index, Option<Baselines>)> {
    match dir {
        Some(dir) => Ok((Index::of(&GoldenSet::load(dir)?), Some(Baselines::at(dir)))),
        None => Ok((Index::of(&GoldenSet::starter()?), None)),
    }
}

fn rules(file: Option<&Path>) -> anyhow::Result<Vec<rule::Params>> {
    let Some(file) = file else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let rules: Rules = toml::from_str(&text).with_context(|| file.display().to_string())?;
    Ok(rules.rule)
}

fn bar(bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes).with_message("replaying");
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {bytes}/{total_bytes}, {eta} left") {
        bar.set_style(style);
    }
    bar
}
