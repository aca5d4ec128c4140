//! The embedder agrees with an independent forward pass in 64-bit floats; see
//! `tests/fixtures/reference/README.md` for how the truth was made.

use std::path::PathBuf;

use serde::Deserialize;
use touchstone::clock::Stopwatch;
use touchstone::embed::{Embedder, ModelSource};

/// 8-bit weights lose this much and no more.
const COMPACT: f64 = 0.999;
/// 32-bit weights differ by rounding only.
const EXACT: f64 = 0.999_99;

#[derive(Deserialize)]
struct Reference {
    text: String,
    tokens: usize,
    embedding: Vec<f64>,
}

fn references() -> Vec<Reference> {
    include_str!("fixtures/reference/minilm_embeddings.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).expect("a reference"))
        .collect()
}

fn cosine(a: &[f32], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let dot: f64 = a.iter().zip(b).map(|(x, y)| f64::from(*x) * y).sum();
    let norm_a = a.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let norm_b = b.iter().map(|y| y.powi(2)).sum::<f64>().sqrt();
    dot / (norm_a * norm_b)
}

#[test]
fn every_reference_text_comes_out_as_published() {
    let (source, tolerance) = match std::env::var_os("TOUCHSTONE_MODEL").map(PathBuf::from) {
        Some(dir) if dir.join("model.safetensors").exists() => (ModelSource::Folder(dir), EXACT),
        Some(dir) => (ModelSource::Folder(dir), COMPACT),
        None => (ModelSource::Builtin, COMPACT),
    };
    let embedder = Embedder::load(&source, 1).expect("loads");
    let references = references();
    assert_eq!(references.len(), 50);
    let mut least = (f64::INFINITY, "");
    let mut mean = 0.0;
    for reference in &references {
        let embedding = embedder.embed(&reference.text).expect("embeds");
        assert_eq!(embedding.tokens, reference.tokens, "{:?}", reference.text);
        let cosine = cosine(&embedding.vector, &reference.embedding);
        mean += cosine / 50.0;
        if cosine < least.0 {
            least = (cosine, &reference.text);
        }
    }
    println!("cosine to the reference: least {:.6} ({:?}), mean {mean:.6}", least.0, least.1);
    assert!(least.0 >= tolerance, "{} for {:?}", least.0, least.1);
}

/// Run by hand: `cargo test --release --test embed_parity -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn speed_and_memory() {
    let before = resident_mb();
    let watch = Stopwatch::start();
    let embedder = Embedder::load(&ModelSource::Builtin, 1).expect("loads");
    println!("loaded in {:?}, resident {before} -> {} MB", watch.elapsed(), resident_mb());
    for (name, words, rounds) in [("8 words", 8, 200), ("60 words", 60, 50), ("250 words", 250, 20)] {
        let text = "the quick answer of a sound model stays near its golden self ".repeat(40);
        let text = text.split_inclusive(' ').take(words).collect::<String>();
        let tokens = embedder.embed(&text).expect("embeds").tokens;
        let (watch, cpu) = (Stopwatch::start(), cpu_seconds());
        for _ in 0..rounds {
            embedder.embed(&text).expect("embeds");
        }
        let wall = watch.elapsed().as_secs_f64() / f64::from(rounds);
        let cpu = (cpu_seconds() - cpu) / f64::from(rounds);
        println!(
            "{name} ({tokens} tokens): {:.2} ms, {:.2} ms of CPU, {:.0}/s",
            wall * 1e3,
            cpu * 1e3,
            1.0 / cpu
        );
    }
    println!("resident {} MB", resident_mb());
}

/// User and system time of this process, in steps of 10 ms: tells the truth on a busy machine.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|f| f.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn resident_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).unwrap_or_default() / 1024
}
