//! Writes the target's model name into a request without touching any other byte.
//!
//! A body that is parsed and written again would change numbers, key order and spacing, and with them
//! provider caches and signatures. So only the bytes of the top-level `model` value are replaced, each
//! time it stands there (of doubled keys servers take now the first, now the last). A body that is no
//! JSON object stays as it is: the upstream may know better.

use bytes::{Bytes, BytesMut};

use super::members::{members, skip_space};

/// The body with `model` as the value of its top-level `model` member; added where there is none.
#[must_use]
pub(super) fn with_model(body: &Bytes, model: &str) -> Bytes {
    let opening = skip_space(body, 0);
    let (Some(members), Ok(value)) = (members(body, opening), serde_json::to_vec(model)) else {
        return body.clone();
    };
    let named: Vec<_> = members.iter().filter(|m| m.is(body, "model")).map(|m| m.value.clone()).collect();
    if !named.is_empty() && named.iter().all(|span| body[span.clone()] == value[..]) {
        return body.clone();
    }
    let mut out = BytesMut::with_capacity(body.len() + value.len() + 16);
    let mut done = 0;
    if named.is_empty() {
        done = opening + 1;
        out.extend_from_slice(&body[..done]);
        out.extend_from_slice(b"\"model\":");
        out.extend_from_slice(&value);
        out.extend_from_slice(if members.is_empty() { b"" } else { b"," });
    }
    for span in named {
        out.extend_from_slice(&body[done..span.start]);
        out.extend_from_slice(&value);
        done = span.end;
    }
    out.extend_from_slice(&body[done..]);
    out.freeze()
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
