//! Which headers travel.
//!
//! Hop-by-hop headers belong to one connection and stop here in both directions, those that
//! `Connection` names among them (RFC 9110 § 7.6.1). The daemon's own `x-touchstone-*` never travel
//! upstream, and a caller's credentials only where the target says so.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// Headers that belong to one connection.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Headers that prove who the caller is.
const CREDENTIALS: [HeaderName; 5] = [
    header::AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("api-key"),
    HeaderName::from_static("x-goog-api-key"),
    header::COOKIE,
];

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const OWN_PREFIX: &str = "x-touchstone-";
/// Headers that name a message's framing; `Connection` cannot take them away.
const END_TO_END: [HeaderName; 3] = [header::CONTENT_LENGTH, header::CONTENT_TYPE, header::HOST];

/// Takes out what belongs to one connection only.
pub fn drop_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|list| list.split(','))
            .filter_map(|name| name.trim().parse().ok())
            .filter(|name| !END_TO_END.contains(name))
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

/// Makes a caller's headers those of the upstream request, but for trace and credentials.
pub fn make_outgoing(headers: &mut HeaderMap) {
    drop_hop_by_hop(headers);
    headers.remove(header::HOST);
    headers.remove(header::CONTENT_LENGTH);
    headers.remove(header::EXPECT);
    if headers.keys().any(|name| name.as_str().starts_with(OWN_PREFIX)) {
        let own: Vec<HeaderName> =
            headers.keys().filter(|name| name.as_str().starts_with(OWN_PREFIX)).cloned().collect();
        for name in own {
            headers.remove(name);
        }
    }
}

/// How a target proves who calls.
#[derive(Clone, Debug)]
pub(super) struct Credentials {
    /// The target's own key.
    pub(super) key: Option<Key>,
    /// Whether the caller's are sent on where the target has none.
    pub(super) forward: bool,
}

/// A key in both forms that upstreams take.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) bearer: HeaderValue,
    pub(super) plain: HeaderValue,
}

impl Key {
    pub(super) fn new(secret: &str) -> Option<Self> {
        let mut bearer = HeaderValue::from_str(&format!("Bearer {secret}")).ok()?;
        let mut plain = HeaderValue::from_str(secret).ok()?;
        bearer.set_sensitive(true);
        plain.set_sensitive(true);
        Some(Self { bearer, plain })
    }
}

impl Credentials {
    /// Puts the right credentials on a request; `plain_key` for wires that take `x-api-key`.
    pub(super) fn apply(&self, headers: &mut HeaderMap, plain_key: bool) {
        if self.key.is_some() || !self.forward {
            for name in &CREDENTIALS {
                headers.remove(name);
            }
        }
        if let Some(key) = &self.key {
            headers.insert(header::AUTHORIZATION, key.bearer.clone());
            if plain_key {
                headers.insert(X_API_KEY, key.plain.clone());
            }
        }
    }
}

/// Keeps a valid `traceparent`, or makes one, and gives its trace id (32 hexadecimal digits). A
/// `tracestate` without a valid parent is dropped with it (W3C Trace Context § 3.3).
pub fn ensure_trace(headers: &mut HeaderMap) -> [u8; 32] {
    let kept = headers.get(&TRACEPARENT).map(HeaderValue::as_bytes).filter(|_| {
        headers.get_all(&TRACEPARENT).iter().count() == 1 // two parents are none
    });
    if let Some(id) = kept.and_then(trace_id) {
        return id;
    }
    headers.remove(&TRACESTATE);
    let trace = fastrand::u128(1..);
    let parent = fastrand::u64(1..);
    let mut id = [0u8; 32];
    hex(&trace.to_be_bytes(), &mut id);
    let mut value = *b"00-00000000000000000000000000000000-0000000000000000-01";
    value[3..35].copy_from_slice(&id);
    hex(&parent.to_be_bytes(), &mut value[36..52]);
    if let Ok(value) = HeaderValue::from_bytes(&value) {
        headers.insert(TRACEPARENT, value);
    }
    id
}

fn hex(bytes: &[u8], out: &mut [u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// The trace id of a valid `traceparent`.
fn trace_id(value: &[u8]) -> Option<[u8; 32]> {
    let lower_hex = |part: &[u8]| part.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let zero = |part: &[u8]| part.iter().all(|b| *b == b'0');
    let (version, id, parent, flags) =
        (value.get(..2)?, value.get(3..35)?, value.get(36..52)?, value.get(53..55)?);
    let dashes = value[2] == b'-' && value[35] == b'-' && value[52] == b'-';
    let hex = lower_hex(version) && lower_hex(id) && lower_hex(parent) && lower_hex(flags);
    let length = if version == b"00" { value.len() == 55 } else { value.len() == 55 || value[55] == b'-' };
    if !dashes || !hex || !length || version == b"ff" || zero(id) || zero(parent) {
        return None;
    }
    id.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn what_connection_names_stops_here_and_framing_does_not() {
        let mut headers = map(&[
            ("connection", "close, X-Hop"),
            ("connection", "content-length"),
            ("x-hop", "1"),
            ("x-stays", "1"),
            ("content-length", "3"),
            ("keep-alive", "timeout=5"),
            ("te", "trailers"),
        ]);
        drop_hop_by_hop(&mut headers);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["content-length", "x-stays"]);
    }

    #[test]
    fn the_daemons_own_headers_never_travel_upstream() {
        let mut headers =
            map(&[("x-touchstone-route", "a"), ("x-touchstone-key", "s"), ("host", "h"), ("accept", "*/*")]);
        make_outgoing(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }

    #[test]
    fn credentials_travel_only_where_they_may() {
        let callers = || map(&[("authorization", "Bearer mine"), ("x-api-key", "mine"), ("accept", "*/*")]);
        let mut headers = callers();
        Credentials { key: None, forward: false }.apply(&mut headers, false);
        assert_eq!(headers.len(), 1);
        let mut headers = callers();
        Credentials { key: None, forward: true }.apply(&mut headers, false);
        assert_eq!(headers["authorization"], "Bearer mine");
        let mut headers = callers();
        Credentials { key: Key::new("own"), forward: true }.apply(&mut headers, true);
        assert_eq!(headers["authorization"], "Bearer own");
        assert_eq!(headers["x-api-key"], "own");
    }

    #[test]
    fn a_valid_parent_is_kept_and_any_other_is_made() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut headers = map(&[("traceparent", good), ("tracestate", "a=1")]);
        assert_eq!(&ensure_trace(&mut headers), b"4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(headers["traceparent"], good);
        assert_eq!(headers["tracestate"], "a=1");
        for bad in [
            "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "nonsense",
            "",
        ] {
            let mut headers = map(&[("traceparent", bad), ("tracestate", "a=1")]);
            let id = ensure_trace(&mut headers);
            let made = headers["traceparent"].as_bytes();
            assert_eq!(trace_id(made), Some(id), "{bad}");
            assert!(!headers.contains_key("tracestate"));
        }
    }
}
