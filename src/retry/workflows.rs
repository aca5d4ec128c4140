//! Tokens of workflows: one id for a whole pipeline run, whose steps share them.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;

use crate::clock::Timestamp;

/// Runs that are remembered; the least recently used is forgotten first.
const MOST: NonZeroUsize = NonZeroUsize::new(16_384).expect("more than nothing");
/// A run that was silent so long has ended.
const FORGET_MS: u64 = 3_600_000;

/// Tokens that each workflow has used.
#[derive(Debug)]
pub struct Workflows(LruCache<Arc<str>, (u32, Timestamp)>);

impl Default for Workflows {
    fn default() -> Self {
        Self(LruCache::new(MOST))
    }
}

impl Workflows {
    /// Tokens left of `most`.
    #[must_use]
    pub fn left(&self, id: &str, most: u32, now: Timestamp) -> u32 {
        match self.0.peek(id) {
            Some((used, at)) if now.ms_since(*at) < FORGET_MS => most.saturating_sub(*used),
            _ => most,
        }
    }

    /// Draws one token of `most`; false where none is left.
    #[must_use]
    pub fn take(&mut self, id: &Arc<str>, most: u32, now: Timestamp) -> bool {
        if self.left(id, most, now) == 0 {
            return false;
        }
        let used = most - self.left(id, most, now) + 1;
        self.0.put(Arc::clone(id), (used, now));
        true
    }
}
