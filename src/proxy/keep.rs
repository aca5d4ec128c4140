//! A copy of an answer on its way, for the cache, in case it turns out sound.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

use super::cutter::Cutter;
use super::inject::Injected;
use crate::cache::{Cache, Entry, Key};
use crate::clock::Timestamp;
use crate::judge::Verdict;
use crate::verdict::{FaultClass, Flag};

/// See the module. The pieces are shared with the answer, not copied, until it is stored.
#[derive(Debug)]
pub(super) struct Keep {
    key: Key,
    most: usize,
    bytes: usize,
    pieces: Vec<Bytes>,
    content_type: Option<HeaderValue>,
    injected: Option<Injected>,
}

impl Keep {
    /// For an answer of at most `most` bytes.
    pub(super) fn new(
        key: Key,
        most: usize,
        content_type: Option<HeaderValue>,
        injected: Option<Injected>,
    ) -> Self {
        Self { key, most, bytes: 0, pieces: Vec::new(), content_type, injected }
    }

    /// The next piece; false once the answer is too long to be kept.
    pub(super) fn add(&mut self, piece: &Bytes) -> bool {
        self.bytes += piece.len();
        self.pieces.push(piece.clone());
        self.bytes <= self.most
    }

    /// Stores a whole answer, if it may be said again.
    pub(super) fn store(self, cache: &Cache, verdict: &Verdict, target: Arc<str>, at: Timestamp) {
        if verdict.partial || verdict.light || !is_worth_repeating(verdict) {
            return;
        }
        let body = join(self.pieces, self.bytes);
        let body = self.injected.map_or(body.clone(), |injected| Cutter::whole(injected, body));
        let content_type = self.content_type;
        cache.keep(self.key, Entry { body, content_type, target, at, usage: verdict.usage });
    }
}

/// Whether an answer may be said again from memory.
fn is_worth_repeating(verdict: &Verdict) -> bool {
    let cut = [Flag::Truncated, Flag::ContentFiltered, Flag::FinishReasonMissing, Flag::UnparseableEvent];
    let only_info = verdict.flags.iter().all(|flag| flag.class() == FaultClass::Info && !cut.contains(&flag));
    only_info && verdict.tool_calls.is_empty() && !verdict.text.is_empty()
}

fn join(mut pieces: Vec<Bytes>, bytes: usize) -> Bytes {
    if pieces.len() == 1 {
        return pieces.remove(0);
    }
    let mut whole = Vec::with_capacity(bytes);
    pieces.iter().for_each(|piece| whole.extend_from_slice(piece));
    whole.into()
}
