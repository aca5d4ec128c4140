//! What the logprobs of one answer say, over all its positions.
//!
//! Engines put sentinels where they know nothing (−9999, −1e38, `null`, NaN); one of them would swamp
//! every mean, so each value is tested before use. A winner at exactly 0 with nothing but sentinels
//! behind it is what a degenerate sampler prints, not an entropy of 0.

use crate::sample::{Signals, TopK};
use crate::stats::entropy;
use crate::verdict::Unavailable;
use crate::wire::Position;
use crate::wire::logprobs::Alternative;

/// Above this a logprob is no logprob.
const MAX_VALID: f64 = 1e-6;
/// At or below this it is a sentinel of some engine.
const SENTINEL: f64 = -9000.0;
/// Valid values are floored here: less carries no information and swamps sums.
const FLOOR: f64 = -40.0;
/// Tokens of the group whose mean is the least-confident-group signal.
const GROUP: usize = 64;
/// With fewer valid positions than this, the first and last are not left out of the mean logprob.
const MIN_TO_TRIM: u64 = 5;
/// Most alternatives of the first position that are kept.
const MAX_KEPT: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Worth {
    Valid,
    Sentinel,
    Invalid,
}

fn worth(logprob: f64) -> Worth {
    if logprob > SENTINEL && logprob <= MAX_VALID {
        Worth::Valid
    } else if logprob > MAX_VALID && logprob.is_finite() {
        Worth::Invalid
    } else {
        Worth::Sentinel
    }
}

#[derive(Debug, Default)]
struct Mean {
    sum: f64,
    n: u64,
}

impl Mean {
    fn add(&mut self, x: f64) {
        self.sum += x;
        self.n += 1;
    }

    fn value(&self) -> Option<f64> {
        (self.n > 0).then(|| self.sum / self.n as f64)
    }
}

/// Running sums over the positions seen so far.
#[derive(Debug)]
pub(super) struct Confidence {
    asked_k: Option<u32>,
    vocab: Option<u32>,
    /// Positions seen, whatever they are worth.
    pub(super) positions: u64,
    /// Positions whose own logprob is valid.
    pub(super) valid: u64,
    /// A NaN, null, sentinel, positive or overflowing value was seen.
    pub(super) odd: bool,
    own: Mean,
    first_own: f64,
    last_own: f64,
    lumped: Mean,
    lower: Mean,
    upper: Mean,
    tail: Mean,
    max: Option<f64>,
    first: Option<f64>,
    k: Option<u32>,
    ring: Box<[f64; GROUP]>,
    ring_sum: f64,
    group: Option<f64>,
    /// Alternatives of the very first position.
    pub(super) first_position: Option<TopK>,
    scratch: Vec<f64>,
}

impl Confidence {
    pub(super) fn new(asked_k: Option<u32>, vocab: Option<u32>) -> Self {
        Self {
            asked_k,
            vocab,
            positions: 0,
            valid: 0,
            odd: false,
            own: Mean::default(),
            first_own: 0.0,
            last_own: 0.0,
            lumped: Mean::default(),
            lower: Mean::default(),
            upper: Mean::default(),
            tail: Mean::default(),
            max: None,
            first: None,
            k: None,
            ring: Box::new([0.0; GROUP]),
            ring_sum: 0.0,
            group: None,
            first_position: None,
            scratch: Vec::new(),
        }
    }

    /// Takes the next position. `leads` tells that it belongs to the first choice.
    pub(super) fn add(&mut self, position: &Position<'_>, leads: bool) {
        let opening = self.positions == 0;
        self.positions += 1;
        match worth(position.logprob) {
            Worth::Valid => {
                let own = position.logprob.clamp(FLOOR, 0.0);
                if self.valid == 0 {
                    self.first_own = own;
                }
                self.last_own = own;
                self.valid += 1;
                self.own.add(own);
            }
            _ => self.odd = true,
        }
        self.collect(position);
        if opening && leads {
            self.first_position = Some(self.keep(position));
        }
        let Some(entropy) = entropy::position(&self.scratch, self.vocab) else { return };
        if opening {
            self.first = Some(entropy.lumped);
        }
        self.lumped.add(entropy.lumped);
        self.lower.add(entropy.lower);
        self.tail.add(entropy.tail_mass);
        if let Some(upper) = entropy.upper {
            self.upper.add(upper);
        }
        self.max = Some(self.max.map_or(entropy.lumped, |m| m.max(entropy.lumped)));
        self.k.get_or_insert(entropy.k);
        self.regroup(entropy.top_mean_logprob);
    }

    /// Fills `scratch` with the usable logprobs of distinct alternatives, most likely first.
    fn collect(&mut self, position: &Position<'_>) {
        let all = position.alternatives.beside(&position.token);
        self.scratch.resize(all.len(), 0.0);
        let (mut own_seen, mut sentinels, mut sorted) = (false, false, true);
        let (mut n, mut before) = (0, f64::INFINITY);
        for (logprob, is_own) in all {
            // Engines list the sampled token once more when it is not among the top k.
            if is_own && std::mem::replace(&mut own_seen, true) {
                continue;
            }
            match worth(logprob) {
                Worth::Valid => {
                    let logprob = logprob.clamp(FLOOR, 0.0);
                    self.scratch[n] = logprob;
                    n += 1;
                    sorted &= logprob <= before;
                    before = logprob;
                }
                Worth::Sentinel => sentinels = true,
                Worth::Invalid => self.odd = true,
            }
        }
        self.scratch.truncate(n);
        self.odd |= sentinels;
        if !sorted {
            self.scratch.sort_by(|a, b| b.total_cmp(a));
        }
        if let Some(k) = self.asked_k {
            self.scratch.truncate(k as usize);
        }
        let degenerate = sentinels && self.scratch.len() == 1 && self.scratch[0] >= 0.0;
        if degenerate {
            self.scratch.clear();
        }
    }

    fn keep(&self, position: &Position<'_>) -> TopK {
        let mut kept: Vec<Alternative<'_>> = Vec::new();
        for alternative in position.alternatives.iter() {
            let is_new = !kept.iter().any(|k| k.token.is(&alternative.token));
            if is_new && worth(alternative.logprob) == Worth::Valid {
                kept.push(alternative);
            }
        }
        kept.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
        kept.truncate(self.asked_k.map_or(MAX_KEPT, |k| (k as usize).min(MAX_KEPT)));
        let short = |mut bytes: Vec<u8>| {
            bytes.truncate(64);
            bytes
        };
        TopK {
            sampled: short(position.token.to_bytes()),
            alternatives: kept
                .iter()
                .map(|a| (short(a.token.to_bytes()), a.logprob.clamp(FLOOR, 0.0)))
                .collect(),
        }
    }

    fn regroup(&mut self, value: f64) {
        let n = self.lumped.n as usize;
        let slot = &mut self.ring[(n - 1) % GROUP];
        self.ring_sum += value - *slot;
        *slot = value;
        if n >= GROUP {
            let mean = self.ring_sum / GROUP as f64;
            self.group = Some(self.group.map_or(mean, |g| g.max(mean)));
        }
    }

    /// Writes the signals. `on_wire` tells whether the wire has logprobs at all, `tokens` are the answer's
    /// tokens, if known.
    pub(super) fn report(&self, signals: &mut Signals, on_wire: bool, asked: bool, tokens: Option<u64>) {
        signals.entropy_mean = self.lumped.value();
        signals.entropy_max = self.max;
        signals.entropy_first = self.first;
        signals.entropy_lower = self.lower.value();
        signals.entropy_upper = self.upper.value();
        signals.tail_mass = self.tail.value();
        signals.top_k = self.k;
        signals.logprob_mean = if self.own.n >= MIN_TO_TRIM {
            Some((self.own.sum - self.first_own - self.last_own) / (self.own.n - 2) as f64)
        } else {
            self.own.value()
        };
        let short = || (self.lumped.n > 0).then(|| self.ring_sum / self.lumped.n as f64);
        signals.least_confident_group = self.group.or_else(short);
        if asked || self.positions > 0 {
            let tokens = tokens.unwrap_or(self.positions).max(self.positions).max(1);
            signals.coverage = Some((self.valid as f64 / tokens as f64).min(1.0));
        }
        signals.entropy_unavailable = match () {
            () if self.lumped.n > 0 => None,
            () if !on_wire => Some(Unavailable::NotOnThisWire),
            () if self.positions == 0 && asked => Some(Unavailable::EngineDropped),
            () if self.positions == 0 => Some(Unavailable::NotRequested),
            () if self.asked_k.is_none() && !self.odd => Some(Unavailable::NotRequested),
            () if self.odd => Some(Unavailable::SentinelOnly),
            () => Some(Unavailable::EngineDropped),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Doc, logprobs};

    fn over(entries: &str, k: Option<u32>) -> (Signals, Confidence) {
        let mut doc = Doc::default();
        let mut confidence = Confidence::new(k, None);
        let list = doc.parse(entries.as_bytes()).0.expect("json");
        logprobs::entries(list, &mut |p| confidence.add(&p, true));
        let mut signals = Signals::default();
        confidence.report(&mut signals, true, true, None);
        (signals, confidence)
    }

    fn entry(token: &str, own: &str, top: &[(&str, &str)]) -> String {
        let top: Vec<_> = top.iter().map(|(t, l)| format!(r#"{{"token":"{t}","logprob":{l}}}"#)).collect();
        format!(r#"{{"token":"{token}","logprob":{own},"top_logprobs":[{}]}}"#, top.join(","))
    }

    fn near(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-9)
    }

    #[test]
    fn a_sentinel_is_left_out_and_told() {
        let list = format!(
            "[{},{},{}]",
            entry("I", "-0.1", &[("I", "-0.1"), ("We", "-2.4")]),
            entry("say", "-0.3", &[("say", "-0.3"), ("think", "-1.4")]),
            entry("no", "-9999.0", &[("table", "0.0"), ("tables", "-9999.0")])
        );
        let (signals, confidence) = over(&list, Some(2));
        assert!(near(signals.logprob_mean, -0.2) && near(signals.coverage, 2.0 / 3.0));
        assert!(confidence.odd && confidence.lumped.n == 2);
        assert_eq!(signals.top_k, Some(2));
    }

    #[test]
    fn the_sampled_token_listed_twice_counts_once() {
        let list = format!("[{}]", entry("a", "-1", &[("b", "-0.5"), ("a", "-1"), ("a", "-1")]));
        assert_eq!(over(&list, None).0.top_k, Some(2));
        let list = format!("[{}]", entry("c", "-3", &[("b", "-0.5"), ("a", "-1"), ("c", "-3")]));
        assert_eq!(over(&list, Some(2)).0.top_k, Some(2));
    }

    #[test]
    fn unknown_entropy_has_a_reason_and_is_never_zero() {
        let nan = format!("[{}]", entry("!", "NaN", &[("!", "NaN")]));
        let (signals, _) = over(&nan, Some(1));
        assert_eq!(
            (signals.entropy_mean, signals.entropy_unavailable),
            (None, Some(Unavailable::SentinelOnly))
        );
        assert_eq!(over("[]", Some(1)).0.entropy_unavailable, Some(Unavailable::EngineDropped));
        let bare = r#"[{"token":"a","logprob":-1}]"#;
        assert_eq!(over(bare, None).0.entropy_unavailable, Some(Unavailable::NotRequested));
    }

    #[test]
    fn the_mean_leaves_out_first_and_last_of_a_long_answer() {
        let list: Vec<_> =
            [-9.0, -1.0, -1.0, -1.0, -9.0].iter().map(|l| entry("a", &l.to_string(), &[])).collect();
        assert!(near(over(&format!("[{}]", list.join(",")), None).0.logprob_mean, -1.0));
    }

    #[test]
    fn the_first_position_keeps_usable_alternatives_in_order() {
        let list =
            format!("[{}]", entry("a", "-1", &[("a", "-1"), ("b", "-0.5"), ("c", "-9999"), ("a", "-1")]));
        let first = over(&list, None).1.first_position.expect("a position");
        assert_eq!(first.sampled, b"a");
        assert_eq!(first.alternatives, [(b"b".to_vec(), -0.5), (b"a".to_vec(), -1.0)]);
    }

    #[test]
    fn the_flattest_stretch_is_found() {
        let flat = entry("a", "-3", &[("a", "-3"), ("b", "-3")]);
        let sure = entry("a", "-0.001", &[("a", "-0.001"), ("b", "-9")]);
        let list: Vec<_> =
            (0..300).map(|i| if (100..164).contains(&i) { flat.clone() } else { sure.clone() }).collect();
        assert!(near(over(&format!("[{}]", list.join(",")), None).0.least_confident_group, -3.0));
    }
}
