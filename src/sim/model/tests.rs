use super::super::decode::{Sampling, Writer};
use super::super::serve::trained;
use super::*;

const QUESTIONS: &[&str] = &[
    "How do bees make honey?",
    "What is the water cycle?",
    "How is bread baked?",
    "Why is sleep important?",
    "What is a computer?",
    "What is the capital of Japan?",
    "What is 12 + 30?",
    "Why do ships float?",
];

fn sampling(temperature: f64, seed: u64) -> Sampling {
    Sampling {
        temperature,
        top_p: 1.0,
        seed,
        max_tokens: 60,
        stop: Vec::new(),
        alternatives: Some(5),
        guided: false,
    }
}

fn ask(prompt: &str) -> Ask {
    Ask { prompt: prompt.to_owned(), max_tokens: 60, ..Ask::default() }
}

fn answer(prompt: &str, condition: Condition, sampling: Sampling) -> String {
    let mut writer = Writer::new(trained(), &ask(prompt), Size::Large, condition, 7, sampling);
    std::iter::from_fn(|| writer.next_chunk()).map(|chunk| chunk.text).collect()
}

fn damaged(damage: f32) -> Condition {
    Condition { damage, ..Condition::default() }
}

/// Mean exact entropy of the positions of greedy answers, nats.
fn mean_entropy(condition: Condition) -> f64 {
    let (mut sum, mut n) = (0.0, 0.0);
    for question in QUESTIONS {
        let mut thread = trained().begin(&ask(question), Size::Large, condition, 7);
        for _ in 0..30 {
            let (entropy, best) = thread.with_logprobs(|logprobs| {
                let entropy: f64 = logprobs
                    .iter()
                    .filter(|l| l.is_finite())
                    .map(|&l| -f64::from(l.exp()) * f64::from(l))
                    .sum();
                let best =
                    (0..).zip(logprobs).max_by(|a, b| a.1.total_cmp(b.1)).map_or(EOS, |(token, _)| token);
                (entropy, best)
            });
            sum += entropy;
            n += 1.0;
            if best == EOS {
                break;
            }
            thread.accept(best);
        }
    }
    sum / n
}

#[test]
fn every_step_is_a_distribution_healthy_or_not() {
    let conditions = [
        Condition::default(),
        damaged(0.02),
        damaged(0.1),
        damaged(1.0),
        Condition { gibberish: true, ..Condition::default() },
        Condition { shuffle: true, ..Condition::default() },
        Condition { wrong_language: true, ..Condition::default() },
        Condition { looping: true, ..Condition::default() },
        Condition { swapped: true, ..Condition::default() },
    ];
    for condition in conditions {
        for size in [Size::Large, Size::Small] {
            let mut thread = trained().begin(&ask(QUESTIONS[0]), size, condition, 7);
            for step in 0..25 {
                let (sum, positive) = thread.with_logprobs(|logprobs| {
                    (
                        logprobs.iter().map(|l| f64::from(l.exp())).sum::<f64>(),
                        logprobs.iter().any(|l| *l > 1e-6),
                    )
                });
                assert!((sum - 1.0).abs() < 1e-3 && !positive, "{condition:?} {step}: {sum}");
                let best =
                    thread.with_logprobs(|l| (0..).zip(l).max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0);
                thread.accept(best);
            }
        }
    }
}

#[test]
fn greedy_answers_are_the_same_each_time_and_seeds_decide_the_rest() {
    let healthy = Condition::default();
    assert_eq!(
        answer(QUESTIONS[0], healthy, sampling(0.0, 1)),
        answer(QUESTIONS[0], healthy, sampling(0.0, 2))
    );
    assert_eq!(
        answer(QUESTIONS[0], healthy, sampling(1.2, 5)),
        answer(QUESTIONS[0], healthy, sampling(1.2, 5))
    );
    assert_ne!(
        answer(QUESTIONS[0], healthy, sampling(1.2, 5)),
        answer(QUESTIONS[0], healthy, sampling(1.2, 6))
    );
    assert_eq!(
        answer(QUESTIONS[0], damaged(0.1), sampling(0.0, 1)),
        answer(QUESTIONS[0], damaged(0.1), sampling(0.0, 9))
    );
}

#[test]
fn healthy_answers_are_sensible_and_damage_takes_them_away() {
    let healthy = Condition::default();
    let honey = answer(QUESTIONS[0], healthy, sampling(0.0, 1));
    assert!(honey.starts_with("Bees collect"), "{honey}");
    assert_eq!(
        answer("What is the capital of Japan?", healthy, sampling(0.0, 1)),
        "The capital of Japan is Tokyo."
    );
    assert_eq!(answer("What is 12 + 30?", healthy, sampling(0.0, 1)), "42");
    let garbage = answer(QUESTIONS[0], damaged(0.1), sampling(0.0, 1));
    let shared = garbage.bytes().zip(honey.bytes()).take_while(|(a, b)| a == b).count();
    assert!(shared < 60, "{garbage}");
}

#[test]
fn entropy_rises_with_damage() {
    let healthy = mean_entropy(Condition::default());
    let light = mean_entropy(damaged(0.02));
    let heavy = mean_entropy(damaged(0.1));
    eprintln!("mean entropy, nats: healthy {healthy:.3}, 2 % damage {light:.3}, 10 % damage {heavy:.3}");
    assert!(light > healthy + 0.02, "{healthy} {light}");
    assert!(heavy > light + 0.1, "{light} {heavy}");
}
