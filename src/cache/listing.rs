//! Which requests found nothing, and which were given an answer of yesterday, so that an operator can warm the cache.
//!
//! Only what happens when nobody else could answer is listed; a busy day's ordinary misses would tell nothing. A
//! request that is answered and kept later leaves the lists. Prompts are not kept here: a request is known by its
//! route, its key and the id under which `/v1/requests/{id}` has the rest.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use serde::Serialize;

use super::{Entry, Key};
use crate::clock::Timestamp;

/// Requests in each list; more than anyone warms by hand.
const LISTED: NonZeroUsize = NonZeroUsize::new(200).expect("not zero");

/// Whose request it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Asker {
    /// Route.
    pub route: Arc<str>,
    /// Model, as the caller wrote it.
    pub model: Option<Arc<str>>,
    /// Id of the request that asked last.
    pub request_id: Arc<str>,
    /// Trace of the request that asked last.
    pub trace_id: Arc<str>,
}

/// A request that nobody could answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Missed {
    /// What makes two requests the same.
    pub key: String,
    /// Who asked last.
    #[serde(flatten)]
    pub asker: Asker,
    /// How often it was asked in vain.
    pub times: u64,
    /// When first.
    pub first_at: Timestamp,
    /// When last.
    pub last_at: Timestamp,
}

/// A request that was given a kept answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Served {
    /// What makes two requests the same.
    pub key: String,
    /// Who asked last.
    #[serde(flatten)]
    pub asker: Asker,
    /// How often it was given a kept answer.
    pub times: u64,
    /// When last.
    pub last_at: Timestamp,
    /// Who had said it.
    pub target: Arc<str>,
    /// When that was.
    pub cached_at: Timestamp,
    /// How old it was when it was given last, milliseconds.
    pub age_ms: u64,
}

/// `GET /v1/cache`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Listing {
    /// Answers kept.
    pub entries: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Requests that found nothing, the latest first.
    pub misses: Vec<Missed>,
    /// Requests that were given a kept answer, the latest first.
    pub stale: Vec<Served>,
    /// When this was told.
    pub at: Timestamp,
}

#[derive(Debug)]
pub(super) struct Lists {
    misses: LruCache<Key, Missed>,
    stale: LruCache<Key, Served>,
}

impl Default for Lists {
    fn default() -> Self {
        Self { misses: LruCache::new(LISTED), stale: LruCache::new(LISTED) }
    }
}

impl Lists {
    pub(super) fn missed(&mut self, key: Key, asker: Asker, now: Timestamp) {
        let before = self.misses.pop(&key);
        let (times, first_at) = before.map_or((0, now), |m| (m.times, m.first_at));
        let missed = Missed { key: key.to_string(), asker, times: times + 1, first_at, last_at: now };
        self.misses.put(key, missed);
    }

    pub(super) fn served(&mut self, key: Key, asker: Asker, entry: &Entry, now: Timestamp) {
        let times = self.stale.pop(&key).map_or(0, |s| s.times) + 1;
        let (target, cached_at, age_ms) = (Arc::clone(&entry.target), entry.at, now.ms_since(entry.at));
        let served = Served { key: key.to_string(), asker, times, last_at: now, target, cached_at, age_ms };
        self.stale.put(key, served);
    }

    /// A fresh answer is kept.
    pub(super) fn warmed(&mut self, key: &Key) {
        if !self.misses.is_empty() || !self.stale.is_empty() {
            self.misses.pop(key);
            self.stale.pop(key);
        }
    }

    pub(super) fn listing(&self, entries: usize, bytes: usize, at: Timestamp) -> Listing {
        let misses = self.misses.iter().map(|(_, m)| m.clone()).collect();
        let stale = self.stale.iter().map(|(_, s)| s.clone()).collect();
        Listing { entries, bytes, misses, stale, at }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Cache, Params};
    use super::*;
    use crate::sample::Usage;

    fn asker(id: &str) -> Asker {
        Asker { route: "r".into(), model: Some("m".into()), request_id: id.into(), trace_id: "t".into() }
    }

    fn key(n: u64) -> Key {
        let body = format!("{{\"n\":{n}}}");
        Key::of("r", "/v1/chat/completions", false, b"", body.as_bytes()).expect("readable")
    }

    fn entry(at: u64) -> Entry {
        let at = Timestamp::from_millis(at);
        Entry { body: "x".into(), content_type: None, target: "a".into(), at, usage: Usage::default() }
    }

    #[test]
    fn misses_are_counted_by_request_and_leave_the_list_once_an_answer_is_kept() {
        let cache = Cache::new(Params::default());
        let at = Timestamp::from_millis;
        cache.note_missed(key(1), asker("a"), at(10));
        cache.note_missed(key(2), asker("b"), at(20));
        cache.note_missed(key(1), asker("c"), at(30));
        let listing = cache.listing(at(40));
        let told: Vec<_> = listing.misses.iter().map(|m| (&*m.asker.request_id, m.times)).collect();
        assert_eq!(told, [("c", 2), ("b", 1)], "the latest first");
        assert_eq!((listing.misses[0].first_at, listing.misses[0].last_at), (at(10), at(30)));
        cache.keep(key(1), entry(50));
        cache.note_served(key(1), asker("d"), &entry(50), at(4_050));
        let listing = cache.listing(at(5_000));
        assert_eq!((listing.misses.len(), listing.stale.len(), listing.entries), (1, 1, 1));
        assert_eq!((listing.stale[0].age_ms, &*listing.stale[0].target), (4_000, "a"));
        let json = serde_json::to_value(&listing).expect("serialises");
        assert_eq!(json["misses"][0]["request_id"], "b");
        assert_eq!(json["misses"][0]["key"].as_str().map(str::len), Some(32));
    }

    #[test]
    fn the_lists_are_bounded_and_the_latest_stay() {
        let cache = Cache::new(Params::default());
        for n in 0..1_000 {
            let now = Timestamp::from_millis(n);
            cache.note_missed(key(n), asker(&n.to_string()), now);
            cache.note_served(key(n), asker(&n.to_string()), &entry(0), now);
        }
        let listing = cache.listing(Timestamp::from_millis(1_000));
        assert_eq!((listing.misses.len(), listing.stale.len()), (200, 200));
        let ends = (&*listing.misses[0].asker.request_id, &*listing.stale[199].asker.request_id);
        assert_eq!(ends, ("999", "800"));
    }
}
