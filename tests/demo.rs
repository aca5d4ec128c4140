//! The demo's story happens, and does not when the model stays healthy.

use std::process::{Command, Output};
use std::sync::Mutex;

use touchstone::clock::Stopwatch;

/// One story at a time: two at once would share the cores and double each other's waits.
static STAGE: Mutex<()> = Mutex::new(());

fn demo(arguments: &[&str]) -> (Output, u64, String) {
    let _stage = STAGE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let watch = Stopwatch::start();
    let output = Command::new(env!("CARGO_BIN_EXE_touchstone"))
        .arg("demo")
        .args(arguments)
        .output()
        .expect("the built program starts");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    (output, watch.elapsed().as_secs(), told)
}

#[test]
fn the_whole_story_happens_within_four_minutes() {
    let (output, seconds, told) = demo(&["--once"]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "after {seconds} s:\n{told}\n{words}");
    assert!(seconds < 240, "{seconds} s");
    for part in [
        "dashboard",
        "Chapter 1",
        "Chapter 2",
        "→ open",
        "Chapter 4",
        "→ half_open",
        "→ closed",
        "ramp: 100 %",
    ] {
        assert!(told.contains(part), "{part} is missing:\n{told}");
    }
}

#[test]
fn without_the_degradation_the_story_is_not_met() {
    let (output, seconds, told) = demo(&["--once", "--no-degradation"]);
    assert_eq!(output.status.code(), Some(2), "after {seconds} s:\n{told}");
    assert!(told.contains("chapter 3") && told.contains("did not happen"), "{told}");
    assert!(!told.contains("→ open"), "{told}");
}
