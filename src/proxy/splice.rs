//! Writes the target's model name into a request without touching any other byte.
//!
//! A body that is parsed and written again would change numbers, key order and spacing, and with them
//! provider caches and signatures. So only the bytes of the top-level `model` value are replaced, each
//! time it stands there (of doubled keys servers take now the first, now the last). A body that is no
//! JSON object stays as it is: the upstream may know better.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

/// The body with `model` as the value of its top-level `model` member; added where there is none.
#[must_use]
pub(super) fn with_model(body: &Bytes, model: &str) -> Bytes {
    let Some(found) = find(body) else { return body.clone() };
    let Ok(value) = serde_json::to_vec(model) else { return body.clone() };
    if !found.values.is_empty() && found.values.iter().all(|span| body[span.clone()] == value[..]) {
        return body.clone();
    }
    let mut out = BytesMut::with_capacity(body.len() + value.len() + 16);
    let mut done = 0;
    if found.values.is_empty() {
        out.extend_from_slice(&body[..found.inside]);
        out.extend_from_slice(b"\"model\":");
        out.extend_from_slice(&value);
        out.extend_from_slice(if found.is_empty { b"" } else { b"," });
        done = found.inside;
    }
    for span in &found.values {
        out.extend_from_slice(&body[done..span.start]);
        out.extend_from_slice(&value);
        done = span.end;
    }
    out.extend_from_slice(&body[done..]);
    out.freeze()
}

struct Found {
    /// Just behind the opening brace.
    inside: usize,
    is_empty: bool,
    values: Vec<Range<usize>>,
}

/// Walks the top level only. `None` for what is no complete JSON object.
fn find(body: &[u8]) -> Option<Found> {
    let mut at = skip_space(body, 0);
    if body.get(at) != Some(&b'{') {
        return None;
    }
    at += 1;
    let mut found = Found { inside: at, is_empty: true, values: Vec::new() };
    at = skip_space(body, at);
    if body.get(at) == Some(&b'}') {
        return Some(found);
    }
    found.is_empty = false;
    loop {
        let key = skip_string(body, at)?;
        let is_model = is_model(&body[at..key]);
        at = skip_space(body, key);
        if body.get(at) != Some(&b':') {
            return None;
        }
        let start = skip_space(body, at + 1);
        let end = skip_value(body, start)?;
        if is_model {
            found.values.push(start..end);
        }
        at = skip_space(body, end);
        match body.get(at)? {
            b',' => at = skip_space(body, at + 1),
            b'}' => return Some(found),
            _ => return None,
        }
    }
}

fn is_model(quoted: &[u8]) -> bool {
    quoted == b"\"model\""
        || (quoted.contains(&b'\\')
            && serde_json::from_slice::<String>(quoted).is_ok_and(|key| key == "model"))
}

pub(super) fn skip_space(body: &[u8], mut at: usize) -> usize {
    while matches!(body.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

/// From the opening quote to just behind the closing one.
pub(super) fn skip_string(body: &[u8], at: usize) -> Option<usize> {
    if body.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += body.get(at..)?.iter().position(|b| matches!(b, b'"' | b'\\'))?;
        if body[at] == b'"' {
            return Some(at + 1);
        }
        at += 2; // a backslash and what it escapes
    }
}

pub(super) fn skip_value(body: &[u8], at: usize) -> Option<usize> {
    match body.get(at)? {
        b'"' => skip_string(body, at),
        b'{' | b'[' => {
            let mut depth = 0usize;
            let mut at = at;
            loop {
                match body.get(at)? {
                    b'"' => {
                        at = skip_string(body, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let rest = &body[at..];
            let length = rest.iter().position(|b| b",}] \t\r\n".contains(b))?;
            (length > 0).then_some(at + length)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spliced(body: &str) -> String {
        let out = with_model(&Bytes::copy_from_slice(body.as_bytes()), "new");
        String::from_utf8(out.to_vec()).expect("text")
    }

    #[test]
    fn only_the_models_own_bytes_change() {
        assert_eq!(spliced(r#"{"model":"old","n":1.0}"#), r#"{"model":"new","n":1.0}"#);
        assert_eq!(
            spliced("{ \"a\" : [ {\"model\":\"x\"} ], \"model\" :\t\"o\\\"ld\" , \"z\": 1e5 }"),
            "{ \"a\" : [ {\"model\":\"x\"} ], \"model\" :\t\"new\" , \"z\": 1e5 }"
        );
        assert_eq!(
            spliced(r#"{"text":"\"model\":\"x\"","model":null}"#),
            r#"{"text":"\"model\":\"x\"","model":"new"}"#
        );
        assert_eq!(spliced(r#"{"model":"a","x":{},"model":"b"}"#), r#"{"model":"new","x":{},"model":"new"}"#);
        assert_eq!(spliced(r#"{"mod\u0065l":"a"}"#), r#"{"mod\u0065l":"new"}"#);
    }

    #[test]
    fn a_missing_model_is_added_and_odd_bodies_stay() {
        assert_eq!(spliced(r#"{"n":1}"#), r#"{"model":"new","n":1}"#);
        assert_eq!(spliced(" { } "), " {\"model\":\"new\" } ");
        for odd in [
            "",
            "[]",
            "{",
            "{\"model\"",
            "{\"model\":",
            "{\"model\":\"a\"",
            "{model:1}",
            "{\"a\":1 \"b\":2}",
            "\u{feff}{}",
        ] {
            assert_eq!(spliced(odd), odd);
        }
    }

    proptest! {
        #[test]
        fn any_object_keeps_all_but_its_model(
            before in "[a-z\"\\\\{}\\[\\],:\u{e9}]{0,12}",
            numbers in proptest::collection::vec(any::<i64>(), 0..4),
            model in proptest::option::of("[a-z\"\\\\]{0,8}"),
        ) {
            let mut object = serde_json::json!({ "before": before, "list": numbers, "nested": {"model": before} });
            if let Some(model) = &model {
                object["model"] = model.as_str().into();
            }
            let text = object.to_string();
            let read: serde_json::Value = serde_json::from_str(&spliced(&text)).expect("still JSON");
            object["model"] = "new".into();
            prop_assert_eq!(read, object);
        }

        #[test]
        fn no_bytes_at_all_make_it_fail(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let _ = with_model(&Bytes::from(bytes), "new");
        }
    }
}
