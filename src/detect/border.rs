//! Arm A2: border inputs, for upstreams without logprobs.
//!
//! A border input is about one token long and its first greedy token is nearly tied with another: the
//! smallest change of the weights tips some of them over ("B3IT", border inputs, ICML 2026). Calibration
//! finds them ([`search`]) and counts what the healthy target says to each; the arm asks whether more of them
//! have tipped than health would explain.
//!
//! Most engines repeat themselves at temperature 0: an input that has tipped stays so, and asking it again
//! says nothing new. So only the latest answer of each input counts. An answer's likelihood ratio
//! holds its first token against the input's own healthy counts; one never seen there has in health
//! the chance that all inputs share, [`crate::baseline::BorderBaseline::flips`], and under the alternatives the
//! [`TIPPED`] ones. The product over the latest w inputs is an e-value, and so is the statistic, the mean
//! over alternatives and all w up to the number of inputs. At each moment it reaches A with a chance of at
//! most 1/A, whatever the answers of one input have to do with each other; so there is at most one alarm in A
//! answers on average (Markov's inequality, moment by moment). Needed is that inputs tip by themselves
//! independently of each other and no oftener than `flips`, for which inputs that other numerics of
//! the same model could tip are not taken.
//!
//! Where canaries bring logprobs, A1 sees far more and border inputs are not asked.

pub mod search;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::baseline::BorderBaseline;
use crate::clock::Timestamp;

use super::novelty::known_as;
use super::{Arm, ArmStatus, Finding, Level, Tally};

/// Shares of inputs that the alternatives say have tipped: a small change, one that leaves half of what was
/// nearly tied, another model.
pub const TIPPED: [f64; 3] = [0.2, 0.4, 0.8];
/// Added to each count (Krichevsky and Trofimov, 1981).
const SMOOTHING: f64 = 0.5;
/// Where more than this is new in health, the arm says nothing.
const MOST_FLIPS: f64 = 0.25;
/// Answers of each input, on average, that are learned from after a change.
const RELEARN: u64 = 3;

/// How one answer weighs against health, by alternative.
type Ratios = [f64; TIPPED.len()];

#[derive(Clone, Debug)]
struct Latest {
    input: Arc<str>,
    at: Timestamp,
    ratios: Ratios,
    tipped: bool,
}

/// The arm of one target.
#[derive(Clone, Debug)]
pub struct Border {
    known: BTreeMap<Arc<str>, BTreeMap<String, u32>>,
    flips: f64,
    promise: f64,
    delay: Option<f64>,
    latest: VecDeque<Latest>,
    learning: Option<u64>,
    without: Option<&'static str>,
    tally: Tally,
}

/// The statistic and the answers that carry most of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Standing {
    statistic: f64,
    answers: usize,
}

impl Border {
    /// Against a baseline's inputs.
    #[must_use]
    pub fn new(baseline: &BorderBaseline) -> Self {
        let known = baseline.inputs.iter().map(|(id, input)| (Arc::clone(id), input.first_tokens.clone()));
        Self {
            known: known.collect(),
            flips: baseline.flips,
            promise: baseline.promise.max(1.0),
            delay: baseline.delays.get(super::calibration::ANOTHER_MODEL).copied(),
            latest: VecDeque::new(),
            learning: None,
            without: None,
            tally: Tally::default(),
        }
    }

    /// Whether `prompt` is one of its inputs.
    #[must_use]
    pub fn knows(&self, prompt: &str) -> bool {
        self.known.contains_key(prompt)
    }

    /// How many inputs it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Tells whether canaries bring logprobs now, which say more.
    pub const fn set_logprobs(&mut self, there: bool) {
        self.without = if there { Some("logprobs_say_more") } else { None };
    }

    /// Takes the first token, bare, of an answer to one of its inputs. An alarm starts anew.
    pub fn record(&mut self, at: Timestamp, input: &Arc<str>, token: &str) -> Option<Finding> {
        let inputs = self.known.len() as u64;
        let varied = self.is_too_varied();
        let counts = self.known.get_mut(input)?;
        if let Some(learned) = &mut self.learning {
            *counts.entry(token.to_owned()).or_default() += 1;
            *learned += 1;
            if *learned >= RELEARN * inputs {
                self.learning = None;
            }
            return None;
        }
        if varied || counts.is_empty() {
            return None; // an input that never answered while it was learned
        }
        let token = known_as(counts, token);
        let (ratios, tipped) = (ratios(counts, token, self.flips), !counts.contains_key(token));
        self.latest.retain(|latest| latest.input != *input);
        self.latest.push_back(Latest { input: Arc::clone(input), at, ratios, tipped });
        self.tally.n += 1;
        let standing = self.standing();
        (standing.statistic >= self.promise).then(|| self.alarm(at, standing))
    }

    fn alarm(&mut self, at: Timestamp, standing: Standing) -> Finding {
        let seen = self.latest.range(self.latest.len() - standing.answers..);
        let tipped = seen.clone().filter(|latest| latest.tipped).count();
        let onset = seen.clone().next().map(|latest| latest.at);
        self.tally.alarms += 1;
        self.restart();
        Finding {
            at,
            route: None,
            arm: Arm::A2,
            level: Level::Suspect,
            reason: "border_inputs_tipped".to_owned(),
            statistic: standing.statistic,
            n: standing.answers as u64,
            limit: self.promise,
            arl0: Some(self.promise),
            onset,
            message: format!(
                "{tipped} of the last {} border inputs were answered with a first token never seen in health; \
                 statistic {:.3e}, limit {:.0}, at most one false alarm in {:.0} such answers promised",
                standing.answers, standing.statistic, self.promise, self.promise
            ),
        }
    }

    fn standing(&self) -> Standing {
        let (mut products, mut sum, mut best) = ([1.0; TIPPED.len()], 0.0, (0.0, 0));
        for (w, latest) in self.latest.iter().rev().enumerate() {
            products.iter_mut().zip(latest.ratios).for_each(|(product, ratio)| *product *= ratio);
            let mean = products.iter().sum::<f64>() / TIPPED.len() as f64;
            sum += mean;
            if mean > best.0 {
                best = (mean, w + 1);
            }
        }
        Standing { statistic: sum / self.known.len().max(1) as f64, answers: best.1 }
    }

    fn is_too_varied(&self) -> bool {
        self.flips > MOST_FLIPS || self.known.is_empty()
    }

    /// Begins anew: what was answered before says nothing about now.
    pub fn restart(&mut self) {
        self.latest.clear();
    }

    /// Takes what the target says from now on for its healthy self.
    pub fn learn_anew(&mut self) {
        self.restart();
        self.known.values_mut().for_each(BTreeMap::clear);
        self.learning = Some(0);
    }

    /// Where the arm stands.
    #[must_use]
    pub fn status(&self) -> ArmStatus {
        let learning = self.learning.map(|n| {
            format!("learning: {n} of {} answers to border inputs", RELEARN * self.known.len() as u64)
        });
        let varied = self.is_too_varied().then(|| "health_is_too_varied".to_owned());
        let unavailable = self.without.map(str::to_owned).or(learning).or(varied);
        ArmStatus {
            arm: Arm::A2,
            route: None,
            statistic: self.standing().statistic,
            n: self.tally.n,
            limit: self.promise,
            arl0: Some(self.promise),
            realised: self.tally.realised(),
            onset: self.latest.iter().find(|latest| latest.tipped).map(|latest| latest.at),
            expected_delay: self.delay.filter(|_| unavailable.is_none()),
            unavailable,
        }
    }
}

/// Likelihood ratio of a first token under each alternative. A token that health showed is as likely as its
/// counts say; an alternative that leaves an input with the tokens of health may have shifted their shares.
fn ratios(counts: &BTreeMap<String, u32>, token: &str, flips: f64) -> Ratios {
    let tipped = TIPPED.map(|share| share.max(flips));
    let Some(count) = counts.get(token) else { return tipped.map(|share| share / flips) };
    let (kinds, runs) = (counts.len() as f64, f64::from(counts.values().sum::<u32>()));
    let health = (f64::from(*count) + SMOOTHING) / (runs + SMOOTHING * kinds);
    let shifted = f64::midpoint(health, 1.0 / kinds) / health;
    tipped.map(|share| (1.0 - share) / (1.0 - flips) * shifted)
}

#[cfg(test)]
mod tests;
