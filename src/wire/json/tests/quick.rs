//! What is taken in one go is what comes step by step: the same oddities, values and places, whatever the document.

use super::*;
use crate::wire::logprobs;

/// Where two readings of a document differ, if they do.
fn difference(quick: Value<'_>, steps: Value<'_>) -> Option<String> {
    let differ = || Some(format!("{:?} {:?}", quick.place(), steps.place()));
    if quick.span() != steps.span() || quick.is_array() != steps.is_array() {
        return differ();
    }
    if let Some(entries) = quick.alternatives() {
        let all: Vec<_> = steps.items().map(entry).collect();
        let bits = |e: &Entry| (e.token, e.bytes, e.logprob.value().to_bits());
        return if entries.iter().map(bits).eq(all.iter().map(bits)) { None } else { differ() };
    }
    let node = |v: Value<'_>| v.doc.nodes[v.at as usize];
    let members = |v: Value<'_>| v.members().map(|(name, _)| name.place()).collect::<Vec<_>>();
    if node(quick).kind != node(steps).kind
        || members(quick) != members(steps)
        || quick.items().count() != steps.items().count()
    {
        return differ();
    }
    values(quick).zip(values(steps)).find_map(|(a, b)| difference(a, b))
}

fn values(value: Value<'_>) -> impl Iterator<Item = Value<'_>> {
    value.members().map(|(_, value)| value).chain(value.items())
}

fn entry(value: Value<'_>) -> Entry {
    let mut entry = Entry::EMPTY;
    for (name, value) in value.members() {
        match name.span() {
            b"token" if value.is_string() => entry.token = value.place(),
            b"bytes" if value.is_array() => entry.bytes = value.place(),
            b"logprob" => entry.logprob = value.rough_number().unwrap_or(f64::NAN).into(),
            _ => {}
        }
    }
    entry
}

/// Everything that logprobs say, in words.
fn said(root: Value<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    logprobs::read(root, &mut |position| {
        let all = position.alternatives.iter().map(|a| (a.token.to_bytes(), a.logprob.to_bits()));
        let own = (position.token.to_bytes(), position.logprob.to_bits(), position.offset);
        let is: Vec<_> = position.alternatives.iter().map(|a| a.token.is(&position.token)).collect();
        lines.push(format!("{own:?} {:?} {is:?}", all.collect::<Vec<_>>()));
    });
    lines
}

/// Reads a document both ways; whether alternatives were taken in one go.
fn compare(text: &[u8]) -> bool {
    let (mut quick, mut steps) = (Doc::default(), Doc::default());
    let (a, odd) = quick.read::<true>(text);
    let (b, plainly_odd) = steps.read::<false>(text);
    let text = || String::from_utf8_lossy(&text[..text.len().min(2000)]);
    assert_eq!(odd, plainly_odd, "{}", text());
    assert_eq!(a.is_some(), b.is_some(), "{}", text());
    let (Some(a), Some(b)) = (a, b) else { return false };
    assert_eq!(difference(a, b), None, "{}", text());
    assert_eq!(said(a), said(b), "{}", text());
    quick.nodes.iter().any(|n| n.kind == Kind::Alternatives)
}

/// What a number may look like, rightly and wrongly.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (-40.0..0.0).prop_map(|l: f64| l.to_string()),
        4 => (-40.0_f32..0.0).prop_map(|l| f64::from(l).to_string()),
        1 => any::<f64>().prop_map(|l| serde_json::json!(l).to_string()),
        2 => "-?[0-9]{1,3}(\\.[0-9]{1,22})?([eE][-+]?[0-9]{1,3})?",
        1 => "-?[0-9]{0,9}\\.?[0-9]{0,9}",
        1 => prop::sample::select(vec!["null", "NaN", "-Infinity", "-9999.0", "0", "-0.0", "-1.2e-07", "01", "+1", "\"-1\"", "{}", "[1]", "true", "1e999"])
            .prop_map(str::to_owned),
    ]
}

fn quoted() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ -~]{0,20}".prop_map(|s: String| serde_json::json!(s).to_string()),
        2 => ".{0,12}".prop_map(|s: String| serde_json::json!(s).to_string()),
        2 => r#""(\\n|\\"|\\\\|\\u00e9|\\ud83d|\\ud83d\\ude00|\\x|\\|a|é){0,5}""#,
        1 => prop::sample::select(vec!["null", "7", "\"", "\"\u{1}\"", "[\"a\"]"]).prop_map(str::to_owned),
    ]
}

fn array() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::collection::vec(any::<u8>(), 0..24).prop_map(|b| serde_json::json!(b).to_string()),
        2 => r"\[ ?[0-9]{1,3}( ?, ?[0-9]{1,3}){0,9} ?\]",
        1 => r"\[[0-9,]{0,20}\]?",
        1 => prop::sample::select(vec!["null", "[ ]", "[1.5,2]", "[[1],2]", "[\"a\"]", "[1,null]", "[300]", "[-1]", "\"ab\""])
            .prop_map(str::to_owned),
    ]
}

/// Members of an alternative in any order, doubled and missing and with others among them.
fn alternative() -> impl Strategy<Value = String> {
    let usual = (quoted(), number(), array()).prop_map(|(token, logprob, bytes)| {
        vec![format!("\"token\":{token}"), format!("\"logprob\":{logprob}"), format!("\"bytes\":{bytes}")]
    });
    let other = prop_oneof![
        Just("\"id\":7".to_owned()),
        Just("\"id\":\"a\"".to_owned()),
        Just("\"prob\":0.5".to_owned()),
        Just("\"tok\\u0065n\":\"a\"".to_owned()),
        Just("\"content\":\"c\"".to_owned()),
        Just("\"token\" : \"b\"".to_owned()),
        quoted().prop_map(|t| format!("\"token\": {t}")),
        number().prop_map(|n| format!("\"logprob\": {n}")),
    ];
    let others = prop::collection::vec(other, 0..2);
    let drop = prop_oneof![5 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    let blank = prop_oneof![5 => Just(""), 1 => Just(" "), 1 => Just("\n\t")];
    (usual, others, drop, any::<u64>(), blank).prop_map(|(mut members, others, drop, seed, blank)| {
        if let Some(drop) = drop {
            members.remove(drop.index(members.len()));
        }
        if seed % 8 == 0 {
            members.extend(others);
        }
        if seed % 3 == 0 {
            fastrand::Rng::with_seed(seed).shuffle(&mut members);
        }
        format!("{blank}{{{blank}{}{blank}}}{blank}", members.join(&format!("{blank},{blank}")))
    })
}

fn document() -> impl Strategy<Value = String> {
    let list = prop::collection::vec(alternative(), 0..6).prop_map(|all| format!("[{}]", all.join(",")));
    let position = (quoted(), number(), list).prop_map(|(token, logprob, top)| {
        format!("{{\"token\":{token},\"logprob\":{logprob},\"bytes\":null,\"top_logprobs\":{top}}}")
    });
    let content = prop::collection::vec(position, 0..4).prop_map(|all| all.join(","));
    (content, 0..8_u8).prop_map(|(content, form)| match form {
        0 => format!("[{content}]"),
        1 => format!("{{\"tokens\":[\"a\"],\"token_logprobs\":[-1],\"top_logprobs\":[{content}]}}"),
        2 => format!("{{\"a\":[\"top_logprobs\",[{content}]],\"content\":[{content}] }} "),
        _ => format!("{{\"content\":[{content}],\"refusal\":null,\"z\":[true,{{}}]}}"),
    })
}

/// A document with a byte too many, too few or another, here and there, or without its end.
fn mutated(text: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<u8>> {
    const ODD: &[u8] = b"\"\\{}[],:0-.e \n\x01\xff\xc3nN1a";
    let change = (any::<prop::sample::Index>(), 0..4_u8, prop::sample::select(ODD));
    (text, prop::collection::vec(change, 0..3)).prop_map(|(text, changes)| {
        let mut text = text.into_bytes();
        for (at, how, byte) in changes {
            let at = at.index(text.len() + 1);
            match how {
                0 => text.insert(at, byte),
                1 => text.truncate(at.max(1)),
                _ if at == text.len() => {}
                2 => text[at] = byte,
                _ => drop(text.remove(at)),
            }
        }
        text
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn logprobs_read_in_one_go_are_those_read_step_by_step(text in document()) {
        compare(text.as_bytes());
    }

    #[test]
    fn so_are_spoilt_ones(text in mutated(document())) {
        compare(&text);
    }

    #[test]
    fn so_is_any_document(text in mutated(any_json().prop_map(|v| v.to_string())), name in "(top_logprobs|a)") {
        compare(&text);
        let named = [format!("{{\"{name}\":").as_bytes(), &text, b"}"].concat();
        compare(&named);
    }

    #[test]
    fn so_are_json_like_bytes(text in "[\\[\\]{}\",:\\\\ud8dNaN0-9.eE+\\- tfnul\n]{0,60}") {
        compare(text.as_bytes());
        compare(format!("{{\"top_logprobs\":[{{\"token\":\"a\",\"logprob\":-1,\"bytes\":[97]}},{text}]}}").as_bytes());
    }
}

const USUAL: &str = r#"{"token":" \"a\"","logprob":-0.137451200,"bytes":[32,34,97,34]}"#;

#[test]
fn the_usual_forms_are_taken_in_one_go() {
    for one in [
        USUAL,
        r#"{"bytes":[97],"logprob":-9999.0,"token":"a"}"#,
        r#"{"id":1,"token":"a","bytes":[97],"logprob":-1.2e-07}"#,
        r#"{"token": "\n", "logprob": null, "bytes": null}"#,
        r#"{"token":"","logprob":0.0,"bytes":[]}"#,
        "{ \"token\": \"a\",\n  \"logprob\": -1,\n  \"bytes\": [ 97 ] }",
    ] {
        let list =
            format!("{{\"content\":[{{\"token\":\"a\",\"top_logprobs\":[{one},{one}, {one}]}}]}} {:64}", "");
        assert!(compare(list.as_bytes()), "{one}");
        let object = format!("{{\"top_logprobs\":[{{\"logprob\":-1}},{{\"id\":-2}}],\"x\":[{one}]}}");
        assert!(!compare(object.as_bytes()), "objects of logprobs by token, and lists of another name");
    }
}

#[test]
fn the_longest_forms_fit_and_longer_ones_are_read_too() {
    for token in [15, 16, 17, 30, 31, 32, 33, 70] {
        for bytes in [1, 15, 16, 17, 21, 22, 32, 40] {
            for logprob in
                ["-0.1", "-12.345678901234567", "-12.34567890123456789", "-12.345678901234567890123"]
            {
                let (token, bytes) = ("x".repeat(token), vec!["49"; bytes].join(","));
                for one in [
                    format!(r#"{{"token":"{token}","logprob":{logprob},"bytes":[{bytes}]}}"#),
                    format!(r#"{{"bytes":[{bytes}],"logprob":{logprob},"token":"{token}"}}"#),
                ] {
                    for behind in [0, 1, 40, 200] {
                        let text = format!("{{\"top_logprobs\":[{one},{one}]}}{:behind$}", "");
                        assert!(compare(text.as_bytes()), "{text}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_limits_are_the_same() {
    for depth in MAX_DEPTH - 6..MAX_DEPTH + 3 {
        for list in [USUAL, "1", "\"a\"", "true"] {
            let text = format!(
                "{}{{\"top_logprobs\":[{list}],\"a\":[1],\"b\":{{\"c\":[[2]]}}}}",
                "{\"a\":".repeat(depth)
            );
            compare(text.as_bytes());
            compare(text.replace("{\"a\":", "[").as_bytes());
        }
    }
    // Three nodes each, and one each for what follows.
    for (alternatives, behind) in [(MAX_NODES / 3 + 5, 0), (MAX_NODES / 3 - 40, 200)] {
        let list = vec!["{\"token\":\"\"}"; alternatives].join(",");
        let text = format!("{{\"top_logprobs\":[{list}],\"a\":[{}]}}", "true,".repeat(behind));
        assert_eq!(compare(text.as_bytes()), behind > 0);
    }
}
