//! Arm A3: first tokens that health has never shown. Needs no logprobs.
//!
//! Each canary's first token is a draw. Under health it follows that prompt's own counts; the alternative
//! is flat: half of it is "a token never seen for this prompt", the other half is spread evenly over those
//! that were seen. The sum of ln(alternative ÷ health), reset at 0, is Page's CUSUM; it alarms at ln A no
//! sooner than after A canaries on average (Lorden, "Procedures for reacting to a change in
//! distribution", 1971).
//!
//! Health gives an unseen token the chance ν, one number for all prompts: the 95 % upper bound of the
//! share of observations that were the only one of their token (Good, "The population frequencies of
//! species and the estimation of population parameters", 1953). One prompt's few runs alone would say
//! far too little. The rest, 1 − ν, follows the counts with half an observation added to each. Tokens are
//! compared without white space around them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::Timestamp;

use super::{Tally, upper95};

/// Share of the alternative on tokens never seen.
const UNSEEN: f64 = 0.5;
/// Added to each count (Krichevsky and Trofimov, 1981).
const SMOOTHING: f64 = 0.5;
/// ν is not believed to be lower: a thousand healthy canaries show no less.
const LEAST: f64 = 1e-3;
/// Where more than this is new in health, novelty says nothing.
const MOST: f64 = 0.25;
/// A prompt with fewer observations takes no part.
const MIN_RUNS: u32 = 5;

/// Healthy first tokens of every prompt.
pub type Counts = BTreeMap<Arc<str>, BTreeMap<String, u32>>;

/// The arm's reference and its sum.
#[derive(Clone, Debug)]
pub struct Novelty {
    counts: Counts,
    unseen: f64,
    limit: f64,
    sum: f64,
    onset: Option<Timestamp>,
    tally: Tally,
    since: u64,
    novel: u64,
}

/// The sum passed its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// The sum.
    pub statistic: f64,
    /// Canaries since it began to rise.
    pub n: u64,
    /// Tokens among them never seen in health.
    pub novel: u64,
    /// When it began to rise.
    pub onset: Option<Timestamp>,
}

impl Novelty {
    /// Against these counts, promising `arl0` canaries between false alarms. `None` where health itself
    /// shows too much that is new, or too little at all.
    #[must_use]
    pub fn new(counts: Counts, arl0: f64) -> Option<Self> {
        let runs = |tokens: &BTreeMap<String, u32>| tokens.values().sum::<u32>();
        let counts: Counts = counts.into_iter().filter(|(_, t)| runs(t) >= MIN_RUNS).collect();
        let all: u32 = counts.values().map(runs).sum();
        let single = counts.values().flat_map(BTreeMap::values).filter(|n| **n == 1).count();
        let unseen = upper95(u32::try_from(single).unwrap_or(u32::MAX), all).max(LEAST);
        (unseen <= MOST).then(|| Self {
            counts,
            unseen,
            limit: arl0.max(1.0).ln(),
            sum: 0.0,
            onset: None,
            tally: Tally::default(),
            since: 0,
            novel: 0,
        })
    }

    /// ln(alternative ÷ health) of a first token; `None` for a prompt without a reference.
    #[must_use]
    pub fn evidence(&self, prompt: &str, token: &str) -> Option<f64> {
        let tokens = self.counts.get(prompt)?;
        let (kinds, runs) = (tokens.len() as f64, f64::from(tokens.values().sum::<u32>()));
        let Some(count) = tokens.get(token) else { return Some((UNSEEN / self.unseen).ln()) };
        let health = (1.0 - self.unseen) * (f64::from(*count) + SMOOTHING) / (runs + SMOOTHING * kinds);
        Some(((1.0 - UNSEEN) / kinds / health).ln())
    }

    /// Takes one canary's first token, bare. An alarm starts anew.
    pub fn record(&mut self, at: Timestamp, prompt: &str, token: &str) -> Option<Alarm> {
        let evidence = self.evidence(prompt, token)?;
        self.tally.n += 1;
        if self.sum <= 0.0 {
            (self.since, self.novel, self.onset) = (0, 0, Some(at));
        }
        self.sum += evidence;
        self.since += 1;
        self.novel += u64::from(!self.counts.get(prompt).is_some_and(|t| t.contains_key(token)));
        if self.sum <= 0.0 {
            self.restart();
            return None;
        }
        if self.sum < self.limit {
            return None;
        }
        let alarm = Alarm { statistic: self.sum, n: self.since, novel: self.novel, onset: self.onset };
        self.tally.alarms += 1;
        self.restart();
        Some(alarm)
    }

    /// Begins anew; counts stay.
    pub fn restart(&mut self) {
        (self.sum, self.since, self.novel, self.onset) = (0.0, 0, 0, None);
    }

    /// The token of health that `word` stands for: itself, or the one that it begins with. With logprobs a
    /// canary is one token long and without them a word.
    #[must_use]
    pub fn known_as<'a>(&'a self, prompt: &str, word: &'a str) -> &'a str {
        self.counts.get(prompt).map_or(word, |tokens| known_as(tokens, word))
    }

    /// The sum now and when it began to rise.
    #[must_use]
    pub const fn standing(&self) -> (f64, Option<Timestamp>) {
        (self.sum, self.onset)
    }

    /// Its limit.
    #[must_use]
    pub const fn limit(&self) -> f64 {
        self.limit
    }

    /// Observations and alarms so far.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Canaries until an alarm if every first token were new.
    #[must_use]
    pub fn delay(&self) -> f64 {
        (self.limit / (UNSEEN / self.unseen).ln()).ceil()
    }
}

/// The token among `tokens` that `word` stands for: itself, or the longest that it begins with.
pub(super) fn known_as<'a>(tokens: &'a BTreeMap<String, u32>, word: &'a str) -> &'a str {
    if tokens.contains_key(word) {
        return word;
    }
    let begins = tokens.keys().filter(|t| !t.is_empty() && word.starts_with(t.as_str()));
    begins.max_by_key(|t| t.len()).map_or(word, String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(prompts: usize, tokens: &[(&str, u32)]) -> Counts {
        let one: BTreeMap<String, u32> = tokens.iter().map(|(t, n)| ((*t).to_owned(), *n)).collect();
        (0..prompts).map(|i| (Arc::from(format!("p{i}")), one.clone())).collect()
    }

    #[test]
    fn new_first_tokens_are_found_within_four_canaries() {
        for runs in [10, 20] {
            let mut arm = Novelty::new(counts(20, &[("Yes", runs)]), 1e4).expect("a reference");
            assert!((2.0..=4.0).contains(&arm.delay()), "{}", arm.delay());
            let alarm = (0..4).find_map(|i| arm.record(Timestamp::from_millis(i), "p3", "qua"));
            let alarm = alarm.expect("within four");
            assert_eq!(
                (alarm.n as f64, alarm.novel, alarm.onset),
                (arm.delay(), alarm.n, Some(Timestamp::ZERO))
            );
        }
    }

    #[test]
    fn one_prompt_that_says_something_else_for_good_is_no_alarm() {
        let mut arm = Novelty::new(counts(20, &[("Yes", 20)]), 1e4).expect("a reference");
        for round in 0..1_000 {
            for p in 0..20 {
                let token = if p == 7 { "No" } else { "Yes" };
                let alarm = arm.record(Timestamp::from_millis(round), &format!("p{p}"), token);
                assert_eq!(alarm, None, "round {round}");
            }
        }
    }

    /// Fresh streams from the law that the counts were drawn from, over several laws.
    #[test]
    fn healthy_streams_keep_the_promise() {
        let mut rng = fastrand::Rng::with_seed(11);
        let (promise, length) = (1_000.0, 2_000_u64);
        for law in [&[1.0][..], &[0.9, 0.1], &[0.97, 0.01, 0.01, 0.01], &[0.5, 0.3, 0.2]] {
            let (mut alarms, mut seen) = (0.0, 0.0);
            for _ in 0..40 {
                let mut counts = Counts::new();
                let draw = |rng: &mut fastrand::Rng| {
                    let mut u = rng.f64();
                    let at = law.iter().position(|p| {
                        u -= p;
                        u < 0.0
                    });
                    format!("t{}", at.unwrap_or(0))
                };
                for p in 0..20 {
                    for _ in 0..20 {
                        let token = draw(&mut rng);
                        *counts.entry(Arc::from(format!("p{p}"))).or_default().entry(token).or_default() += 1;
                    }
                }
                let Some(mut arm) = Novelty::new(counts, promise) else { continue };
                for t in 0..length {
                    let (prompt, token) = (format!("p{}", rng.usize(..20)), draw(&mut rng));
                    alarms +=
                        f64::from(u8::from(arm.record(Timestamp::from_millis(t), &prompt, &token).is_some()));
                    seen += 1.0;
                }
            }
            println!("{law:?}: {alarms} alarms in {seen} canaries, at most {:.0} promised", seen / promise);
            assert!(alarms <= seen / promise, "{law:?}: {alarms} in {seen}");
        }
    }

    #[test]
    fn a_target_that_always_says_something_new_has_no_such_arm() {
        let tokens: Vec<(String, u32)> = (0..10).map(|i| (format!("t{i}"), 1)).collect();
        let tokens: Vec<(&str, u32)> = tokens.iter().map(|(t, n)| (t.as_str(), *n)).collect();
        assert!(Novelty::new(counts(10, &tokens), 1e4).is_none());
        assert!(Novelty::new(Counts::new(), 1e4).is_none());
    }

    #[test]
    fn a_word_that_begins_with_a_known_token_is_that_token() {
        let arm = Novelty::new(counts(20, &[("Par", 20)]), 1e4).expect("a reference");
        assert_eq!((arm.known_as("p1", "Paris"), arm.known_as("p1", "Rome")), ("Par", "Rome"));
        assert_eq!(arm.evidence("nowhere", "Paris"), None);
    }
}
