//! Errors inside a body, whatever the HTTP status says.
//!
//! Gateways send 200 before their provider fails, so the class of a failure has to be told from the
//! body: a numeric code if there is one, else the words of type, code and message.

use super::Value;

/// Longest message kept, bytes.
const MAX_MESSAGE: usize = 512;

/// What kind of failure the body tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Too many requests or tokens; passes by itself.
    RateLimited,
    /// The money or quota is spent; does not pass by itself.
    Quota,
    /// No capacity at the moment.
    Overloaded,
    /// The provider's content filter.
    Filtered,
    /// The request itself is refused.
    Client,
    /// The server failed.
    Server,
}

/// An error found in a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Whose fault, as far as the body tells.
    pub kind: Kind,
    /// Numeric code, if there is one in the range of HTTP statuses.
    pub code: Option<u16>,
    /// The message, capped.
    pub message: String,
    /// How long to wait, if the body says so, milliseconds.
    pub retry_after_ms: Option<u64>,
}

impl Fault {
    /// Finds the error of a document that carries one. `answered` tells that the document also holds
    /// an answer: then only an explicit error member counts.
    #[must_use]
    pub fn find(root: Value<'_>, answered: bool) -> Option<Self> {
        if let Some(error) = root.field("error").filter(|e| is_error(*e, answered)) {
            return Some(Self::of(error, root));
        }
        if let Some(first) = root.field("errors").and_then(|e| e.items().next()) {
            return Some(Self::of(first, root));
        }
        if root.get("object").is_some_and(|o| o.is_key("error"))
            || root.get("type").is_some_and(|t| t.is_key("error"))
        {
            return Some(Self::of(root, root));
        }
        if answered {
            return None;
        }
        if let Some(base) =
            root.field("base_resp").filter(|b| b.field("status_code").is_some_and(|c| c.count() != Some(0)))
        {
            return Some(Self::of(base, root));
        }
        let message = ["message", "detail", "msg", "error_msg", "errmsg", "Message", "title"];
        let code =
            ["code", "status", "statusCode", "status_code", "error_code", "errcode", "__type", "success"];
        let has = |names: &[&str]| names.iter().any(|n| root.field(n).is_some());
        (root.field("detail").is_some() || (has(&message) && has(&code))).then(|| Self::of(root, root))
    }

    /// Reads an error member.
    #[must_use]
    pub fn of(error: Value<'_>, root: Value<'_>) -> Self {
        let words = |names: &[&str]| -> String {
            names.iter().filter_map(|n| error.field(n).and_then(|v| v.string())).collect::<Vec<_>>().join(" ")
        };
        let mut message =
            words(&["message", "detail", "msg", "error_msg", "errmsg", "status_msg", "title", "Message"]);
        if let Some(text) = error.string() {
            message = text.into_owned();
        } else if message.is_empty() {
            message = String::from_utf8_lossy(error.span()).into_owned();
        }
        let code = ["code", "status", "statusCode", "status_code", "http_code", "error_code"]
            .iter()
            .flat_map(|n| [error.field(n), root.field(n)])
            .flatten()
            .filter_map(|v| v.count())
            .find_map(|c| u16::try_from(c).ok().filter(|c| (400..600).contains(c)));
        let names = words(&["type", "code", "status", "__type", "reason"]).to_ascii_lowercase();
        let kind = classify(code, &names, &message.to_ascii_lowercase());
        let retry_after_ms = ["retry_after", "retryAfter", "retry_after_seconds"]
            .iter()
            .find_map(|n| error.field(n).or_else(|| root.field(n)).or_else(|| error.path(&["metadata", n])))
            .and_then(|v| v.number().or_else(|| v.string()?.trim().parse().ok()))
            .filter(|s| s.is_finite() && *s >= 0.0)
            .map(|s| (s * 1000.0) as u64);
        Self { kind, code, message: cap(message), retry_after_ms }
    }
}

/// `null`, `""`, `false` and `{}` beside an answer are how some servers say that there is no error.
fn is_error(error: Value<'_>, answered: bool) -> bool {
    let empty = error.boolean() == Some(false)
        || error.count() == Some(0)
        || error.string().is_some_and(|s| s.is_empty())
        || (answered && error.is_object() && error.members().next().is_none());
    !empty
}

fn classify(code: Option<u16>, names: &str, message: &str) -> Kind {
    let named = |words: &[&str]| words.iter().any(|w| names.contains(w));
    let said = |words: &[&str]| words.iter().any(|w| message.contains(w));
    if named(&["content_filter", "content_policy", "responsibleai", "data_inspection", "safety"]) {
        return Kind::Filtered;
    }
    if named(&["insufficient_quota", "billing", "quota_exceeded", "insufficient_balance", "credit"])
        || code == Some(402)
    {
        return Kind::Quota;
    }
    match code {
        Some(429) => return Kind::RateLimited,
        Some(503 | 529 | 498) => return Kind::Overloaded,
        Some(408 | 425) => return Kind::Server,
        Some(400..=499) => return Kind::Client,
        Some(_) => {}
        None => {
            if named(&["rate_limit", "ratelimit", "too_many_requests", "throttl", "resource_exhausted"])
                || said(&["rate limit", "too many requests"])
            {
                return Kind::RateLimited;
            }
        }
    }
    if named(&["overloaded", "unavailable", "capacity"])
        || said(&["overloaded", "at capacity", "no capacity"])
    {
        return Kind::Overloaded;
    }
    let client = [
        "invalid_request",
        "invalid_prompt",
        "invalid_image",
        "authentication",
        "permission",
        "not_found",
        "badrequest",
        "bad_request",
    ];
    if code.is_none()
        && (named(&client)
            || named(&["context_length", "invalid_api_key", "validation", "unsupported"])
            || said(&["context length", "not found", "invalid api key", "field required"]))
    {
        return Kind::Client;
    }
    Kind::Server
}

fn cap(mut message: String) -> String {
    if message.len() > MAX_MESSAGE {
        let end = (0..=MAX_MESSAGE).rev().find(|&i| message.is_char_boundary(i)).unwrap_or(0);
        message.truncate(end);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Doc;

    fn find(text: &str, answered: bool) -> Option<(Kind, Option<u16>)> {
        let mut doc = Doc::default();
        let root = doc.parse(text.as_bytes()).0?;
        Fault::find(root, answered).map(|f| (f.kind, f.code))
    }

    #[test]
    fn the_code_inside_decides_the_kind() {
        let all = [
            (r#"{"error":{"message":"Provider returned error","code":429}}"#, Kind::RateLimited),
            (r#"{"error":{"message":"x","code":"429"}}"#, Kind::RateLimited),
            (r#"{"error":{"message":"quota exceeded","type":"insufficient_quota"}}"#, Kind::Quota),
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                Kind::Overloaded,
            ),
            (r#"{"error":{"message":"overloaded","type":"overloaded_error","code":529}}"#, Kind::Overloaded),
            (r#"{"error":{"code":"content_filter","message":"blocked"}}"#, Kind::Filtered),
            (r#"{"object":"error","message":"bad","type":"BadRequestError","code":400}"#, Kind::Client),
            (r#"{"detail":"Not Found"}"#, Kind::Client),
            (r#"{"error":"model 'x' not found"}"#, Kind::Client),
            (r#"{"error":"engine died"}"#, Kind::Server),
            (r#"{"error":{"message":"engine died","type":"server_error","code":500}}"#, Kind::Server),
            (r#"{"base_resp":{"status_code":1002,"status_msg":"rate limit"}}"#, Kind::RateLimited),
        ];
        for (text, kind) in all {
            assert_eq!(find(text, false).map(|f| f.0), Some(kind), "{text}");
        }
    }

    #[test]
    fn no_error_is_no_error() {
        for text in [
            r#"{"error":null}"#,
            r#"{"error":""}"#,
            r#"{"error":false}"#,
            r#"{"base_resp":{"status_code":0}}"#,
            "[]",
            "3",
        ] {
            assert_eq!(find(text, false), None, "{text}");
        }
        assert_eq!(find(r#"{"error":{},"choices":[1]}"#, true), None);
        assert_eq!(find(r#"{"message":"m","code":200,"choices":[1]}"#, true), None);
    }
}
