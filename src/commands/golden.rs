//! `touchstone golden`: makes, freezes, checks and shows a golden baseline.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};

use super::{out, runtime};
use crate::baseline::{Baseline, BorderInput};
use crate::cli::{DONE, NOT_MET};
use crate::clock::Clock;
use crate::config::Config;
use crate::detect::border::search::{FEWEST, MOST, Search};
use crate::detect::calibration::{Effort, Refusal};
use crate::embed::EmbedHandle;
use crate::golden::{Baselines, GoldenSet, write_prompts};
use crate::prober::Asker;
use crate::prober::calibrate::{CalibrateError, Session, why};
use crate::prompt::{PromptKind, Sampling};
use crate::upstream::{TargetParams, Upstream};
use crate::verdict::Source;

/// Make, freeze, check and show a golden baseline.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  touchstone golden calibrate --upstream http://127.0.0.1:8000\n  \
                        touchstone golden calibrate --config touchstone.toml --target vllm-a\n  \
                        touchstone golden show --config touchstone.toml")]
pub struct Args {
    /// What to do
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Fill in references: ask a trusted target every burst prompt and write its answers beside it
    #[command(
        after_help = "Example:\n  touchstone golden record --upstream http://127.0.0.1:8000 --golden golden/mine"
    )]
    Record(Record),
    /// Ask a healthy target all prompts, back to back, and freeze what it answers
    #[command(after_help = "Example:\n  touchstone golden calibrate --upstream http://127.0.0.1:8000")]
    Calibrate(Calibrate),
    /// Check the golden set's files and frozen baselines
    #[command(after_help = "Example:\n  touchstone golden verify --golden golden/mine")]
    Verify(Which),
    /// Show what is frozen
    #[command(after_help = "Example:\n  touchstone golden show --config touchstone.toml")]
    Show(Which),
}

/// Which target and which golden set.
#[derive(Clone, Debug, Default, clap::Args)]
struct Which {
    /// The configuration
    #[arg(long, value_name = "F", conflicts_with = "upstream")]
    config: Option<PathBuf>,
    /// Base URL of an inference server, instead of a configuration
    #[arg(long, value_name = "URL")]
    upstream: Option<String>,
    /// The target's name, where the configuration has several
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Folder of the golden set [default: the target's, else the starter set]
    #[arg(long, value_name = "DIR")]
    golden: Option<PathBuf>,
    /// Where baselines of the starter set are kept
    #[arg(long, value_name = "D")]
    data_dir: Option<PathBuf>,
}

#[derive(Clone, Debug, clap::Args)]
struct Record {
    #[command(flatten)]
    which: Which,
    /// Answers recorded of each prompt, so that re-run noise is known
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    n: u32,
}

#[derive(Clone, Debug, clap::Args)]
struct Calibrate {
    #[command(flatten)]
    which: Which,
    /// Runs of each burst prompt
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=20))]
    runs: u32,
    /// Burst prompts used at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=50))]
    bursts: u32,
    /// Canary answers altogether
    #[arg(long, value_name = "N", default_value_t = 400)]
    canaries: u32,
    /// Find border inputs too: prompts of one token at whose answer two first tokens are nearly tied. They
    /// make up for canaries where the target gives no logprobs, for one to three thousand one-token calls more
    /// [default: quality.calibration.border; without N: 32]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "32",
          value_parser = clap::value_parser!(u32).range(i64::from(FEWEST)..=i64::from(MOST)))]
    border: Option<u32>,
}

/// One target with all that is needed to ask it.
struct Place {
    config: Config,
    index: usize,
    set: GoldenSet,
    dir: Option<PathBuf>,
    baselines: Baselines,
}

/// Runs it.
///
/// # Errors
/// A faulty configuration or golden set, a target that does not answer, a file that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<u8> {
    match &args.action {
        Action::Record(record) => runtime()?.block_on(record.run()),
        Action::Calibrate(calibrate) => runtime()?.block_on(calibrate.run()),
        Action::Verify(which) => which.verify(),
        Action::Show(which) => which.show(),
    }
}

impl Which {
    fn configuration(&self) -> anyhow::Result<Config> {
        let mut config = match (&self.config, &self.upstream) {
            (Some(file), _) => Config::load(file)?,
            (None, Some(url)) => Config::single(std::slice::from_ref(url))?,
            // The set alone can be looked at without a target; nothing is asked of this address.
            (None, None) => Config::single(&["http://127.0.0.1:8000".to_owned()])?,
        };
        if let Some(dir) = &self.data_dir {
            config.data_dir = Some(std::path::absolute(dir).unwrap_or_else(|_| dir.clone()));
        }
        Ok(config)
    }

    fn place(&self) -> anyhow::Result<Place> {
        let config = self.configuration()?;
        let index = match &self.target {
            Some(name) => config
                .targets
                .iter()
                .position(|t| **t.name() == **name)
                .with_context(|| format!("--target: the configuration has no target `{name}`"))?,
            None if config.targets.len() == 1 => 0,
            None => {
                let names: Vec<_> = config.targets.iter().map(|t| t.name().to_string()).collect();
                bail!("--target: write which one of {}", names.join(", "));
            }
        };
        let target = &config.targets[index];
        let (set, dir) = match &self.golden {
            Some(dir) => (GoldenSet::load(dir)?, Some(dir.clone())),
            None => config.golden_of_target(target)?,
        };
        let home = dir.clone().unwrap_or_else(|| config.baseline_dir(&set));
        Ok(Place { index, set, dir, baselines: Baselines::at(home), config })
    }

    fn verify(&self) -> anyhow::Result<u8> {
        let place = self.place()?;
        let (canaries, bursts) = (place.set.canaries().count(), place.set.bursts().count());
        out(format_args!("{}: {canaries} canaries and {bursts} burst prompts, sound", place.set.name()));
        let mut all_fit = true;
        for target in &place.config.targets {
            match place.baselines.load(target.name())? {
                None => out(format_args!("target {}: not calibrated", target.name())),
                Some(baseline) if baseline.fingerprint.golden != **place.set.hash() => {
                    all_fit = false;
                    out(format_args!(
                        "target {}: its baseline was made on another version of this set; calibrate anew",
                        target.name()
                    ));
                }
                Some(baseline) => out(format_args!(
                    "target {}: baseline whole, {} of {} prompts usable, {} border inputs",
                    target.name(),
                    baseline.usable().count(),
                    baseline.prompts.len(),
                    baseline.border.as_ref().map_or(0, |b| b.inputs.len())
                )),
            }
        }
        Ok(if all_fit { DONE } else { NOT_MET })
    }

    fn show(&self) -> anyhow::Result<u8> {
        let place = self.place()?;
        let target = place.target();
        let Some(baseline) = place.baselines.load(target.name())? else {
            bail!(
                "target `{}` is not calibrated: nothing is frozen in {}",
                target.name(),
                place.baselines.dir().display()
            );
        };
        print(&baseline);
        Ok(DONE)
    }
}

impl Place {
    fn target(&self) -> &TargetParams {
        &self.config.targets[self.index]
    }

    async fn asker(&self) -> anyhow::Result<Asker> {
        let target = self.target();
        let upstream = Upstream::new(target, &self.config.sections.limits)
            .map_err(|e| anyhow::anyhow!("target[{}].{e}", self.index))?;
        Ok(Asker::new(Arc::new(upstream), Clock::system()).await)
    }

    async fn embedder(&self) -> anyhow::Result<EmbedHandle> {
        let params = self.config.sections.embed.clone();
        Ok(tokio::task::spawn_blocking(move || EmbedHandle::start(&params)).await??)
    }
}

impl Record {
    async fn run(&self) -> anyhow::Result<u8> {
        let place = self.which.place()?;
        let Some(dir) = &place.dir else {
            bail!("--golden: the starter set is part of the program; copy golden/starter and name your copy");
        };
        let asker = place.asker().await?;
        let mut prompts: Vec<_> = place.set.prompts().iter().map(|p| (**p).clone()).collect();
        let bursts = prompts.iter().filter(|p| p.kind == PromptKind::Burst).count() as u64;
        let bar = bar(bursts * u64::from(self.n), "recording");
        for prompt in prompts.iter_mut().filter(|p| p.kind == PromptKind::Burst) {
            let mut references: Vec<String> = Vec::new();
            for _ in 0..self.n {
                let answered = asker.ask(prompt, Sampling::GREEDY, Source::Burst, 0).await;
                bar.inc(1);
                if !answered.is_answer() {
                    bail!("prompt `{}`: {}", prompt.id, why(&answered));
                }
                let text = answered.verdict.text.to_string();
                if !text.trim().is_empty() && !references.contains(&text) {
                    references.push(text);
                }
            }
            prompt.references = references;
        }
        bar.finish_and_clear();
        let file = write_prompts(dir, &prompts)?;
        out(format_args!("references of {bursts} prompts written to {}", file.display()));
        Ok(DONE)
    }
}

impl Calibrate {
    async fn run(&self) -> anyhow::Result<u8> {
        let place = self.which.place()?;
        // A broken file in the way is named before an hour of calls, not after.
        place.baselines.load(place.target().name())?;
        let planned = place.config.quality_of(place.index).effort();
        let border = self.border.unwrap_or(planned.border);
        let wire = place.set.canaries().next().map(|p| p.wire);
        if border > 0 && wire.and_then(|wire| Search::new(wire, border, 0)).is_none() {
            bail!("--border: the golden set's canaries ask no text, so there is nothing to be tied");
        }
        let effort = Effort {
            burst_runs: self.runs,
            burst_prompts: self.bursts as usize,
            canaries: self.canaries,
            border,
            ..planned
        };
        let (asker, embedder) = (place.asker().await?, place.embedder().await?);
        let mut random = [0_u8; 8];
        let _ = getrandom::fill(&mut random); // any order will do
        let mut session = Session::new(&asker, &place.set, effort, u64::from_le_bytes(random));
        let bar = bar(session.progress().1 as u64, "calibrating");
        let mut tokens = (0_u64, 0_u64);
        loop {
            match session.step(&asker, Some(&embedder), 0).await {
                Ok(Some((_, answered))) => {
                    tokens.0 += answered.sample.usage.input.unwrap_or(0);
                    tokens.1 += answered.sample.usage.output.unwrap_or(0);
                    let (made, planned) = session.progress();
                    bar.set_length(planned as u64);
                    bar.set_position(made as u64);
                }
                Ok(None) => break,
                Err(error) => {
                    bar.abandon();
                    return Err(error.into());
                }
            }
        }
        bar.finish_and_clear();
        match session.finish(&asker, &place.set, Some(&embedder), &Clock::system()).await {
            Ok(baseline) => {
                let file = place.baselines.save(&baseline)?;
                print(&baseline);
                out(format_args!("tokens used: {} in, {} out", tokens.0, tokens.1));
                out(format_args!("frozen in {}", file.display()));
                Ok(DONE)
            }
            Err(CalibrateError::Refused(refusal)) => {
                let hint = match refusal {
                    Refusal::HardFaults { .. } => "calibrate on a healthy target",
                    Refusal::TooFewPrompts { .. } => {
                        "write prompts that this model can answer, see golden/README.md"
                    }
                };
                out(format_args!("refused: {refusal}\n{hint}"));
                Ok(NOT_MET)
            }
            Err(other) => Err(other.into()),
        }
    }
}

fn print(baseline: &Baseline) {
    let f = &baseline.fingerprint;
    let model = if f.model.is_empty() { "(as the upstream names it)" } else { &f.model };
    out(format_args!(
        "target {}, model {model}, engine {}",
        baseline.target,
        if f.engine.is_empty() { "unknown" } else { &f.engine }
    ));
    out(format_args!(
        "logprobs: {}",
        if f.top_k == 0 { "none".to_owned() } else { format!("{} alternatives a position", f.top_k) }
    ));
    for line in &baseline.verdict {
        out(format_args!("{line}"));
    }
    if let Some(border) = &baseline.border {
        let one = |(_, input): (_, &BorderInput)| {
            let tokens: Vec<&str> = input.first_tokens.keys().map(String::as_str).collect();
            format!("{} → {}", input.text, tokens.join(" or "))
        };
        let all: Vec<String> = border.inputs.iter().map(one).collect();
        out(format_args!("border inputs and their first tokens: {}", all.join(", ")));
    }
}

/// A progress bar where somebody watches; silent elsewhere.
fn bar(len: u64, what: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(len).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len}, {eta} left") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}
