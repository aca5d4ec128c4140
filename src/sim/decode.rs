//! From distributions to text: sampling, guided decoding, limits, stop strings, whole characters.

use super::fault::Condition;
use super::model::{Ask, Model, Size, Thread};
use super::vocab::{EOS, Token};

/// How tokens are chosen.
#[derive(Clone, Debug)]
pub(super) struct Sampling {
    /// 0 takes the likeliest token.
    pub(super) temperature: f64,
    /// Share of probability kept before sampling.
    pub(super) top_p: f64,
    /// Seed of the draw.
    pub(super) seed: u64,
    /// Most tokens of the answer.
    pub(super) max_tokens: usize,
    /// Texts that end the answer and are left out.
    pub(super) stop: Vec<String>,
    /// Alternatives to report for each token; `None` reports no logprobs.
    pub(super) alternatives: Option<usize>,
    /// Only tokens that the asked-for shape allows.
    pub(super) guided: bool,
}

/// One generated token with its natural logprob before temperature, and the likeliest alternatives.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) token: Token,
    pub(super) logprob: f32,
    pub(super) top: Vec<(Token, f32)>,
}

/// Text that is ready to be sent, with the tokens that made it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Chunk {
    pub(super) text: String,
    pub(super) steps: Vec<Step>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// By itself or by a stop string.
    Stop,
    /// By its limit.
    Length,
}

/// One answer being written.
#[derive(Debug)]
pub(super) struct Writer<'m> {
    model: &'m Model,
    thread: Thread<'m>,
    sampling: Sampling,
    rng: fastrand::Rng,
    made: usize,
    end: Option<End>,
    held: Vec<(Vec<u8>, Step)>,
}

impl<'m> Writer<'m> {
    /// Starts an answer by `model`, whose weights are fixed by `weights_seed`.
    pub(super) fn new(
        model: &'m Model,
        ask: &Ask,
        size: Size,
        condition: Condition,
        weights_seed: u64,
        sampling: Sampling,
    ) -> Self {
        let thread = model.begin(ask, size, condition, weights_seed);
        let rng = fastrand::Rng::with_seed(sampling.seed);
        Self { model, thread, sampling, rng, made: 0, end: None, held: Vec::new() }
    }

    /// Tokens generated so far, the end token not counted.
    pub(super) fn tokens(&self) -> usize {
        self.made
    }

    /// Why the answer ended, once it has.
    pub(super) fn end(&self) -> End {
        self.end.unwrap_or(End::Length)
    }

    /// The next piece of whole characters that no stop string can still take back.
    pub(super) fn next_chunk(&mut self) -> Option<Chunk> {
        while self.end.is_none() {
            self.step();
            if self.end.is_none()
                && let Some(chunk) = self.release()
            {
                return Some(chunk);
            }
        }
        self.flush()
    }

    /// Generates one token.
    fn step(&mut self) {
        if self.made >= self.sampling.max_tokens {
            self.end = Some(End::Length);
            return;
        }
        let guide = if self.sampling.guided { self.thread.guide() } else { Vec::new() };
        let (rng, sampling) = (&mut self.rng, &self.sampling);
        let step = self.thread.with_logprobs(|logprobs| {
            let token = choose(logprobs, &guide, sampling, rng);
            let top = sampling.alternatives.map(|k| likeliest(logprobs, k)).unwrap_or_default();
            Step { token, logprob: logprobs[token as usize], top }
        });
        if step.token == EOS {
            self.end = Some(End::Stop);
            return;
        }
        self.thread.accept(step.token);
        self.made += 1;
        self.held.push((self.model.vocab.bytes(step.token).to_vec(), step));
        self.cut_at_stop();
    }

    fn held_bytes(&self) -> Vec<u8> {
        self.held.iter().flat_map(|(bytes, _)| bytes.iter().copied()).collect()
    }

    fn cut_at_stop(&mut self) {
        let bytes = self.held_bytes();
        let found = |stop: &String| bytes.windows(stop.len()).position(|window| window == stop.as_bytes());
        let Some(at) = self.sampling.stop.iter().filter(|stop| !stop.is_empty()).filter_map(found).min()
        else {
            return;
        };
        self.end = Some(End::Stop);
        let mut left = at;
        for (bytes, _) in &mut self.held {
            bytes.truncate(left);
            left -= bytes.len();
        }
        self.held.retain(|(bytes, _)| !bytes.is_empty());
    }

    /// What is held and safe: whole characters, and no possible beginning of a stop string.
    fn release(&mut self) -> Option<Chunk> {
        let bytes = self.held_bytes();
        let starts = |stop: &String| {
            (1..stop.len().min(bytes.len() + 1)).any(|len| bytes.ends_with(&stop.as_bytes()[..len]))
        };
        if self.sampling.stop.iter().any(starts) {
            return None;
        }
        match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() => None,
            _ => self.flush(),
        }
    }

    fn flush(&mut self) -> Option<Chunk> {
        if self.held.is_empty() {
            return None;
        }
        let text = String::from_utf8_lossy(&self.held_bytes()).into_owned();
        let steps = self.held.drain(..).map(|(_, step)| step).collect();
        Some(Chunk { text, steps })
    }
}

/// The token to say: the likeliest at temperature 0, else a draw from the sharpened distribution.
fn choose(logprobs: &[f32], guide: &[Token], sampling: &Sampling, rng: &mut fastrand::Rng) -> Token {
    let candidates: Vec<(Token, f64)> = if guide.is_empty() {
        if sampling.temperature <= 0.0 {
            return likeliest(logprobs, 1).first().map_or(EOS, |(token, _)| *token);
        }
        (0..).zip(logprobs).map(|(token, &logprob)| (token, f64::from(logprob))).collect()
    } else {
        guide.iter().map(|&token| (token, f64::from(logprobs[token as usize]))).collect()
    };
    let best = candidates.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((EOS, 0.0));
    if sampling.temperature <= 0.0 {
        return best.0;
    }
    let mut weighted: Vec<(Token, f64)> = candidates
        .into_iter()
        .map(|(token, logprob)| (token, ((logprob - best.1) / sampling.temperature).exp()))
        .filter(|(_, weight)| *weight > 0.0)
        .collect();
    let mut sum: f64 = weighted.iter().map(|(_, weight)| weight).sum();
    if sampling.top_p < 1.0 {
        weighted.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut kept = 0.0;
        let nucleus = weighted.iter().take_while(|(_, weight)| {
            let open = kept < sampling.top_p * sum;
            kept += weight;
            open
        });
        let keep = nucleus.count().max(1);
        weighted.truncate(keep);
        sum = weighted.iter().map(|(_, weight)| weight).sum();
    }
    let mut left = rng.f64() * sum;
    for (token, weight) in &weighted {
        left -= weight;
        if left <= 0.0 {
            return *token;
        }
    }
    best.0
}

/// The `k` likeliest tokens, likeliest first.
fn likeliest(logprobs: &[f32], k: usize) -> Vec<(Token, f32)> {
    let mut top: Vec<(Token, f32)> = Vec::with_capacity(k + 1);
    for (token, &logprob) in (0..).zip(logprobs) {
        if top.len() == k && top.last().is_none_or(|(_, least)| logprob <= *least) {
            continue;
        }
        let at = top.partition_point(|(_, other)| *other >= logprob);
        top.insert(at, (token, logprob));
        top.truncate(k);
    }
    top
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_likeliest_tokens_come_first_and_no_more_than_asked_for() {
        let logprobs = [-3.0, -1.0, -2.0, -0.5, -9.0];
        assert_eq!(likeliest(&logprobs, 3), vec![(3, -0.5), (1, -1.0), (2, -2.0)]);
        assert!(likeliest(&logprobs, 0).is_empty());
        assert_eq!(likeliest(&logprobs, 9).len(), 5);
    }

    #[test]
    fn sampling_follows_the_probabilities_and_a_nucleus_leaves_out_the_tail() {
        let logprobs: Vec<f32> = [0.7_f32, 0.2, 0.1].iter().map(|p| p.ln()).collect();
        let mut sampling = Sampling {
            temperature: 1.0,
            top_p: 1.0,
            seed: 1,
            max_tokens: 1,
            stop: Vec::new(),
            alternatives: None,
            guided: false,
        };
        let mut rng = fastrand::Rng::with_seed(3);
        let mut count = |sampling: &Sampling| {
            let mut counts = [0_u32; 3];
            for _ in 0..10_000 {
                counts[choose(&logprobs, &[], sampling, &mut rng) as usize] += 1;
            }
            counts
        };
        let free = count(&sampling);
        assert!((6_700..7_300).contains(&free[0]) && (800..1_200).contains(&free[2]), "{free:?}");
        sampling.top_p = 0.8;
        assert_eq!(count(&sampling)[2], 0);
        sampling.temperature = 0.0;
        assert_eq!(count(&sampling)[0], 10_000);
        assert_eq!(choose(&logprobs, &[2], &sampling, &mut rng), 2);
    }
}
