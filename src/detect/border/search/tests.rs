use super::*;

/// A model whose first token is one of two, so many nats apart; and how it is asked.
struct Model {
    logprobs: bool,
    /// Whether it answers the same at any temperature.
    is_deaf: bool,
    rng: fastrand::Rng,
}

impl Model {
    fn new(logprobs: bool) -> Self {
        Self { logprobs, is_deaf: false, rng: fastrand::Rng::with_seed(9) }
    }

    /// From 0 to 4 nats, by the text.
    fn margin(text: &str) -> f64 {
        let hash = text
            .bytes()
            .fold(17_u64, |h, b| h.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(u64::from(b)));
        fastrand::Rng::with_seed(hash).f64() * 4.0
    }

    fn answer(&mut self, trial: &Trial) -> TopK {
        let text = trial.prompt.messages.as_ref().expect("chat")[0]["content"].as_str().expect("text");
        let margin = Self::margin(text);
        // Most answers begin with the same token.
        let (usual, other_token) =
            if text.starts_with(|c: char| c.is_ascii_digit()) { ("You", "I") } else { ("I", "You") };
        let lesser = 1.0 / (1.0 + (margin / trial.sampling.temperature.max(1e-9)).exp());
        let other = trial.sampling.temperature > 0.0 && !self.is_deaf && self.rng.f64() < lesser;
        let alternatives = [(usual, -0.5), (other_token, -0.5 - margin), ("He", -9.0)];
        TopK {
            sampled: (if other { other_token } else { usual }).as_bytes().to_vec(),
            alternatives: alternatives
                .iter()
                .filter(|_| self.logprobs)
                .map(|(t, l)| (t.as_bytes().to_vec(), *l))
                .collect(),
        }
    }
}

fn search(model: &mut Model, wanted: u32) -> (Option<BorderBaseline>, String, usize) {
    let mut search = Search::new(Wire::Chat, wanted, 5).expect("text");
    let mut calls = 0;
    while let Some(trial) = search.next() {
        let answer = model.answer(&trial);
        search.record(Some(&answer));
        calls += 1;
        assert!(calls < 20_000, "it never ends");
    }
    assert_eq!(search.left(), 0);
    let (baseline, words) = search.finish(1);
    (baseline, words, calls)
}

#[test]
fn with_logprobs_near_ties_are_found_by_their_margin_at_a_call_a_candidate() {
    let (baseline, words, calls) = search(&mut Model::new(true), 32);
    let baseline = baseline.expect(&words);
    println!("{calls} calls: {words}");
    assert_eq!(baseline.inputs.len(), 32);
    assert_eq!(calls, baseline.candidates as usize + 32 * RUNS as usize);
    for input in baseline.inputs.values() {
        let truth = Model::margin(&input.text);
        assert!((input.margin - truth).abs() < 1e-9 && (LEAST_MARGIN..=MOST_MARGIN).contains(&truth));
        assert_eq!(input.first_tokens.values().collect::<Vec<_>>(), [&RUNS]);
    }
    let of = |token: &str| baseline.inputs.values().filter(|i| i.first_tokens.contains_key(token)).count();
    assert_eq!((of("I"), of("You")), (16, 16), "no first token at more than half of the inputs");
    assert!(baseline.delays[ANOTHER_MODEL] <= 6.0, "{words}");
    assert!(words.contains("at most one false alarm in 10000 answers"), "{words}");
}

#[test]
fn without_logprobs_near_ties_are_found_by_a_few_draws() {
    let (baseline, words, calls) = search(&mut Model::new(false), 32);
    let baseline = baseline.expect(&words);
    println!("{calls} calls: {words}");
    assert_eq!(baseline.inputs.len(), 32);
    assert!(calls < 4_000, "{calls}");
    let truths: Vec<f64> = baseline.inputs.values().map(|input| Model::margin(&input.text)).collect();
    let near = truths.iter().filter(|m| **m <= MOST_MARGIN).count();
    assert!(near >= 26 && truths.iter().all(|m| *m < 1.0), "{near} of 32: {truths:?}");
}

#[test]
fn a_model_without_near_ties_or_that_is_deaf_to_the_temperature_has_no_border() {
    let mut deaf = Model { is_deaf: true, ..Model::new(false) };
    let (none, words, calls) = search(&mut deaf, 8);
    assert!(none.is_none() && words.contains("only 0 border inputs among 320 candidates"), "{words}");
    assert_eq!(calls, 3 * 320);
}

#[test]
fn answers_that_do_not_come_end_a_candidate_and_an_input_that_is_never_answered_is_left_out() {
    let mut model = Model::new(true);
    let mut search = Search::new(Wire::Chat, 10, 6).expect("text");
    let mut calls = 0;
    while let Some(trial) = search.next() {
        let answer = model.answer(&trial);
        let lost = trial.prompt.id.ends_with('a') || trial.prompt.id.ends_with('7') && search.is_over;
        search.record(Some(&answer).filter(|_| !lost));
        calls += 1;
    }
    let (baseline, words) = search.finish(1);
    println!("{calls} calls: {words}");
    let inputs = baseline.expect(&words).inputs;
    assert!(inputs.keys().all(|id| !id.ends_with('a') && !id.ends_with('7')), "{inputs:?}");
}

#[test]
fn a_wire_without_text_has_no_border() {
    for wire in [Wire::Embeddings, Wire::KserveInfer, Wire::TfPredict, Wire::Rerank, Wire::OllamaEmbed] {
        assert!(Search::new(wire, 32, 1).is_none(), "{wire:?}");
    }
    let completions = Search::new(Wire::Completions, 32, 1).expect("text").next().expect("a candidate");
    assert!(completions.prompt.prompt.is_some() && completions.prompt.messages.is_none());
    assert_eq!((completions.prompt.max_tokens, completions.sampling), (1, Sampling::GREEDY));
}
