//! Answers that passed quality, kept for the day when no target can answer.
//!
//! The key is exact: route, form (stream or not) and everything in the request that shapes the answer.
//! Only whole, sound answers come in: none that was cut off, filtered, calls a tool or carries any flag of
//! fault. When a target is found degraded, [`Cache::purge`] takes back what it said since it was last known
//! to be good, because a suspect answer must not be repeated. Bounded by entries, bytes and age; the least
//! recently used goes first.

mod listing;

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use lru::LruCache;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use listing::Lists;
pub use listing::{Asker, Listing, Missed, Served};

use crate::clock::Timestamp;
use crate::sample::Usage;
use crate::units::{ByteSize, Ms};

/// Enough for a day of repeated questions.
const ENTRIES: usize = 10_000;
/// A small part of the daemon's memory.
const MAX_BYTES: ByteSize = ByteSize::mib(64);
/// A longer answer is unlikely to be asked for twice.
const MAX_ENTRY_BYTES: ByteSize = ByteSize::mib(1);
/// Yesterday's answer is better than none; last week's is not.
const MAX_AGE: Ms = Ms::from_secs(24 * 3_600);
/// A longer request is not worth reading twice.
const MAX_REQUEST_BYTES: usize = 1 << 20;
/// Members of a request that do not shape what is said.
const SHAPELESS: [&str; 8] = [
    "stream",
    "stream_options",
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
];

/// `[cache]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    entries: usize,
    max_bytes: ByteSize,
    max_entry_bytes: ByteSize,
    max_age: Ms,
    serve_first: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            entries: ENTRIES,
            max_bytes: MAX_BYTES,
            max_entry_bytes: MAX_ENTRY_BYTES,
            max_age: MAX_AGE,
            serve_first: false,
        }
    }
}

impl Params {
    /// Whether requests at temperature 0 are answered from here before any target is asked.
    #[must_use]
    pub const fn serve_first(&self) -> bool {
        self.serve_first
    }

    /// Whether no answer is ever kept.
    #[must_use]
    pub fn keeps_nothing(&self) -> bool {
        self.entries == 0 || self.max_entry_bytes() == 0
    }

    /// Largest answer that is kept, bytes.
    #[must_use]
    pub fn max_entry_bytes(&self) -> usize {
        self.max_entry_bytes.min(self.max_bytes).as_usize()
    }
}

/// What makes two requests the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; 32]);

/// The first half in hexadecimal digits: enough to tell requests apart.
impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0[..16].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({self})")
    }
}

impl Key {
    /// Of a request; `None` for one that cannot be read or is too long. `who` is whatever else tells
    /// callers apart that must not see each other's answers.
    #[must_use]
    pub fn of(route: &str, path: &str, stream: bool, who: &[u8], body: &[u8]) -> Option<Self> {
        if body.len() > MAX_REQUEST_BYTES {
            return None;
        }
        let mut request: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(body).ok()?;
        request.retain(|name, _| !SHAPELESS.contains(&name.as_str()));
        request.sort_keys();
        let mut hash = Sha256::new();
        for part in [route.as_bytes(), path.as_bytes(), &[u8::from(stream)], who] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(serde_json::to_vec(&request).ok()?);
        Some(Self(hash.finalize().into()))
    }
}

/// Whether a request asks for the same answer each time: at temperature 0, and one answer only.
#[must_use]
pub fn is_repeatable(body: &[u8]) -> bool {
    let Ok(request) = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(body) else {
        return false;
    };
    let zero = request.get("temperature").and_then(serde_json::Value::as_f64).is_some_and(|t| t == 0.0);
    zero && request.get("n").and_then(serde_json::Value::as_u64).unwrap_or(1) == 1
}

/// One answer as it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Body, byte for byte.
    pub body: Bytes,
    /// Its `content-type`.
    pub content_type: Option<http::HeaderValue>,
    /// Who said it.
    pub target: Arc<str>,
    /// When.
    pub at: Timestamp,
    /// Token counts.
    pub usage: Usage,
}

/// The answers. One lock, held for a look-up only.
#[derive(Debug)]
pub struct Cache(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    params: Params,
    entries: LruCache<Key, Entry>,
    bytes: usize,
    lists: Lists,
}

impl Cache {
    /// An empty cache.
    #[must_use]
    pub fn new(params: Params) -> Self {
        Self(Mutex::new(Inner { params, entries: LruCache::unbounded(), bytes: 0, lists: Lists::default() }))
    }

    /// Takes over other bounds; what no longer fits goes.
    pub fn reconfigure(&self, params: Params) {
        let mut inner = self.lock();
        inner.params = params;
        inner.fit();
    }

    /// The answer to this request, if there is one that is not too old.
    #[must_use]
    pub fn find(&self, key: &Key, now: Timestamp) -> Option<Entry> {
        let mut inner = self.lock();
        let entry = inner.entries.get(key)?;
        if now.ms_since(entry.at) > inner.params.max_age.as_millis() {
            inner.take(key);
            return None;
        }
        inner.entries.peek(key).cloned()
    }

    /// Keeps an answer, unless it is too large or nothing may be kept.
    pub fn keep(&self, key: Key, entry: Entry) {
        let mut inner = self.lock();
        if entry.body.len() > inner.params.max_entry_bytes() || inner.params.entries == 0 {
            return;
        }
        inner.take(&key);
        inner.bytes += entry.body.len();
        inner.lists.warmed(&key);
        inner.entries.put(key, entry);
        inner.fit();
    }

    /// A request found nothing here when nobody else could answer it.
    pub fn note_missed(&self, key: Key, asker: Asker, now: Timestamp) {
        self.lock().lists.missed(key, asker, now);
    }

    /// A request was given a kept answer in place of a fresh one.
    pub fn note_served(&self, key: Key, asker: Asker, entry: &Entry, now: Timestamp) {
        self.lock().lists.served(key, asker, entry, now);
    }

    /// What should be kept and is not, and what was given out of date: the latest first.
    #[must_use]
    pub fn listing(&self, now: Timestamp) -> Listing {
        let inner = self.lock();
        inner.lists.listing(inner.entries.len(), inner.bytes, now)
    }

    /// Forgets what `target` said after `good`, the last moment at which it was known to be sound. Gives
    /// the number of answers forgotten.
    pub fn purge(&self, target: &str, good: Timestamp) -> usize {
        let mut inner = self.lock();
        let suspect: Vec<Key> = inner
            .entries
            .iter()
            .filter(|(_, entry)| &*entry.target == target && entry.at > good)
            .map(|(key, _)| *key)
            .collect();
        for key in &suspect {
            inner.take(key);
        }
        suspect.len()
    }

    /// Number of answers and their bytes.
    #[must_use]
    pub fn size(&self) -> (usize, usize) {
        let inner = self.lock();
        (inner.entries.len(), inner.bytes)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn take(&mut self, key: &Key) {
        if let Some(entry) = self.entries.pop(key) {
            self.bytes -= entry.body.len();
        }
    }

    fn fit(&mut self) {
        let most = NonZeroUsize::new(self.params.entries).map_or(0, NonZeroUsize::get);
        while self.entries.len() > most || self.bytes > self.params.max_bytes.as_usize() {
            match self.entries.pop_lru() {
                Some((_, entry)) => self.bytes -= entry.body.len(),
                None => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn entry(text: &str, target: &str, ms: u64) -> Entry {
        let body = Bytes::copy_from_slice(text.as_bytes());
        Entry { body, content_type: None, target: target.into(), at: at(ms), usage: Usage::default() }
    }

    fn key(body: &str) -> Key {
        Key::of("r", "/v1/chat/completions", false, b"", body.as_bytes()).expect("readable")
    }

    #[test]
    fn what_shapes_the_answer_makes_the_key_and_the_rest_does_not() {
        let plain = key(r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#);
        assert_eq!(
            plain,
            key(r#"{ "messages":[{"content":"hi","role":"user"}],"model":"m","user":"u","metadata":{} }"#)
        );
        assert_ne!(
            plain,
            key(r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"temperature":0}"#)
        );
        let body = br#"{"model":"m"}"#;
        let of = |route, path, stream, who: &[u8]| Key::of(route, path, stream, who, body);
        assert_ne!(of("r", "/a", false, b""), of("s", "/a", false, b""));
        assert_ne!(of("r", "/a", false, b""), of("r", "/b", false, b""));
        assert_ne!(of("r", "/a", false, b""), of("r", "/a", true, b""));
        assert_ne!(of("r", "/a", false, b""), of("r", "/a", false, b"someone"));
        assert_eq!(Key::of("r", "/a", false, b"", b"not json"), None);
    }

    #[test]
    fn entries_bytes_and_age_are_bounded() {
        let params: Params =
            toml::from_str("entries = 2\nmax_bytes = 10\nmax_entry_bytes = 8\nmax_age = \"1s\"")
                .expect("reads");
        let cache = Cache::new(params);
        let (a, b, c) = (key(r#"{"a":1}"#), key(r#"{"b":1}"#), key(r#"{"c":1}"#));
        cache.keep(a, entry("123456789", "t", 0));
        assert_eq!(cache.size(), (0, 0), "too large for an entry");
        cache.keep(a, entry("1234", "t", 0));
        cache.keep(b, entry("1234", "t", 0));
        assert!(cache.find(&a, at(10)).is_some());
        cache.keep(c, entry("1234", "t", 0));
        assert!(cache.find(&b, at(10)).is_none(), "the least recently used went");
        assert_eq!(cache.size(), (2, 8));
        assert!(cache.find(&a, at(1_000)).is_some());
        assert!(cache.find(&a, at(1_001)).is_none(), "too old");
        cache.keep(a, entry("12345678", "t", 0));
        assert_eq!(cache.size(), (1, 8), "bytes are bounded too");
        cache.reconfigure(Params { entries: 0, ..params });
        assert_eq!(cache.size(), (0, 0));
    }

    #[test]
    fn only_one_answer_at_temperature_zero_is_repeatable() {
        assert!(is_repeatable(br#"{"temperature":0,"messages":[]}"#));
        assert!(is_repeatable(br#"{"temperature":0.0,"n":1}"#));
        for other in [&br#"{}"#[..], br#"{"temperature":0.1}"#, br#"{"temperature":0,"n":2}"#, b"x"] {
            assert!(!is_repeatable(other));
        }
    }

    #[test]
    fn a_degraded_targets_suspect_answers_are_forgotten() {
        let cache = Cache::new(Params::default());
        cache.keep(key(r#"{"a":1}"#), entry("old", "bad", 100));
        cache.keep(key(r#"{"b":1}"#), entry("new", "bad", 300));
        cache.keep(key(r#"{"c":1}"#), entry("new", "good", 300));
        assert_eq!(cache.purge("bad", at(200)), 1);
        assert!(cache.find(&key(r#"{"a":1}"#), at(400)).is_some());
        assert!(cache.find(&key(r#"{"b":1}"#), at(400)).is_none());
        assert_eq!(cache.size(), (2, 6));
    }
}
