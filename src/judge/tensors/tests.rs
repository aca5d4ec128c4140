use std::sync::Arc;

use proptest::prelude::*;

use crate::judge::{Ask, End, Head, Judge, Verdict};
use crate::verdict::{ClassOutput, FaultClass, Wire};

fn judge(wire: Wire, head: Head, body: &[u8], cuts: &[usize], end: End) -> Verdict {
    let mut judge = Judge::new(Arc::new(Ask::parse(wire, b"{}")), head);
    let mut done = 0;
    for cut in cuts.iter().copied().chain([body.len()]) {
        let _ = judge.push(10, &body[done..cut]);
        done = cut;
    }
    judge.finish(20, end)
}

fn head(length: Option<&str>) -> Head {
    Head { status: 200, inference_header_length: length.map(str::to_owned), ..Head::default() }
}

fn json(wire: Wire, body: &str) -> Verdict {
    judge(wire, head(None), body.as_bytes(), &[], End::Complete)
}

/// An answer with one raw FP32 tensor of two numbers.
fn raw(length: &str, tail: &[u8]) -> Verdict {
    let document = document();
    let length = length.replace("LENGTH", &document.len().to_string());
    let body = [document.as_bytes(), tail].concat();
    judge(Wire::KserveInfer, head(Some(&length)), &body, &[], End::Complete)
}

fn document() -> String {
    r#"{"model_name":"c","outputs":[{"name":"probs","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]}"#.to_owned()
}

fn floats(values: [f32; 2]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a - b).abs() < 1e-6)
}

#[test]
fn a_classifier_shows_its_entropy_confidence_and_margin_on_both_wires() {
    let h = -(0.1_f64 * 0.1_f64.ln() + 0.9 * 0.9_f64.ln());
    let kserve = r#"{"outputs":[{"name":"p","datatype":"FP32","shape":[1,2],"data":[0.1,0.9]}]}"#;
    for verdict in [
        json(Wire::KserveInfer, kserve),
        raw("LENGTH", &floats([0.1, 0.9])),
        json(Wire::TfPredict, r#"{"predictions":[[0.1,0.9]]}"#),
        json(Wire::TfPredict, r#"{"predictions":[{"scores":[0.1,0.9],"classes":["0","1"]}]}"#),
        json(Wire::TfPredict, r#"{"outputs":{"scores":[[-2.302585093,-0.105360516]]}}"#),
    ] {
        let s = &verdict.signals;
        assert_eq!((verdict.flags.to_string().as_str(), verdict.class), ("", None));
        assert!(near(s.class_entropy, h) && near(s.class_entropy_ratio, h / 2_f64.ln()), "{s:?}");
        assert!(near(s.confidence, 0.9) && near(s.margin, 0.8), "{s:?}");
        assert_eq!((s.dim, s.items, s.coverage), (Some(2), Some(1), Some(1.0)));
        assert_eq!(&*verdict.text, "1");
        let first = verdict.first_position.as_ref().expect("a distribution");
        assert_eq!((first.sampled.as_slice(), first.alternatives.len()), (&b"1"[..], 2));
        assert_eq!((verdict.usage.input, verdict.usage.output), (None, None), "no tokens are made up");
    }
    assert!(near(raw("LENGTH", &floats([3.0, 4.0])).signals.norm, 5.0));
}

#[test]
fn a_class_has_the_best_name_that_the_answer_gives() {
    let named =
        |outputs: &str| json(Wire::KserveInfer, &format!(r#"{{"outputs":[{outputs}]}}"#)).text.to_string();
    let p = r#"{"name":"p","datatype":"FP32","shape":[1,2],"data":[0.2,0.8]}"#;
    assert_eq!(named(p), "1");
    assert_eq!(
        named(&format!(r#"{p},{{"name":"l","datatype":"BYTES","shape":[1],"data":["spam"]}}"#)),
        "spam"
    );
    assert_eq!(
        named(&format!(r#"{p},{{"name":"l","datatype":"BYTES","shape":[1,2],"data":["ham","spam"]}}"#)),
        "spam"
    );
    assert_eq!(named(r#"{"name":"predict","datatype":"INT64","shape":[1],"data":[7]}"#), "7");
    assert_eq!(
        named(r#"{"name":"o","datatype":"BYTES","shape":[1,1],"data":["0.9:3:time: noon"]}"#),
        "time: noon"
    );
}

#[test]
fn a_number_that_is_none_is_a_hard_fault() {
    for verdict in [
        raw("LENGTH", &floats([f32::NAN, 0.5])),
        raw("LENGTH", &floats([f32::NEG_INFINITY, 0.5])),
        json(
            Wire::KserveInfer,
            r#"{"outputs":[{"name":"y","datatype":"FP32","shape":[2],"data":[1.0,NaN]}]}"#,
        ),
        json(Wire::TfPredict, r#"{"predictions":[[1.0,null]]}"#),
    ] {
        assert!(verdict.flags.to_string().contains("tensor_nonfinite"), "{:?}", verdict.flags);
        assert_eq!(verdict.class, Some(FaultClass::QualityHard));
        assert_eq!(verdict.signals.class_entropy, None);
    }
}

#[test]
fn a_length_of_the_header_that_is_wrong_breaks_the_answer() {
    let good = floats([0.1, 0.9]);
    assert_eq!(raw("LENGTH", &good).flags.to_string(), "");
    let n = document().len();
    for wrong in [n - 1, n + 1, n + 8, n + 9, 0, 3].map(|n| n.to_string()).iter().chain(&[
        "x".into(),
        "-4".into(),
        String::new(),
    ]) {
        let verdict = raw(wrong, &good);
        assert_eq!(verdict.flags.to_string(), "malformed_json", "{wrong}");
        assert_eq!(verdict.class, Some(FaultClass::Upstream), "{wrong}");
    }
    let unannounced = [document().as_bytes(), &good].concat();
    let verdict = judge(Wire::KserveInfer, head(None), &unannounced, &[], End::Complete);
    assert_eq!(
        (verdict.flags.to_string().as_str(), verdict.class),
        ("malformed_json", Some(FaultClass::Upstream))
    );
    assert!(near(verdict.signals.confidence, 0.9), "and what is there is read all the same");
}

#[test]
fn raw_tensors_that_are_shorter_or_longer_than_declared_are_told() {
    let flags = |tail: &[u8]| raw("LENGTH", tail).flags.to_string();
    assert_eq!(flags(&floats([0.1, 0.9])[..7]), "body_truncated");
    assert_eq!(flags(b""), "body_truncated");
    assert_eq!(flags(&[0; 9]), "malformed_json");
}

#[test]
fn what_broke_off_is_judged_by_that_and_a_caller_that_left_by_nothing() {
    let body = [document().as_bytes(), &floats([0.1, 0.9])].concat();
    let n = document().len().to_string();
    for cut in [4, document().len(), body.len() - 3] {
        let broken = judge(Wire::KserveInfer, head(Some(&n)), &body[..cut], &[], End::Broken);
        assert_eq!(broken.flags.to_string(), "body_truncated", "{cut}");
        assert_eq!(broken.class, Some(FaultClass::Upstream));
        let gone = judge(Wire::KserveInfer, head(Some(&n)), &body[..cut], &[], End::ClientGone);
        assert_eq!((gone.flags.to_string().as_str(), gone.class), ("", Some(FaultClass::Client)), "{cut}");
    }
}

#[test]
fn errors_nothing_and_something_else_have_their_flags() {
    let flags = |wire, body: &str| json(wire, body).flags.to_string();
    for wire in [Wire::KserveInfer, Wire::TfPredict] {
        assert_eq!(flags(wire, r#"{"error":"model is not ready"}"#), "upstream_error_in_200");
        assert_eq!(flags(wire, ""), "empty_body");
        assert_eq!(flags(wire, "<html></html>"), "non_json_body");
        assert_eq!(flags(wire, "{}"), "empty_output");
        let refused = judge(
            wire,
            Head { status: 400, ..Head::default() },
            br#"{"error":"unexpected shape"}"#,
            &[],
            End::Complete,
        );
        assert_eq!((refused.flags.to_string().as_str(), refused.class), ("", Some(FaultClass::Client)));
        assert_eq!(refused.error.as_deref(), Some("unexpected shape"));
    }
    let white = judge(Wire::KserveInfer, head(Some("9")), b"  \n ", &[], End::Complete);
    assert_eq!(white.flags.to_string(), "empty_body");
}

#[test]
fn raw_scores_are_recognised_and_say_so() {
    let of = |data: &str| json(Wire::TfPredict, &format!(r#"{{"predictions":[{data}]}}"#)).signals;
    assert_eq!(of("[4.0,-1.0,0.5]").class_output, Some(ClassOutput::Logits));
    assert_eq!(of("[0.9,0.05,0.05]").class_output, Some(ClassOutput::Probabilities));
    assert_eq!(of("[0.9,0.8,0.05]").class_output, Some(ClassOutput::Independent));
    assert!(of("[4.0,-1.0,0.5]").confidence.is_some_and(|c| c > 0.9 && c <= 1.0));
}

#[test]
fn a_huge_answer_takes_bounded_memory_and_is_partial() {
    let n = 3 << 20;
    let document = format!(
        r#"{{"outputs":[{{"name":"mask","datatype":"FP32","shape":[{n}],"parameters":{{"binary_data_size":{}}}}}]}}"#,
        4 * n
    );
    let ask = Arc::new(Ask::parse(Wire::KserveInfer, b"{}"));
    let mut judge = Judge::new(ask, head(Some(&document.len().to_string())));
    let _ = judge.push(1, document.as_bytes());
    let zeros = vec![0_u8; 4 * n];
    for piece in zeros.chunks(64 << 10) {
        let _ = judge.push(1, piece);
    }
    let verdict = judge.finish(2, End::Complete);
    assert_eq!((verdict.flags.to_string().as_str(), verdict.partial), ("", true));
}

fn near_kserve() -> impl Strategy<Value = Vec<u8>> {
    let tensor = (
        prop::sample::select(vec![
            "FP32", "FP16", "BF16", "FP64", "INT8", "UINT64", "BOOL", "BYTES", "FP7", "",
        ]),
        prop_oneof![
            Just("[1,2]"),
            Just("[2]"),
            Just("[]"),
            Just("[-1]"),
            Just("[1e30,1e30]"),
            Just("7"),
            Just("[2,1,2]")
        ],
        prop_oneof![
            (0_i64..20).prop_map(|n| format!(r#""parameters":{{"binary_data_size":{n}}}"#)),
            Just(r#""parameters":{"binary_data_size":-1}"#.to_owned()),
            Just(r#""parameters":{"binary_data_size":99999999999999999999}"#.to_owned()),
            Just(r#""data":[0.25,0.75]"#.to_owned()),
            Just(r#""data":[[0.25],[NaN,null]]"#.to_owned()),
            Just(r#""data":["0.9:1:a","0.1:0"]"#.to_owned()),
            Just(r#""data":{"b64":"AA"}"#.to_owned()),
            Just(r#""x":0"#.to_owned()),
        ],
    )
        .prop_map(|(datatype, shape, rest)| {
            format!(r#"{{"name":"logits","datatype":"{datatype}","shape":{shape},{rest}}}"#)
        });
    let document = prop::collection::vec(tensor, 0..4)
        .prop_map(|t| format!(r#"{{"model_name":"m","outputs":[{}]}}"#, t.join(",")).into_bytes());
    let wild = prop::collection::vec(any::<u8>(), 0..60);
    let predictions = prop::sample::select(vec![
        r#"{"predictions":[[0.1,0.9],[0.5,"x"]]}"#,
        r#"{"predictions":[{"a":[1],"b":"c"},7,{"a":null}]}"#,
        r#"{"outputs":{"a":[[],[1]],"b":{"b64":"A"}}}"#,
        r#"{"predictions":[[[[["#,
        r#"{"predictions":3}"#,
    ]);
    (prop_oneof![document, predictions.prop_map(|p| p.as_bytes().to_vec())], wild)
        .prop_map(|(d, w)| [d, w].concat())
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_no_cut_changes_the_verdict(
        body in near_kserve(),
        shift in -3_i64..4,
        header in prop_oneof![3 => Just(None), 1 => Just(Some("")), 1 => Just(Some("1e3")), 1 => Just(Some("18446744073709551616"))],
        plain: bool,
        wire in prop_oneof![Just(Wire::KserveInfer), Just(Wire::TfPredict)],
        end in prop_oneof![Just(End::Complete), Just(End::Broken), Just(End::ClientGone)],
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let length = body.iter().rposition(|b| *b == b'}').map_or(0, |i| i as i64 + 1) + shift;
        let declared = (!plain).then(|| header.map_or_else(|| length.to_string(), str::to_owned));
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(body.len() + 1)).collect();
        cuts.sort_unstable();
        let whole = judge(wire, head(declared.as_deref()), &body, &[], end);
        let pieces = judge(wire, head(declared.as_deref()), &body, &cuts, end);
        prop_assert_eq!(format!("{whole:?}"), format!("{pieces:?}"));
        let s = &whole.signals;
        for value in [s.class_entropy, s.class_entropy_ratio, s.confidence, s.margin, s.norm] {
            prop_assert!(value.is_none_or(f64::is_finite));
        }
        prop_assert!(s.class_entropy_ratio.is_none_or(|r| (0.0..=1.0 + 1e-9).contains(&r)));
        prop_assert!(s.confidence.is_none_or(|c| (0.0..=1.0 + 1e-9).contains(&c)));
    }
}
