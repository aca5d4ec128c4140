//! What the detectors reach: `cargo bench --bench detect`, or `-- 2 9` for some rows. Seeded
//! simulations, a few minutes.
//!
//! One protocol for ours and for the published detectors beside it: healthy values, then a shift; the delay
//! counts from the first shifted value, runs that alarmed before are left out. Every calibration is a fresh
//! sample that tests itself and finds its own limit; the promise is then held against fresh streams.
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // a bench measures time and prints it

#[path = "detect/baselines.rs"]
mod baselines;
#[path = "detect/laws.rs"]
mod laws;
#[path = "detect/rows.rs"]
mod rows;

fn main() {
    let rows: [(&str, fn()); 6] = [
        ("2", rows::delays),
        ("3", rows::promise),
        ("4", rows::one_bad_replica),
        ("6", rows::false_openings),
        ("8", rows::classifier),
        ("9", rows::cost),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    for (name, row) in rows.iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| w == name)) {
        let begun = std::time::Instant::now();
        row();
        println!("   [row {name}: {:.1} s]\n", begun.elapsed().as_secs_f64());
    }
}
