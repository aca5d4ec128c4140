use proptest::prelude::*;

use super::*;

mod quick;

fn same(ours: Value<'_>, theirs: &serde_json::Value) -> bool {
    match theirs {
        serde_json::Value::Null => ours.is_null(),
        serde_json::Value::Bool(b) => ours.boolean() == Some(*b),
        serde_json::Value::Number(n) => ours.number().map(f64::to_bits) == n.as_f64().map(f64::to_bits),
        serde_json::Value::String(s) => ours.string().as_deref() == Some(s),
        serde_json::Value::Array(items)
            if items.iter().all(serde_json::Value::is_number) && !items.is_empty() =>
        {
            let numbers: Vec<_> = ours.numbers().map(|n| n.map(f64::to_bits)).collect();
            numbers == items.iter().map(|n| n.as_f64().map(f64::to_bits)).collect::<Vec<_>>()
        }
        serde_json::Value::Array(items) => {
            let all: Vec<_> = ours.items().collect();
            all.len() == items.len() && all.iter().zip(items).all(|(a, b)| same(*a, b))
        }
        serde_json::Value::Object(map) => {
            ours.members().count() == map.len()
                && map.iter().all(|(k, v)| ours.get(k).is_some_and(|o| same(o, v)))
        }
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(|f| serde_json::json!(f)),
        ".*".prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
            prop::collection::hash_map(".{0,8}", inner, 0..6)
                .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn standard_json_reads_as_a_strict_reader_has_it(value in any_json(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
        let text = text.expect("serialises");
        let mut doc = Doc::default();
        let (root, odd) = doc.parse(text.as_bytes());
        prop_assert_eq!(odd, Oddity::default());
        prop_assert!(same(root.expect("a value"), &value));
    }

    #[test]
    fn arrays_of_digits_and_commas_are_told_as_a_strict_reader_tells_them(list in "[0-9,]{0,40}", odd in r"[ -\\^-~]{0,2}") {
        for list in [list.clone(), format!("{list}{odd}"), list.replace(",,", ",").replace(",0", ",1")] {
            let text = format!(" [{list}] and what follows, of some length");
            let strict = !list.is_empty() && serde_json::from_str::<Vec<serde_json::Number>>(&text[1..list.len() + 3]).is_ok();
            let plain = list.bytes().all(|b| b.is_ascii_digit() || b == b',');
            prop_assert_eq!(lex::whole_numbers(text.as_bytes(), 1), (strict && plain).then_some(list.len() + 3));
        }
    }

    #[test]
    fn what_a_strict_reader_refuses_is_called_odd(mut text in any_json().prop_map(|v| v.to_string().into_bytes()),
                                                  at: prop::sample::Index, byte: u8) {
        let at = at.index(text.len());
        text[at] = byte;
        let mut doc = Doc::default();
        let (root, odd) = doc.parse(&text);
        let strict = serde_json::from_slice::<serde_json::Value>(&text);
        if odd.is_standard() && !odd.invalid_utf8 && root.is_some_and(|r| !has_lone(r)) {
            // Only the range of numbers differs: 1e999 is standard.
            prop_assert!(strict.is_ok() || strict.is_err_and(|e| e.to_string().contains("out of range")));
        } else {
            prop_assert!(strict.is_err());
        }
    }

    #[test]
    fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut doc = Doc::default();
        walk(doc.parse(&text).0);
    }

    #[test]
    fn no_json_like_bytes_make_it_panic(text in "[\\[\\]{}\",:\\\\ud8dNaN0-9.eE+\\- tfnul\n]{0,60}") {
        let mut doc = Doc::default();
        walk(doc.parse(text.as_bytes()).0);
    }
}

fn has_lone(value: Value<'_>) -> bool {
    value.has_lone_surrogate()
        || value.items().any(has_lone)
        || value.members().any(|(k, v)| k.has_lone_surrogate() || has_lone(v))
}

fn walk(value: Option<Value<'_>>) {
    let Some(value) = value else { return };
    let _ = (
        value.string(),
        value.number(),
        value.count(),
        value.get("a"),
        value.span(),
        value.numbers().count(),
    );
    value.items().for_each(|v| walk(Some(v)));
    value.members().for_each(|(k, v)| {
        walk(Some(k));
        walk(Some(v));
    });
}

fn read(text: &str, test: impl FnOnce(Option<Value<'_>>, Oddity)) {
    let mut doc = Doc::default();
    let (root, odd) = doc.parse(text.as_bytes());
    test(root, odd);
}

#[test]
fn nonfinite_tokens_are_numbers_and_nonstandard() {
    read(r#"{"a":NaN,"b":[-Infinity,1],"c":-inf,"d":Infinity,"e":2}"#, |root, odd| {
        let root = root.expect("root");
        assert!(odd.nonstandard && !odd.broken);
        assert!(root.get("a").and_then(|v| v.number()).is_some_and(f64::is_nan));
        let b: Vec<_> = root.get("b").map(|v| v.numbers().collect()).unwrap_or_default();
        assert_eq!(b, [Some(f64::NEG_INFINITY), Some(1.0)]);
        assert_eq!(root.get("c").and_then(|v| v.number()), Some(f64::NEG_INFINITY));
        assert_eq!(root.get("d").and_then(|v| v.number()), Some(f64::INFINITY));
        assert_eq!(root.get("e").and_then(|v| v.count()), Some(2));
    });
}

#[test]
fn a_huge_number_overflows_and_stays_standard() {
    read(r#"[-1e999, 1e999]"#, |root, odd| {
        let all: Vec<_> = root.map(|r| r.numbers().collect()).unwrap_or_default();
        assert_eq!(all, [Some(f64::NEG_INFINITY), Some(f64::INFINITY)]);
        assert!(odd.is_standard());
    });
}

#[test]
fn a_body_that_stops_keeps_what_came() {
    read(r#"{"choices":[{"message":{"content":"Hel"#, |root, odd| {
        assert!(odd.broken);
        let choice = root.and_then(|r| r.get("choices")).and_then(|c| c.items().next());
        let text = choice.and_then(|c| c.path(&["message", "content"])).and_then(|t| t.string());
        assert_eq!(text.as_deref(), Some("Hel"));
    });
}

#[test]
fn half_a_surrogate_pair_is_told_and_whole_ones_join() {
    read(r#"["\ud83d\ude00","\ud83d","\ude00 x"]"#, |root, odd| {
        assert!(odd.is_standard());
        let all: Vec<_> = root.map(|r| r.items().collect()).unwrap_or_default();
        assert_eq!(all[0].string().as_deref(), Some("😀"));
        assert!(!all[0].has_lone_surrogate() && all[1].has_lone_surrogate() && all[2].has_lone_surrogate());
        assert_eq!(all[2].string().as_deref(), Some("\u{fffd} x"));
    });
}

#[test]
fn invalid_utf8_is_read_lossily() {
    let mut doc = Doc::default();
    let (root, odd) = doc.parse(b"{\"a\":\"x\xff\"}");
    assert!(odd.invalid_utf8 && odd.is_standard());
    assert_eq!(root.and_then(|r| r.get("a")).and_then(|a| a.string()).as_deref(), Some("x\u{fffd}"));
}

#[test]
fn deep_nesting_is_bounded() {
    read(&"[".repeat(100_000), |_, odd| assert!(odd.cut));
    read(&"{\"a\":".repeat(100_000), |_, odd| assert!(odd.cut));
}

#[test]
fn the_last_of_equal_names_counts_and_trailing_bytes_are_odd() {
    read(r#"{"a":1,"a":2} x"#, |root, odd| {
        assert_eq!(root.and_then(|r| r.get("a")).and_then(|a| a.count()), Some(2));
        assert!(odd.nonstandard);
    });
}

#[test]
fn strings_of_every_length_end_where_they_end() {
    for length in 0..40 {
        for stop in ["\"", "\\n\"", "\u{1}\"", ""] {
            for filler in ["a", "\u{e9}", "\u{7f}", " ", "#", "["] {
                let text = format!("\"{}{stop}", filler.repeat(length));
                read(&text, |root, odd| {
                    assert_eq!(
                        (odd.broken, odd.nonstandard),
                        (stop.is_empty(), stop.starts_with('\u{1}')),
                        "{text:?}"
                    );
                    let said = root.and_then(|r| r.string().map(|s| s.chars().count()));
                    assert_eq!(said, Some(length + usize::from(stop.len() > 1)), "{text:?}");
                });
            }
        }
    }
}

#[test]
fn a_rough_number_is_the_number_but_for_its_last_bit() {
    let mut rng = fastrand::Rng::with_seed(4);
    for _ in 0..20_000 {
        let number = -f64::from(rng.f32()) * 10f64.powi(rng.i32(-3..3));
        read(&number.to_string(), |root, _| {
            let root = root.expect("a number");
            let (exact, rough) = (root.number().expect("exact"), root.rough_number().expect("rough"));
            assert!(exact.to_bits().abs_diff(rough.to_bits()) <= 1, "{exact:e} {rough:e}");
        });
    }
    for (text, number) in [("-9999.0", -9999.0), ("0", 0.0), ("1e-3", 1e-3), ("-0.5", -0.5)] {
        read(text, |root, _| assert_eq!(root.and_then(|r| r.rough_number()), Some(number)));
    }
    read("NaN", |root, _| assert!(root.and_then(|r| r.rough_number()).is_some_and(f64::is_nan)));
}

#[test]
fn numbers_of_every_length_and_form_are_read_as_a_strict_reader_reads_them() {
    let mut rng = fastrand::Rng::with_seed(9);
    for _ in 0..20_000 {
        let mut digits = |most: usize| -> String {
            (0..rng.usize(0..=most)).map(|_| char::from(b'0' + rng.u8(0..10))).collect()
        };
        let mut text = format!("{}{}", digits(3), digits(20));
        if text.len().is_multiple_of(2) {
            text = format!("{text}.{}", digits(20));
        }
        if text.len().is_multiple_of(3) {
            text = format!("-{text}");
        }
        for text in
            [text.clone(), format!("[{text}]"), format!("[1,{text},0]"), format!("[{{\"logprob\":{text}}}]")]
        {
            let padded = format!("{text}{:24}", ","); // room for what reads many bytes at once
            if let Some((number, end)) = number::rough(padded.as_bytes(), 0) {
                let exact = number::rough_token(&padded.as_bytes()[..end]).expect("a number");
                assert_eq!(number.to_bits(), exact.to_bits(), "{text}");
            }
            let strict = serde_json::from_str::<serde_json::Value>(&text);
            read(&text, |root, odd| {
                assert_eq!(odd.is_standard(), strict.is_ok(), "{text}");
                if let Ok(strict) = strict {
                    // serde_json rounds its own way; the standard library is exact.
                    let numbers = |v: &serde_json::Value| v.as_f64();
                    let ours = root.and_then(|r| r.number());
                    if let (Some(ours), Some(theirs)) = (ours, numbers(&strict)) {
                        assert!((ours - theirs).abs() <= theirs.abs() * 1e-15, "{text}: {ours:e}");
                        assert_eq!(Ok(ours), text.parse::<f64>(), "{text}");
                    }
                }
            });
        }
    }
    for odd in ["[01]", "[1,]", "[,1]", "[1 2]", "[1,02]", "[1", "[1,", "[", "[1x]"] {
        read(odd, |_, oddity| assert!(!oddity.is_standard(), "{odd}"));
    }
}
