use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::baseline::PromptBaseline;
use crate::clock::Timestamp;

fn baseline(target: &str) -> Baseline {
    let prompt = PromptBaseline {
        runs: 4,
        passes: 3,
        references: vec!["He said \"no\" \\ twice".to_owned(), "北 京".to_owned()],
        similarities: vec![0.123_456_789_012_345_67, 0.1 + 0.2, 1.0],
        first_tokens: BTreeMap::from([(" a".to_owned(), 3)]),
        ..PromptBaseline::default()
    };
    Baseline {
        target: target.into(),
        made_at: Timestamp::from_millis(1_700_000_000_000),
        fingerprint: Fingerprint { model: "m".to_owned(), top_k: 20, ..Fingerprint::default() },
        prompts: BTreeMap::from([(Arc::from("p"), prompt)]),
        compression_max: 2.5,
        hard_faults: (1, 80),
        scores: BTreeMap::from([("entropy".to_owned(), vec![0.5, 1.25])]),
        ..Baseline::default()
    }
}

fn near(a: &Baseline, b: &Baseline) {
    let round = |x: &Baseline| {
        let mut x = x.clone();
        x.version = BASELINE_VERSION;
        for p in x.prompts.values_mut() {
            p.similarities.iter_mut().for_each(|s| *s = (*s * 1e12).round());
        }
        x
    };
    assert_eq!(round(a), round(b));
}

#[test]
fn a_frozen_baseline_reads_back_and_is_text_for_eyes() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Baselines::at(dir.path().join("deep/er"));
    assert!(store.load("a").expect("reads").is_none());
    let path = store.save(&baseline("a")).expect("writes");
    assert!(path.ends_with("baseline.json"));
    near(&store.load("a").expect("reads").expect("is there"), &baseline("a"));
    let text = std::fs::read_to_string(&path).expect("reads");
    assert!(text.contains("\n      \"model\": \"m\",\n"), "{text}");
    assert!(text.contains("\"entropy\": [0.5, 1.25]\n"), "{text}");
    assert!(text.contains("\"scores\": {\n"), "{text}");
}

#[test]
fn targets_that_share_a_set_get_files_of_their_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Baselines::at(dir.path());
    assert!(store.save(&baseline("a")).expect("writes").ends_with("baseline.json"));
    assert!(store.save(&baseline("../b c")).expect("writes").ends_with("baseline/%2E.%2Fb%20c.json"));
    assert!(store.save(&baseline("a")).expect("writes").ends_with("baseline.json"));
    assert_eq!(&*store.load("../b c").expect("reads").expect("is there").target, "../b c");
    assert_eq!(&*store.load("a").expect("reads").expect("is there").target, "a");
    assert!(store.load("c").expect("reads").is_none());
}

#[test]
fn a_broken_file_is_named_and_stays_as_it_is() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Baselines::at(dir.path());
    let path = store.save(&baseline("a")).expect("writes");
    let sound = std::fs::read_to_string(&path).expect("reads");
    let cases = [
        (sound.replace("\"runs\": 4", "\"runs\": 5"), "its content has sha256:"),
        (sound.replace("北 京", "北京"), "its content has sha256:"),
        (sound[..sound.len() / 2].to_owned(), "EOF"),
        (String::new(), "EOF"),
        (sound.replace("\"checksum\"", "\"chksum\""), "unknown field `chksum`"),
    ];
    for (text, reason) in cases {
        std::fs::write(&path, &text).expect("writes");
        for error in [store.load("a").map(drop), store.save(&baseline("a")).map(drop)] {
            let said = error.expect_err(reason).to_string();
            assert!(said.contains("baseline.json: ") && said.contains(reason), "{said}");
        }
        assert_eq!(std::fs::read_to_string(&path).expect("reads"), text);
    }
    std::fs::write(&path, sound.replace("\n  ", "\n\t   ").replace(", ", ",")).expect("writes");
    assert!(store.load("a").is_ok() || sound.contains("twice, "), "white space outside texts is free");
}

#[test]
fn what_cannot_be_read_back_is_not_written() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = Baselines::at(dir.path());
    let spoil: [fn(&mut Baseline); 3] =
        [|b| b.compression_max = f64::NAN, |b| b.hard_faults = (2, 1), |b| b.target = "".into()];
    for (i, change) in spoil.iter().enumerate() {
        let mut bad = baseline("a");
        change(&mut bad);
        let said = store.save(&bad).expect_err("unsound").to_string();
        assert!(said.starts_with("baseline of target"), "{i}: {said}");
    }
    let mut counts = baseline("a");
    counts.prompts.values_mut().for_each(|p| p.passes = 9);
    assert!(store.save(&counts).expect_err("unsound").to_string().contains("9 passes in 4 runs"));
    assert_eq!(std::fs::read_dir(dir.path()).expect("lists").count(), 0);
}

#[test]
fn another_version_is_refused_by_number() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("baseline.json");
    let later = Baseline { version: 9, ..baseline("a") };
    std::fs::write(&path, render(&later).expect("renders")).expect("writes");
    let said = Baselines::at(dir.path()).load("a").expect_err("later").to_string();
    assert!(said.contains("format version 9, but this program reads 1"), "{said}");
}

#[test]
fn a_comparison_names_each_difference() {
    let frozen =
        Fingerprint { engine: "vllm".to_owned(), model: "m".to_owned(), top_k: 20, ..Fingerprint::default() };
    assert!(mismatches(&frozen, &frozen).is_empty());
    assert!(mismatches(&frozen, &Fingerprint { engine: String::new(), ..frozen.clone() }).is_empty());
    let now = Fingerprint { top_k: 5, temperature: 0.7, golden: "x".to_owned(), ..frozen.clone() };
    let reasons = mismatches(&frozen, &now);
    assert_eq!(reasons.len(), 3);
    assert_eq!(reasons[0], "alternatives a position was \"20\" when the baseline was made and is \"5\" now");
}

#[test]
fn the_baseline_of_an_engine_that_was_replaced_is_kept_apart() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = Baselines::at(dir.path());
    let of = |system: &str, at: u64| {
        let engine = crate::baseline::Engine { system: system.to_owned(), ..Default::default() };
        let fingerprint = Fingerprint { engines: vec![engine], ..Fingerprint::default() };
        let made_at = crate::clock::Timestamp::from_millis(at);
        Baseline { target: "t".into(), version: 1, made_at, fingerprint, ..Baseline::default() }
    };
    let old = dir.path().join("baseline.old/t-1.json");
    place.save(&of("fp_1", 1)).expect("saved");
    place.save(&of("fp_1", 2)).expect("saved");
    assert!(!old.exists() && !dir.path().join("baseline.old").exists(), "the same engine's is replaced");
    place.save(&of("fp_2", 3)).expect("saved");
    let kept = Baselines::read(&dir.path().join("baseline.old/t-2.json")).expect("reads").expect("kept");
    assert_eq!(kept.fingerprint.engines[0].system, "fp_1");
    assert_eq!(place.load("t").expect("reads").expect("there").fingerprint.engines[0].system, "fp_2");
}
