//! The rows: our figure, the target, and what the published detectors do.

#![allow(unreachable_pub)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use touchstone::baseline::{Baseline, BorderBaseline, BorderInput, PromptBaseline, Tested};
use touchstone::clock::Timestamp;
use touchstone::detect::blocks::{Blocks, Step};
use touchstone::detect::burst::{self, Item, Verdict};
use touchstone::detect::canary::SCORES as CANARY_SCORES;
use touchstone::detect::conformal::{Conformal, Healthy, Score};
use touchstone::detect::drift::{FREEZE_AT, LiveReference};
use touchstone::detect::novelty::{Counts, Novelty};
use touchstone::detect::selftest::{self, PROMISE};
use touchstone::detect::{Border, Burst, HardFaults};
use touchstone::prompt::BurstReason;
use touchstone::sample::{CheckResult, Outcome, Sample, Signals, Timing, TopK, Usage};
use touchstone::verdict::{FlagSet, Source, Wire};

use super::baselines::{Adwin, Cusum, Detector, Kswin, PageHinkley};
use super::laws::{Law, delay, normal};

const BOTH_TAILS: &[Score] = &[Score { name: "x", upper: true, lower: true }];
/// Calibrations of each kind, and resamples in the self-test of each.
const CALIBRATIONS: u64 = 60;
const RESAMPLES: u32 = 300;
/// Runs of each delay.
const RUNS: u64 = 2_000;

/// Ours on one score, both tails.
struct Ours(Conformal);

impl Detector for Ours {
    fn push(&mut self, x: f64) -> bool {
        self.0.record(Timestamp::ZERO, |_| Some(x)).is_some()
    }
}

fn calibrate(law: Law, n: usize, seed: u64) -> Healthy {
    let (mut rng, mut state) = (fastrand::Rng::with_seed(seed), 0.0);
    let mut healthy = Healthy::new(BOTH_TAILS);
    (0..n).for_each(|_| healthy.push([Some(law.draw(&mut rng, &mut state))]));
    healthy
}

fn in_parallel<T: Send>(count: u64, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        let work = &work;
        let handles: Vec<_> = (0..threads)
            .map(|t| scope.spawn(move || (t..count).step_by(threads as usize).map(work).collect::<Vec<T>>()))
            .collect();
        handles.into_iter().flat_map(|h| h.join().expect("a worker ends")).collect()
    })
}

fn limits(law: Law, n: usize) -> Vec<(Healthy, Tested)> {
    in_parallel(CALIBRATIONS, |seed| {
        let healthy = calibrate(law, n, 1_000 + seed);
        let tested = selftest::test(&healthy, PROMISE, RESAMPLES, seed);
        (healthy, tested)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Row 2: delay at a promise of ARL0 ≥ 10⁴ that nine of ten calibrations keep.
pub fn delays() {
    println!("2  delay at 1/2/3σ, promise ARL0 ≥ 10⁴ kept by nine of ten calibrations (row 3)");
    println!("   {:28} {:>7} {:>7} {:>7}   ARL0 on noise", "", "1σ", "2σ", "3σ");
    println!("   {:28} {:>7} {:>7} {:>7}", "target at n₀ = 300", "≤ 25", "≤ 7.5", "≤ 4.5");
    for n in [300, 100] {
        let limit = median(limits(Law::Normal, n).into_iter().map(|(_, t)| t.limit).collect());
        for (word, healthy) in [("from a fresh start", 0), ("after 300 healthy", 300)] {
            let fresh =
                |seed| Ours(Conformal::new(&calibrate(Law::Normal, n, seed), limit, 1).expect("scores"));
            let at = |shift| delay(fresh, shift, healthy, RUNS, 5_000).0;
            println!(
                "   {:28} {:7.2} {:7.2} {:7.2}   limit {limit:.0}",
                format!("ours, n₀ = {n}, {word}"),
                at(1.0),
                at(2.0),
                at(3.0)
            );
        }
    }
    fn row<D: Detector>(name: &str, fresh: impl Fn(u64) -> D + Copy) {
        let at = |shift| delay(fresh, shift, 300, 1_000, 5_000).0;
        let (arl, silent) = delay(fresh, 0.0, 0, 200, 20_000);
        let noise = if silent > 0.9 { "silent".to_owned() } else { format!("{arl:.0}") };
        println!("   {name:28} {:7.1} {:7.1} {:7.1}   {noise}", at(1.0), at(2.0), at(3.0));
    }
    row("ADWIN", |_| Adwin::new());
    row("Page–Hinkley", |_| PageHinkley::default());
    row("KSWIN", Kswin::new);
    row("CUSUM k ½ h 5, mean and σ known", |_| Cusum::new(0.5, 5.0));
}

/// Alarms of each calibration's own detector on a fresh stream.
fn alarms(law: Law, n: usize, length: u32) -> (Vec<f64>, f64, usize) {
    let all = limits(law, n);
    let limit = median(all.iter().map(|(_, t)| t.limit).collect());
    let kept: Vec<_> = all.iter().filter(|(_, t)| t.kept).collect();
    let counts = in_parallel(kept.len() as u64, |i| {
        let (healthy, tested) = kept[i as usize];
        let mut ours = Ours(Conformal::new(healthy, tested.limit, 1).expect("scores"));
        let (mut rng, mut state) = (fastrand::Rng::with_seed(77_000 + i), 0.0);
        (0..length).map(|_| f64::from(u8::from(ours.push(law.draw(&mut rng, &mut state))))).sum::<f64>()
    });
    (counts, limit, kept.len())
}

/// Row 3: the promise on five laws.
pub fn promise() {
    println!("3  10th percentile over calibrations of the true ARL0 (target ≥ 10⁴), mean ARL0");
    for n in [300, 100] {
        for law in Law::ALL {
            let length = 300_000;
            let (counts, limit, kept) = alarms(law, n, length);
            let (mean, worst) = selftest::arl0(f64::from(length), &counts);
            println!(
                "   n₀ = {n:3} {:10} {worst:9.0}   mean {mean:9.0}   median limit {limit:.0}, {kept} of {CALIBRATIONS} armed",
                format!("{law:?}")
            );
        }
    }
    println!("   (three alarms are assumed where none came)");
}

struct Mixture<D>(D, f64, fastrand::Rng);

impl<D: Detector> Detector for Mixture<D> {
    /// Healthy values go in; the shift of the bad replica is added to its share of them.
    fn push(&mut self, x: f64) -> bool {
        let bad = self.2.f64() < 1.0 / 6.0;
        self.0.push(if bad { x + self.1 } else { x })
    }
}

/// Row 4: one of six replicas answers 3σ off.
pub fn one_bad_replica() {
    let n = 300;
    let limit = median(limits(Law::Normal, n).into_iter().map(|(_, t)| t.limit).collect());
    let fresh = |seed| Ours(Conformal::new(&calibrate(Law::Normal, n, seed), limit, 1).expect("scores"));
    println!("4  one bad replica of six (3σ)");
    println!(
        "   replicas as targets: {:.2} of its own requests (target ≤ 8)",
        delay(fresh, 3.0, 300, RUNS, 5_000).0
    );
    let mixed = |seed| Mixture(fresh(seed), 3.0, fastrand::Rng::with_seed(seed));
    println!("   behind one URL:      {:.1} requests (target ≤ 60)", delay(mixed, 0.0, 0, RUNS, 5_000).0);
    let others: [(&str, f64); 3] = [
        ("ADWIN", delay(|s| Mixture(Adwin::new(), 3.0, fastrand::Rng::with_seed(s)), 0.0, 0, 300, 5_000).0),
        (
            "Page–Hinkley",
            delay(|s| Mixture(PageHinkley::default(), 3.0, fastrand::Rng::with_seed(s)), 0.0, 0, 300, 5_000)
                .0,
        ),
        ("KSWIN", delay(|s| Mixture(Kswin::new(s), 3.0, fastrand::Rng::with_seed(s)), 0.0, 0, 300, 5_000).0),
    ];
    println!("   begun with the mixture, the others end at: {others:.0?}");
}

/// A golden set whose prompts pass with their own healthy rates, three runs each.
fn golden(rng: &mut fastrand::Rng, rates: &[f64]) -> Arc<Baseline> {
    let prompt = |rate: &f64| {
        let passes = (0..3).filter(|_| rng.f64() < *rate).count() as u32;
        let left_out = (2 * passes < 3).then(|| "its check fails on the healthy target".to_owned());
        PromptBaseline { runs: 3, passes, left_out, ..PromptBaseline::default() }
    };
    let prompts = rates.iter().map(prompt).collect::<Vec<_>>();
    let named = prompts.into_iter().enumerate().map(|(i, p)| (Arc::from(format!("p{i}")), p));
    Arc::new(Baseline { prompts: named.collect(), hard_faults: (0, 400), ..Baseline::default() })
}

/// Runs a burst whose prompts pass at `rates`; its verdict and items.
fn run_burst(rng: &mut fastrand::Rng, baseline: &Arc<Baseline>, rates: &[f64]) -> (Verdict, u32) {
    let mut order: Vec<usize> = (0..rates.len()).collect();
    rng.shuffle(&mut order);
    order.retain(|i| baseline.prompts[&*format!("p{i}")].left_out.is_none());
    order.truncate(50);
    let now = Timestamp::ZERO;
    let mut burst = Burst::new(
        burst::Params::default(),
        Arc::clone(baseline),
        BurstReason::Suspicion,
        order.len() as u32,
        now,
    );
    for (asked, i) in order.iter().enumerate() {
        let check = if rng.f64() < rates[*i] { CheckResult::Pass } else { CheckResult::Fail };
        let item = Item { prompt: Arc::from(format!("p{i}")), check: Some(check), ..Item::default() };
        if let Some(report) = burst.push(now, &item) {
            return (report.verdict, asked as u32 + 1);
        }
    }
    (burst.finish(now).verdict, order.len() as u32)
}

/// Row 6: how often a healthy target would be opened by canaries and a burst.
pub fn false_openings() {
    let per = 10_000_u32;
    let results = in_parallel(100, |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut healthy = Healthy::new(CANARY_SCORES);
        let draw = |rng: &mut fastrand::Rng| (normal(rng).abs(), normal(rng));
        for _ in 0..300 {
            let (d, h) = draw(&mut rng);
            healthy.push([Some(d), Some(h)]);
        }
        let tested = selftest::test(&healthy, PROMISE, RESAMPLES, seed);
        let mut a1 = Conformal::new(&healthy, tested.limit, 1).expect("scores");
        // Small models fail some prompts in health too.
        let rates: Vec<f64> =
            (0..60).map(|_| if rng.f64() < 0.8 { 0.99 } else { 0.5 + rng.f64() / 2.0 }).collect();
        let baseline = golden(&mut rng, &rates);
        let (mut alarms, mut openings) = (0, 0);
        for t in 0..per {
            let (d, h) = draw(&mut rng);
            let score = |name: &str| Some(if name == CANARY_SCORES[0].name { d } else { h });
            if a1.record(Timestamp::from_millis(u64::from(t)), score).is_none() {
                continue;
            }
            alarms += 1;
            loop {
                match run_burst(&mut rng, &baseline, &rates).0 {
                    Verdict::Degraded => break openings += 1,
                    Verdict::Sound => break,
                    Verdict::Undecided => {}
                }
            }
        }
        (alarms, openings)
    });
    let alarms: u32 = results.iter().map(|r| r.0).sum();
    let openings: u32 = results.iter().map(|r| r.1).sum();
    println!(
        "6  10⁶ healthy canaries on 100 targets: {alarms} suspicions, {openings} false openings (target ≤ 3)"
    );
}

/// Row 8: a classifier that falls from 94 % to 72 % at unchanged confidence.
pub fn classifier() {
    let (mut found, mut items, mut bursts, mut false_alarms) = (0, 0, 0, 0);
    let runs = 1_000;
    for seed in 0..runs {
        let mut rng = fastrand::Rng::with_seed(seed);
        let baseline = golden(&mut rng, &[0.94; 60]);
        let (verdict, asked) = run_burst(&mut rng, &baseline, &[0.72; 60]);
        if verdict == Verdict::Degraded {
            found += 1;
            items += asked;
        }
        let mut until = 1;
        let mut verdict = verdict;
        while verdict != Verdict::Degraded && until < 20 {
            until += 1;
            verdict = run_burst(&mut rng, &baseline, &[0.72; 60]).0;
        }
        bursts += until;
        false_alarms += u32::from(run_burst(&mut rng, &baseline, &[0.94; 60]).0 == Verdict::Degraded);
    }
    println!("8  classifier 94 % → 72 %, confidence unchanged (target: opens within 50 golden items)");
    println!(
        "   one burst opens in {:.1} % of {runs} runs, after {:.1} items on average; bursts needed {:.2}",
        f64::from(found) / runs as f64 * 100.0,
        f64::from(items) / f64::from(found.max(1)),
        f64::from(bursts) / runs as f64
    );
    println!(
        "   a healthy burst opens in {:.1} % (promised 1 % to the statistic on the way and 1 % to the p-value at the end)",
        f64::from(false_alarms) / runs as f64 * 100.0
    );
}

fn nanoseconds(mut update: impl FnMut(u64)) -> f64 {
    let (rounds, each) = (7, 100_000);
    let mut best = f64::INFINITY;
    for round in 0..rounds {
        let begun = Instant::now();
        (0..each).for_each(|i| update(round * each + i));
        best = best.min(begun.elapsed().as_nanos() as f64 / each as f64);
    }
    best
}

fn live(at: u64) -> Sample {
    Sample {
        at: Timestamp::from_millis(at),
        request_id: Arc::from(""),
        route: Arc::from("chat"),
        target: Arc::from("t"),
        source: Source::Live,
        wire: Wire::Chat,
        status: Some(200),
        class: None,
        flags: FlagSet::EMPTY,
        signals: Signals {
            entropy_mean: Some(1.0 + (at % 97) as f64 / 97.0),
            logprob_mean: Some(-1.0 - (at % 89) as f64 / 89.0),
            tokens: Some(20 + at % 83),
            repetition: Some((at % 71) as f64 / 710.0),
            foreign_share: Some(0.0),
            ..Signals::default()
        },
        usage: Usage::default(),
        timing: Timing::default(),
        request_hash: at,
        prompt_id: None,
        check: None,
        first_position: None::<TopK>,
        prompt_text: None,
        answer_text: None,
        partial: false,
        light: false,
        generation: 0,
    }
}

/// Row 9: time of an update, bytes of state.
pub fn cost() {
    println!("9  a detector update (target ≤ 1 µs), state of one target and route (target ≤ 64 kB)");
    let mut rng = fastrand::Rng::with_seed(1);
    let mut healthy = Healthy::new(CANARY_SCORES);
    (0..300).for_each(|_| healthy.push([Some(normal(&mut rng)), Some(normal(&mut rng))]));
    let mut a1 = Conformal::new(&healthy, 2e4, 1).expect("scores");
    let values: Vec<f64> = (0..1_024).map(|_| normal(&mut rng)).collect();
    let a1_ns = nanoseconds(|i| {
        let x = values[i as usize % values.len()];
        std::hint::black_box(a1.record(Timestamp::from_millis(i), |_| Some(x)));
    });
    let tokens: BTreeMap<String, u32> = [("yes".to_owned(), 12), ("no".to_owned(), 8)].into();
    let counts: Counts = (0..20).map(|i| (Arc::from(format!("canary-{i}")), tokens.clone())).collect();
    let mut a3 = Novelty::new(counts, PROMISE).expect("a reference");
    let a3_ns = nanoseconds(|i| {
        std::hint::black_box(a3.record(
            Timestamp::from_millis(i),
            "canary-7",
            if i % 2 == 0 { "yes" } else { "no" },
        ));
    });
    let mut a2 = Border::new(&border(32));
    let inputs: Vec<Arc<str>> = (0..32).map(|i| Arc::from(format!("border:{i}"))).collect();
    let a2_ns = nanoseconds(|i| {
        let token = if i % 31 == 0 { "no" } else { "yes" };
        std::hint::black_box(a2.record(Timestamp::from_millis(i), &inputs[i as usize % 32], token));
    });
    let mut c1 = Blocks::default();
    let samples: Vec<Sample> = (0..997).map(live).collect();
    for i in 0..10_000 {
        if let Some(Step::Learned(_)) = c1.record(&samples[i % samples.len()], true) {
            break;
        }
    }
    c1.on_tested(Tested { limit: 3e4, promise: PROMISE, kept: true, ..Tested::default() });
    let c1_ns = nanoseconds(|i| {
        std::hint::black_box(c1.record(&samples[i as usize % samples.len()], true));
    });
    let mut c2 = HardFaults::new();
    let outcomes: Vec<Outcome> = (0..997)
        .map(|i| Outcome {
            at: Timestamp::from_millis(i),
            route: Arc::from("chat"),
            target: Arc::from("t"),
            generation: 0,
            source: Source::Live,
            class: None,
            flags: FlagSet::EMPTY,
            request_hash: i,
            status: Some(200),
            timing: Timing::default(),
            streaming: false,
            light: false,
            retry_after_ms: None,
            usage: Usage::default(),
            cost_usd: None,
            keyed: false,
        })
        .collect();
    let c2_ns = nanoseconds(|i| {
        std::hint::black_box(c2.on_outcome(&outcomes[i as usize % outcomes.len()], true));
    });
    println!(
        "   a1 {a1_ns:.0} ns, a2 {a2_ns:.0} ns, a3 {a3_ns:.0} ns, c1 {c1_ns:.0} ns an answer, c2 {c2_ns:.0} ns"
    );
    println!("   a1 {} bytes, c1 {} bytes", a1.bytes(), c1.bytes());
    live_drift();
    let begun = Instant::now();
    let tested = selftest::test(&healthy, PROMISE, selftest::RESAMPLES, 1);
    println!(
        "   self-test of 300 canary scores, {} resamples: {:.2} s, limit {:.0}",
        selftest::RESAMPLES,
        begun.elapsed().as_secs_f64(),
        tested.limit
    );
}

fn border(inputs: usize) -> BorderBaseline {
    let first_tokens: BTreeMap<String, u32> = [("yes".to_owned(), 8)].into();
    let input = BorderInput { text: String::new(), margin: 0.2, first_tokens };
    BorderBaseline {
        wire: Wire::Chat,
        candidates: 300,
        flips: 0.05,
        promise: PROMISE,
        delays: BTreeMap::new(),
        inputs: (0..inputs).map(|i| (Arc::from(format!("border:{i}")), input.clone())).collect(),
    }
}

/// A pair of vectors of the sentence model's size against a frozen live reference, window test included.
fn live_drift() {
    const DIM: usize = 384;
    let mut rng = fastrand::Rng::with_seed(2);
    let vectors: Vec<Vec<f32>> = (0..512)
        .map(|_| {
            let v: Vec<f32> = (0..DIM).map(|_| normal(&mut rng) as f32).collect();
            let length = v.iter().map(|x| x * x).sum::<f32>().sqrt();
            v.into_iter().map(|x| x / length).collect()
        })
        .collect();
    let at = |i: usize| &vectors[i % vectors.len()];
    let mut reference = LiveReference::new(DIM, FREEZE_AT, 1);
    for i in 0..FREEZE_AT {
        let _ = reference.record(Timestamp::ZERO, at(i), at(i * 7 + 3), true);
    }
    let begun = Instant::now();
    reference.unmeasured().expect("frozen").measure();
    let measured = begun.elapsed();
    let (begun, pairs) = (Instant::now(), 2_000);
    for i in 0..pairs {
        std::hint::black_box(reference.record(Timestamp::ZERO, at(i), at(i * 5 + 1), true));
    }
    println!(
        "   an embedded live answer against {FREEZE_AT} pairs: {:.0} µs; the window test's limit once: {:.0} ms, off the loop",
        begun.elapsed().as_secs_f64() * 1e6 / pairs as f64,
        measured.as_secs_f64() * 1e3
    );
}
