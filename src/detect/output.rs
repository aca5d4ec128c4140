//! A classifier that begins to answer raw scores instead of probabilities, or the other way round.
//!
//! Nothing may be worse: after an export or an upgrade the softmax is part of the model, or no longer. But
//! whoever compares a confidence with a threshold is wrong from then on, at status 200 and with the same
//! classes. What a single answer's scores are is only likely, and one target may serve several models; so
//! a kind is believed after a run of equal answers, and a change after another. Answers are told apart by
//! route and number of classes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Timestamp;
use crate::sample::Sample;
use crate::verdict::ClassOutput;

use super::{Arm, ArmStatus, Finding, Level};

/// Equal answers in a row from which a kind is believed. Raw scores of a yes/no model lie between 0 and 1
/// by chance in one of eight answers at most; twenty such in a row do not happen.
pub const RUN: u32 = 20;
/// Classifiers followed at one target.
const MAX_FOLLOWED: usize = 32;
/// Reason of the finding.
pub const REASON: &str = "class_output_changed";

/// What the scores of one target's classifiers are.
#[derive(Clone, Debug, Default)]
pub struct OutputWatch {
    followed: BTreeMap<(Arc<str>, u32), Followed>,
    answers: u64,
    findings: u64,
}

#[derive(Clone, Copy, Debug)]
struct Followed {
    believed: Option<ClassOutput>,
    latest: ClassOutput,
    run: u32,
    since: Timestamp,
}

impl OutputWatch {
    /// Takes a healthy target's kind as believed for its golden answers (of no route), whatever their
    /// number of classes.
    pub fn record(&mut self, sample: &Sample, healthy: Option<ClassOutput>) -> Option<Finding> {
        let output = sample.signals.class_output?;
        let key = (Arc::clone(&sample.route), sample.signals.dim.unwrap_or(0));
        if self.followed.len() >= MAX_FOLLOWED && !self.followed.contains_key(&key) {
            return None;
        }
        self.answers += 1;
        let golden = healthy.filter(|_| sample.route.is_empty());
        let followed = self.followed.entry(key).or_insert(Followed {
            believed: golden,
            latest: output,
            run: 0,
            since: sample.at,
        });
        if followed.latest != output {
            *followed = Followed { latest: output, run: 0, since: sample.at, ..*followed };
        }
        followed.run = followed.run.saturating_add(1);
        if followed.run < RUN {
            return None;
        }
        let before = followed.believed.replace(output)?;
        if before == output {
            return None;
        }
        let since = followed.since;
        self.findings += 1;
        Some(Finding {
            at: sample.at,
            route: Some(Arc::clone(&sample.route)).filter(|route| !route.is_empty()),
            arm: Arm::Output,
            level: Level::Suspect,
            reason: REASON.to_owned(),
            statistic: f64::from(RUN),
            n: u64::from(RUN),
            limit: f64::from(RUN),
            arl0: None,
            onset: Some(since),
            message: format!(
                "the classifier's scores were {} and are {} in {RUN} answers in a row",
                words(before),
                words(output)
            ),
        })
    }

    /// Where it stands; `None` where no classifier has answered.
    #[must_use]
    pub fn status(&self) -> Option<ArmStatus> {
        let changing = self.followed.values().filter(|f| f.believed.is_some_and(|b| b != f.latest));
        let longest = changing.max_by_key(|f| f.run);
        (self.answers > 0).then(|| ArmStatus {
            arm: Arm::Output,
            route: None,
            unavailable: None,
            statistic: longest.map_or(0.0, |f| f64::from(f.run)),
            n: self.answers,
            limit: f64::from(RUN),
            arl0: None,
            #[allow(clippy::cast_precision_loss)] // counts of answers
            realised: (self.findings > 0).then(|| self.answers as f64 / self.findings as f64),
            onset: longest.map(|f| f.since),
            expected_delay: Some(f64::from(RUN)),
        })
    }
}

const fn words(output: ClassOutput) -> &'static str {
    match output {
        ClassOutput::Probabilities => "probabilities",
        ClassOutput::Independent => "probabilities of independent labels",
        ClassOutput::Logits => "raw scores (logits)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Signals, Timing, Usage};
    use crate::verdict::{FlagSet, Source, Wire};

    fn answer(s: u64, route: &str, dim: u32, output: ClassOutput) -> Sample {
        Sample {
            at: Timestamp::from_millis(s * 1_000),
            request_id: Arc::from(""),
            route: Arc::from(route),
            target: Arc::from("t"),
            source: Source::Live,
            wire: Wire::KserveInfer,
            status: Some(200),
            class: None,
            flags: FlagSet::EMPTY,
            signals: Signals { class_output: Some(output), dim: Some(dim), ..Signals::default() },
            usage: Usage::default(),
            timing: Timing::default(),
            request_hash: s,
            prompt_id: None,
            check: None,
            first_position: None,
            prompt_text: None,
            answer_text: None,
            partial: false,
            light: false,
            generation: 0,
        }
    }

    /// When a finding comes, answer by answer.
    fn findings(outputs: impl Iterator<Item = (&'static str, u32, ClassOutput)>) -> Vec<(usize, Finding)> {
        let mut watch = OutputWatch::default();
        let all = outputs.enumerate();
        all.filter_map(|(i, (route, dim, output))| {
            watch.record(&answer(i as u64, route, dim, output), None).map(|f| (i, f))
        })
        .collect()
    }

    use ClassOutput::{Independent, Logits, Probabilities};

    #[test]
    fn a_lasting_change_is_found_once_with_its_onset() {
        let found = findings((0..200).map(|i| ("r", 3, if i < 70 { Probabilities } else { Logits })));
        assert_eq!(found.len(), 1);
        let (i, finding) = &found[0];
        assert_eq!((*i, finding.level, finding.arm), (89, Level::Suspect, Arm::Output));
        assert_eq!(finding.onset, Some(Timestamp::from_millis(70_000)));
        assert!(finding.message.contains("were probabilities and are raw scores"), "{}", finding.message);
    }

    #[test]
    fn answers_that_look_now_like_this_now_like_that_are_no_change() {
        assert!(
            findings((0..500).map(|i| ("r", 1, if i % 8 == 0 { Independent } else { Logits }))).is_empty()
        );
    }

    #[test]
    fn several_classifiers_behind_one_target_are_no_change() {
        let blocks = |i: usize| (i / 30).is_multiple_of(2);
        assert!(
            findings((0..600).map(|i| if blocks(i) { ("r", 3, Probabilities) } else { ("r", 9, Logits) }))
                .is_empty()
        );
        assert!(
            findings((0..600).map(|i| if blocks(i) { ("a", 3, Probabilities) } else { ("b", 3, Logits) }))
                .is_empty()
        );
    }

    #[test]
    fn golden_answers_are_held_against_the_baseline() {
        let mut watch = OutputWatch::default();
        let mut canary = |i| watch.record(&answer(i, "", 3, Logits), Some(Probabilities));
        assert!((0..19).all(|i| canary(i).is_none()));
        assert!(canary(19).is_some_and(|f| f.route.is_none()));
    }
}
