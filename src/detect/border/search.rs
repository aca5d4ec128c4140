//! The search for border inputs, a call at a time.
//!
//! Candidates are syllables and numbers, one token in most vocabularies, asked as the whole question. With
//! logprobs one greedy answer tells the margin between its two likeliest first tokens. Without, a few draws at
//! a low temperature τ do: of two tokens a margin apart the lesser is drawn with the chance
//! 1/(1 + e^(margin/τ)), a third hardly ever. Draws that are equal to the greedy answer from the start end a
//! candidate after three calls.
//!
//! A margin may also be too small: other thread or batch settings of the same model move logprobs a little,
//! and what they can tip is no sign of a change ([`LEAST_MARGIN`]).
//!
//! A model begins most of its answers with the same token, and damage tends to lift one token everywhere: that
//! tips only inputs at which it came second. So no first token may be the usual one at more than half of the
//! inputs; of 163 near ties of a real model with 2 % of its weights damaged, 7 of 135 with the commonest token
//! first tipped, and 27 of 28 others.
//!
//! Then the inputs found are asked greedily, several times each in random rounds: their healthy first tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::calibration::ANOTHER_MODEL;
use super::super::canary::bare_token;
use super::super::selftest::PROMISE;
use super::super::upper95;
use super::{Border, MOST_FLIPS};
use crate::baseline::{BorderBaseline, BorderInput};
use crate::clock::Timestamp;
use crate::prompt::{Prompt, PromptKind, Sampling};
use crate::sample::TopK;
use crate::stats::{quantile, tracking};
use crate::verdict::{Substance, Wire};

/// Border inputs by default: a dozen tipped of so many are found within one round.
pub const INPUTS: u32 = 32;
/// Fewer than this show nothing but another model.
pub const FEWEST: u32 = 8;
/// More than this is a round that takes an hour.
pub const MOST: u32 = 64;
/// Margins below this are tipped by other numerics of the same model, nats.
pub const LEAST_MARGIN: f64 = 0.05;
/// Margins beyond this are no near tie, nats.
pub const MOST_MARGIN: f64 = 0.5;
/// Candidates tried at most for each input wanted.
const TRIES: usize = 40;
/// Temperature of the draws: a margin of 0.3 nats gives the lesser token one draw of six.
const TEMPERATURE: f64 = 0.2;
/// Draws that end a candidate if all are equal to the greedy answer.
const FIRST_DRAWS: usize = 2;
/// Draws that a margin is estimated from.
const DRAWS: usize = 14;
/// The lesser token's draws at least: one of fourteen is luck more often than a near tie.
const LEAST_DRAWN: u32 = 2;
/// Greedy answers of each input found.
const RUNS: u32 = 8;
/// An input is not believed to tip by itself less often: see [`super::TIPPED`] for what it is weighed against.
const LEAST_FLIPS: f64 = 0.05;
/// Simulated runs of each delay, and answers after which a change counts as not found.
const PAPER: (usize, usize) = (201, 1_000);

const CONSONANTS: &[u8] = b"bcdfghklmnprstvwz";
const VOWELS: &[u8] = b"aeiou";

/// One call of the search.
#[derive(Clone, Debug)]
pub struct Trial {
    /// What to ask.
    pub prompt: Arc<Prompt>,
    /// How the answer is to be drawn.
    pub sampling: Sampling,
}

/// A candidate under examination: its greedy first token and those of the draws.
#[derive(Clone, Debug, Default)]
struct Examined {
    greedy: Option<String>,
    draws: Vec<String>,
}

/// A search in progress.
#[derive(Clone, Debug)]
pub struct Search {
    wire: Wire,
    wanted: usize,
    candidates: Vec<String>,
    tried: usize,
    examined: Examined,
    inputs: BTreeMap<Arc<str>, BorderInput>,
    /// Inputs by their usual first token.
    usual: BTreeMap<String, usize>,
    /// Greedy answers to come, by input; empty while it searches.
    rounds: Vec<Arc<str>>,
    is_over: bool,
    rng: fastrand::Rng,
}

impl Search {
    /// Looks for `wanted` inputs in the protocol `wire`; `None` where that takes no text. `seed` sets the order.
    #[must_use]
    pub fn new(wire: Wire, wanted: u32, seed: u64) -> Option<Self> {
        let text = wire.substance() == Substance::Text;
        let wanted = wanted.clamp(FEWEST, MOST) as usize;
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut candidates = candidates();
        rng.shuffle(&mut candidates);
        candidates.truncate(wanted * TRIES);
        text.then(|| Self {
            wire,
            wanted,
            candidates,
            tried: 0,
            examined: Examined::default(),
            inputs: BTreeMap::new(),
            usual: BTreeMap::new(),
            rounds: Vec::new(),
            is_over: false,
            rng,
        })
    }

    /// What to ask now; `None` when all is asked. Asking again without [`Self::record`] gives the same.
    #[must_use]
    pub fn next(&self) -> Option<Trial> {
        if self.is_over {
            let id = self.rounds.last()?;
            let prompt = prompt(self.wire, id, &self.inputs.get(id)?.text);
            return Some(Trial { prompt, sampling: Sampling::GREEDY });
        }
        let text = self.candidates.get(self.tried)?;
        let sampling = match &self.examined.greedy {
            None => Sampling::GREEDY,
            Some(_) => Sampling { temperature: TEMPERATURE, seed: 1 + self.examined.draws.len() as u64 },
        };
        Some(Trial { prompt: prompt(self.wire, &id(text), text), sampling })
    }

    /// Takes the answer's first position; `None` if no usable answer came.
    pub fn record(&mut self, first: Option<&TopK>) {
        if self.is_over {
            let input = self.rounds.pop().and_then(|id| self.inputs.get_mut(&id));
            if let (Some(first), Some(input)) = (first, input) {
                *input.first_tokens.entry(bare_token(first)).or_default() += 1;
            }
            return;
        }
        match first {
            None => self.settle(None),
            Some(first) => self.examine(first),
        }
        if self.inputs.len() >= self.wanted || self.tried >= self.candidates.len() {
            self.plan_rounds();
        }
    }

    fn examine(&mut self, first: &TopK) {
        let token = bare_token(first);
        if self.examined.greedy.is_none() {
            let margin = margin(first);
            let enough = self.usual.get(&token).is_some_and(|n| 2 * n >= self.wanted);
            self.examined.greedy = Some(token);
            if margin.is_some() || enough {
                self.settle(margin.filter(|_| !enough));
            }
            return;
        }
        self.examined.draws.push(token);
        let draws = &self.examined.draws;
        let same = draws.iter().all(|drawn| Some(drawn) == self.examined.greedy.as_ref());
        if same && draws.len() >= FIRST_DRAWS {
            self.settle(None);
        } else if draws.len() >= DRAWS {
            let margin = drawn_margin(draws);
            self.settle(margin);
        }
    }

    /// Done with the present candidate.
    fn settle(&mut self, margin: Option<f64>) {
        let near = margin.filter(|m| (LEAST_MARGIN..=MOST_MARGIN).contains(m));
        if let (Some(margin), Some(text)) = (near, self.candidates.get(self.tried)) {
            let input = BorderInput { text: text.clone(), margin, first_tokens: BTreeMap::new() };
            self.inputs.insert(id(text).into(), input);
            *self.usual.entry(self.examined.greedy.take().unwrap_or_default()).or_default() += 1;
        }
        self.tried += 1;
        self.examined = Examined::default();
    }

    fn plan_rounds(&mut self) {
        self.is_over = true;
        let mut round: Vec<Arc<str>> = self.inputs.keys().cloned().collect();
        for _ in 0..RUNS {
            self.rng.shuffle(&mut round);
            self.rounds.extend_from_slice(&round);
        }
    }

    /// Inputs found and wanted.
    #[must_use]
    pub fn found(&self) -> (usize, usize) {
        (self.inputs.len(), self.wanted)
    }

    /// Calls still to come, if each candidate takes one.
    #[must_use]
    pub fn left(&self) -> usize {
        if self.is_over {
            return self.rounds.len();
        }
        self.candidates.len() - self.tried + self.wanted * RUNS as usize
    }

    /// What was found, and that in words. `None` where it is too little for an arm.
    #[must_use]
    pub fn finish(mut self, seed: u64) -> (Option<BorderBaseline>, String) {
        let candidates = self.tried;
        self.inputs.retain(|_, input| input.first_tokens.values().sum::<u32>() * 2 >= RUNS);
        let found = self.inputs.len();
        if found < FEWEST as usize {
            let why = format!(
                "only {found} border inputs among {candidates} candidates, {FEWEST} are needed: arm a2 stays off"
            );
            return (None, why);
        }
        let counts = || self.inputs.values().flat_map(|input| input.first_tokens.values());
        let single = counts().filter(|n| **n == 1).count();
        let flips = upper95(u32::try_from(single).unwrap_or(u32::MAX), counts().sum()).max(LEAST_FLIPS);
        let mut baseline = BorderBaseline {
            wire: self.wire,
            candidates: u32::try_from(candidates).unwrap_or(u32::MAX),
            flips,
            promise: PROMISE,
            delays: BTreeMap::new(),
            inputs: self.inputs,
        };
        for (name, share) in [("two inputs of five tipped", 0.4), (ANOTHER_MODEL, 1.0)] {
            let delay = delay(&baseline, share, seed);
            baseline.delays.extend(delay.map(|d| (name.to_owned(), d)));
        }
        let words = in_words(&baseline);
        (Some(baseline), words)
    }
}

/// The prompts of a baseline's border inputs.
#[must_use]
pub fn prompts(baseline: &BorderBaseline) -> Vec<Arc<Prompt>> {
    baseline.inputs.iter().map(|(id, input)| prompt(baseline.wire, id, &input.text)).collect()
}

fn prompt(wire: Wire, id: &str, text: &str) -> Arc<Prompt> {
    let turns = !matches!(wire, Wire::Completions | Wire::OllamaGenerate);
    Arc::new(Prompt {
        id: id.into(),
        kind: PromptKind::Canary,
        wire,
        messages: turns.then(|| serde_json::json!([{ "role": "user", "content": text }])),
        prompt: (!turns).then(|| text.to_owned()),
        input: None,
        tools: None,
        response_format: None,
        max_tokens: 1,
        check: None,
        references: Vec::new(),
        tags: Vec::new(),
    })
}

/// Told from golden prompts' ids by the colon, which those cannot have.
fn id(text: &str) -> String {
    format!("border:{text}")
}

/// Syllables and numbers.
fn candidates() -> Vec<String> {
    let letters = |all: &'static [u8]| all.iter().map(|byte| char::from(*byte));
    let mut all = BTreeSet::new();
    for (a, b) in letters(CONSONANTS).flat_map(|a| letters(VOWELS).map(move |b| (a, b))) {
        all.extend([format!("{a}{b}"), format!("{b}{a}")]);
        all.extend(letters(CONSONANTS).map(|c| format!("{a}{b}{c}")));
    }
    all.extend((0..1_000).map(|n: u32| n.to_string()));
    all.into_iter().collect()
}

/// Logprob of the likeliest bare token less that of the next, nats; `None` without alternatives.
fn margin(first: &TopK) -> Option<f64> {
    let mut logprobs: Vec<f64> = tracking::bare(&first.alternatives).into_iter().map(|(_, l)| l).collect();
    logprobs.sort_unstable_by(|a, b| b.total_cmp(a));
    Some(logprobs.first()? - logprobs.get(1)?)
}

/// The same from draws: τ ln(n₁/n₂), with half a draw added to each. `None` where one token has nearly all
/// draws, or several share them.
fn drawn_margin(draws: &[String]) -> Option<f64> {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    draws.iter().for_each(|token| *counts.entry(token).or_default() += 1);
    let mut counts: Vec<u32> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let next = counts.get(1).filter(|n| **n >= LEAST_DRAWN)?;
    let (most, next) = (f64::from(*counts.first()?), f64::from(*next));
    let are_two = most + next >= 0.8 * draws.len() as f64;
    are_two.then(|| TEMPERATURE * ((most + 0.5) / (next + 0.5)).ln())
}

/// Median number of answers until a finding once this share of the inputs has tipped for good, asked in random
/// rounds after a healthy one; `None` where half of the runs find nothing.
fn delay(baseline: &BorderBaseline, share: f64, seed: u64) -> Option<f64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let usual = |input: &BorderInput| {
        let most = input.first_tokens.iter().max_by_key(|(_, n)| **n);
        most.map(|(token, _)| token.clone()).unwrap_or_default()
    };
    let inputs: Vec<(Arc<str>, String)> =
        baseline.inputs.iter().map(|(id, input)| (Arc::clone(id), usual(input))).collect();
    let mut run = || {
        let mut arm = Border::new(baseline);
        for (id, usual) in &inputs {
            let _ = arm.record(Timestamp::ZERO, id, usual);
        }
        let tipped: Vec<bool> = inputs.iter().map(|_| rng.f64() < share).collect();
        let mut order: Vec<usize> = Vec::new();
        let found = (1..=PAPER.1).find(|_| {
            if order.is_empty() {
                order = (0..inputs.len()).collect();
                rng.shuffle(&mut order);
            }
            let i = order.pop().unwrap_or_default();
            let token = if tipped[i] { "\u{fffd}" } else { &inputs[i].1 };
            arm.record(Timestamp::ZERO, &inputs[i].0, token).is_some()
        });
        found.unwrap_or(PAPER.1) as f64
    };
    let delays: Vec<f64> = (0..PAPER.0).map(|_| run()).collect();
    quantile::median(&delays).filter(|d| *d < PAPER.1 as f64)
}

fn in_words(b: &BorderBaseline) -> String {
    let margins = b.inputs.values().map(|input| input.margin);
    let (least, most) = margins.fold((f64::MAX, 0.0_f64), |(least, most), m| (least.min(m), most.max(m)));
    let found = format!(
        "{} border inputs among {} candidates, first tokens {least:.2} to {most:.2} nats apart",
        b.inputs.len(),
        b.candidates
    );
    if b.flips > MOST_FLIPS {
        return format!(
            "{found}; in health up to {:.0} % of answers are new: arm a2 stays off",
            b.flips * 100.0
        );
    }
    let delays: Vec<String> = b.delays.iter().map(|(name, d)| format!("{name} {d:.0}")).collect();
    format!(
        "{found}; arm a2: at most one false alarm in {:.0} answers to them, if each tips by itself in at most \
         {:.0} % of moments; expected delay in such answers: {}",
        b.promise,
        b.flips * 100.0,
        if delays.is_empty() { "not found".to_owned() } else { delays.join(", ") }
    )
}

#[cfg(test)]
mod tests;
