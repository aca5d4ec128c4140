//! A target that answers as another engine or model than the one that was calibrated.
//!
//! Servers are upgraded and providers move their names to new models. Nothing may be worse; but what was
//! measured of the old one is no yardstick for the new one's canaries, and comparing them would cry wolf at best. So
//! the change is told by itself, canaries are learned anew, and a golden burst says whether it is worse.
//!
//! A target may be a balancer in front of several engines: all that were seen in calibration are known, and a
//! change is believed after a run of golden answers that name something else.

use crate::baseline::{Engine, Fingerprint};
use crate::clock::Timestamp;

use super::{Arm, Finding, Level};

/// Foreign answers in a row after which a change is believed; one may be a stray retry's.
pub const RUN: u32 = 3;
/// Known answers in a row after which the old engine is believed to be back for good.
pub const BACK: u32 = 20;
/// Reason of the finding.
pub const REASON: &str = "engine_changed";

/// Who answers, compared with calibration.
#[derive(Clone, Debug, Default)]
pub struct EngineWatch {
    changed: bool,
    /// Answers in a row that speak for the other side.
    run: u32,
    since: Timestamp,
}

/// What an answer showed.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Another engine answers.
    Changed(Box<Finding>),
    /// A known engine answers again.
    Back,
}

impl EngineWatch {
    /// Takes who answered a golden call.
    pub fn record(&mut self, at: Timestamp, engine: &Engine, healthy: &Fingerprint) -> Option<Step> {
        let foreign = foreign(engine, healthy);
        if foreign.is_some() == self.changed {
            self.run = 0;
            return None;
        }
        if self.run == 0 {
            self.since = at;
        }
        self.run += 1;
        if self.run < if self.changed { BACK } else { RUN } {
            return None;
        }
        (self.changed, self.run) = (!self.changed, 0);
        let Some((part, before, now)) = foreign else { return Some(Step::Back) };
        Some(Step::Changed(Box::new(Finding {
            at,
            route: None,
            arm: Arm::Engine,
            level: Level::Suspect,
            reason: REASON.to_owned(),
            statistic: f64::from(RUN),
            n: u64::from(RUN),
            limit: f64::from(RUN),
            arl0: None,
            onset: Some(self.since),
            message: format!(
                "its {part} is {now:?}, at calibration it was {before}: canaries are learned anew, the baseline of \
                 the old one is kept; run touchstone golden calibrate once the change is meant"
            ),
        })))
    }
}

/// Reads one part of an engine's name.
type Part = fn(&Engine) -> &str;

/// The first part of an engine's name that calibration never saw: which, what was seen, what is now. A part that
/// either side does not tell says nothing.
fn foreign(engine: &Engine, healthy: &Fingerprint) -> Option<(&'static str, String, String)> {
    let parts: [(&str, Part); 3] =
        [("server", |e| &e.server), ("model", |e| &e.model), ("system fingerprint", |e| &e.system)];
    parts.into_iter().find_map(|(name, part)| {
        let now = part(engine);
        let mut known: Vec<&str> = healthy.engines.iter().map(part).filter(|k| !k.is_empty()).collect();
        if now.is_empty() || known.is_empty() || known.contains(&now) {
            return None;
        }
        known.sort_unstable();
        known.dedup();
        let known: Vec<String> = known.iter().map(|k| format!("{k:?}")).collect();
        Some((name, known.join(" or "), now.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(server: &str, model: &str, system: &str) -> Engine {
        Engine { server: server.into(), model: model.into(), system: system.into() }
    }

    fn healthy(engines: &[Engine]) -> Fingerprint {
        Fingerprint { engines: engines.to_vec(), ..Fingerprint::default() }
    }

    /// How many answers until a step.
    fn steps(
        watch: &mut EngineWatch,
        engine: &Engine,
        healthy: &Fingerprint,
        most: u64,
    ) -> Option<(u64, Step)> {
        (1..=most).find_map(|i| Some((i, watch.record(Timestamp::from_millis(i), engine, healthy)?)))
    }

    #[test]
    fn another_server_model_or_fingerprint_is_told_once_and_the_old_one_s_return() {
        let old = engine("vllm", "m-1", "fp_1");
        let known = healthy(std::slice::from_ref(&old));
        for new in
            [engine("sglang", "m-1", "fp_1"), engine("vllm", "m-2", "fp_1"), engine("vllm", "m-1", "fp_2")]
        {
            let mut watch = EngineWatch::default();
            assert_eq!(steps(&mut watch, &old, &known, 100), None);
            let (n, step) = steps(&mut watch, &new, &known, 100).expect("told");
            let Step::Changed(finding) = step else { panic!("{step:?}") };
            assert_eq!((n, finding.arm, finding.level), (3, Arm::Engine, Level::Suspect));
            assert_eq!(finding.onset, Some(Timestamp::from_millis(1)));
            assert!(finding.message.contains("at calibration it was"), "{}", finding.message);
            assert_eq!(steps(&mut watch, &new, &known, 100), None, "told once");
            assert_eq!(steps(&mut watch, &old, &known, 100), Some((20, Step::Back)));
        }
    }

    #[test]
    fn what_is_not_told_or_was_seen_in_calibration_is_no_change() {
        let known = healthy(&[engine("", "m", "fp_1"), engine("", "m", "fp_2")]);
        let mut watch = EngineWatch::default();
        for i in 0..200 {
            let one = match i % 4 {
                0 => engine("cloud", "m", "fp_2"),
                1 => engine("", "", ""),
                2 => engine("", "m", ""),
                _ => engine("", "m", "fp_9"), // a stray one between known ones
            };
            assert_eq!(watch.record(Timestamp::from_millis(i), &one, &known), None);
        }
        let untold = Fingerprint::default();
        assert_eq!(steps(&mut watch, &engine("a", "b", "c"), &untold, 100), None);
    }
}
