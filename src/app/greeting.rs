//! What the daemon says at its start: modes, presets, what canaries will cost, and, once each target has
//! been asked a first time, which signals it yields and which not and why.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::probing::{self, Part};
use crate::clock::Clock;
use crate::config::Config;
use crate::golden;
use crate::prober::Asker;
use crate::prober::calibrate::why;
use crate::prompt::Sampling;
use crate::schedule::calls_a_day;
use crate::upstream::Upstream;
use crate::verdict::Source;

/// A target that takes longer for a first word is introduced without it.
const PATIENCE: Duration = Duration::from_secs(20);
/// Estimated bytes of a token.
const BYTES_PER_TOKEN: u64 = 4;

/// The lines printed once everything listens.
#[must_use]
pub(super) fn greeting(config: &Config, parts: &[Part], proxy: SocketAddr, admin: SocketAddr) -> String {
    let mut text = format!(
        "touchstone {} in {} mode\n  proxy   http://{proxy}   point your application's base URL here\n  \
         status  http://{admin}/   health: /v1/health, metrics: /metrics\n  data    {}\n",
        env!("CARGO_PKG_VERSION"),
        config.mode,
        config.data_dir().display()
    );
    for (i, (target, part)) in config.targets.iter().zip(parts).enumerate() {
        let state = match &part.baseline {
            Some(baseline) => format!("calibrated, {} prompts in force", baseline.usable().count()),
            None if part.baselines.is_none() => {
                "NOT calibrated: its baseline file is broken, see the log".to_owned()
            }
            None if is_silent(config, i) => {
                "not calibrated, and canaries and bursts are off: only `golden calibrate` does it".to_owned()
            }
            None => "not calibrated yet: that happens in the background, quality arms wait for it".to_owned(),
        };
        let _ = writeln!(
            text,
            "target {} at {} ({} mode, breaker preset {})\n  golden set {}: {state}\n  {}",
            target.name(),
            target.url(),
            config.mode_of_target(target.name()),
            preset(config, i),
            part.golden.name(),
            cost(config, i, part)
        );
    }
    text.truncate(text.trim_end().len());
    text
}

/// Whether the daemon asks this target nothing of its own accord.
fn is_silent(config: &Config, index: usize) -> bool {
    let quality = config.quality_of(index);
    quality.canary().every_ms().is_none() && quality.burst().every_ms().is_none()
}

/// The preset's name as the configuration spells it.
fn preset(config: &Config, index: usize) -> String {
    let name = serde_json::to_value(config.breaker_of(index).preset_name());
    name.ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// What canaries and scheduled bursts cost a day.
fn cost(config: &Config, index: usize, part: &Part) -> String {
    let quality = config.quality_of(index);
    let (canaries, bursts): (Vec<_>, Vec<_>) =
        (part.golden.canaries().collect(), part.golden.bursts().collect());
    let (canary_calls, burst_calls) =
        calls_a_day(quality.canary(), quality.burst(), (canaries.len(), bursts.len()));
    let input = |prompts: &[&Arc<crate::prompt::Prompt>]| {
        let bytes: u64 = prompts
            .iter()
            .map(|p| golden::request(p, "", None, false, Sampling::GREEDY).1.len() as u64)
            .sum();
        bytes / BYTES_PER_TOKEN / (prompts.len() as u64).max(1)
    };
    let output: u64 =
        bursts.iter().map(|p| u64::from(p.max_tokens)).sum::<u64>() / (bursts.len() as u64).max(1);
    let tokens_in = canary_calls * input(&canaries) + burst_calls * input(&bursts);
    let tokens_out = canary_calls + burst_calls * output;
    let calls = canary_calls + burst_calls;
    let usage =
        crate::sample::Usage { input: Some(tokens_in), output: Some(tokens_out), ..Default::default() };
    let money = match config.targets[index].price() {
        Some(price) => format!("{:.2} USD", price.cost_usd(&usage)),
        None => "no price is configured".to_owned(),
    };
    if calls == 0 {
        return "canaries and bursts are off".to_owned();
    }
    format!(
        "canaries and bursts a day: at most {calls} calls, about {tokens_in} tokens in, {tokens_out} out; {money}"
    )
}

/// Asks every target one canary and says what it yields. A target that is not there is said to be so.
pub async fn introduce(config: &Config) -> Vec<String> {
    let Ok(parts) = probing::read_golden(config) else { return Vec::new() };
    let mut lines = Vec::new();
    for (target, part) in config.targets.iter().zip(parts) {
        let Some(prompt) = part.golden.canaries().next().cloned() else { continue };
        let Ok(upstream) = Upstream::new(target, &config.sections.limits) else { continue };
        let asked = async {
            let asker = Asker::new(Arc::new(upstream), Clock::system()).await;
            (asker.ask(&prompt, Sampling::GREEDY, Source::Canary, 0).await, asker)
        };
        let name = target.name();
        lines.push(match tokio::time::timeout(PATIENCE, asked).await {
            Err(_) => format!("target {name}: no answer within {} s; it is asked again by and by", PATIENCE.as_secs()),
            Ok((answered, _)) if !answered.is_answer() => {
                format!("target {name}: no answer yet ({}); it is asked again by and by", why(&answered))
            }
            Ok((answered, asker)) => {
                let signals = &answered.sample.signals;
                let entropy = match (signals.entropy_mean, signals.top_k) {
                    (None, _) if signals.class_output.is_some() => {
                        "entropy, confidence and margin of its classes available".to_owned()
                    }
                    (Some(_), k) => format!("entropy available ({} alternatives a token)", k.unwrap_or(0)),
                    (None, _) => {
                        let reason = signals.entropy_unavailable.map_or("not_requested", |u| u.as_str());
                        let refused = if asker.without_logprobs() { "; it refuses to be asked for logprobs" } else { "" };
                        format!(
                            "entropy unavailable ({reason}{refused}): subtle changes may stay unseen; golden calibrate \
                             --border finds inputs that show more of them"
                        )
                    }
                };
                let model = if asker.model().is_empty() { "unnamed" } else { asker.model() };
                format!("target {name}: answers as model {model}; {entropy}; text, repetition, checks and drift available")
            }
        });
    }
    lines
}
