//! A list of nodes that a thread uses again and again, for documents that are read once.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use super::Doc;

thread_local! {
    static KEPT: Cell<Option<Doc>> = const { Cell::new(None) };
}

/// A [`Doc`] that leaves its memory to the thread's next one.
#[derive(Debug)]
pub struct Scratch(Doc);

impl Default for Scratch {
    /// The thread's own, or a fresh one where that is in use.
    fn default() -> Self {
        // A thread that is ending has none any more.
        Self(KEPT.try_with(Cell::take).ok().flatten().unwrap_or_default())
    }
}

impl Deref for Scratch {
    type Target = Doc;

    fn deref(&self) -> &Doc {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Doc {
        &mut self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut doc = std::mem::take(&mut self.0);
        doc.shrink();
        let _ = KEPT.try_with(|kept| kept.set(Some(doc)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_two_at_once_do_not_meet() {
        let text = |n: usize| format!("[{}1]", "{\"a\":[true]},".repeat(n));
        let count = |doc: &mut Doc, n: usize| {
            let text = text(n);
            let (root, odd) = doc.parse(text.as_bytes());
            assert!(odd.is_standard());
            root.expect("a list").items().count()
        };
        let mut first = Scratch::default();
        assert_eq!(count(&mut first, 20), 21);
        let capacity = first.nodes.capacity();
        let mut second = Scratch::default();
        assert_eq!((count(&mut second, 3), second.nodes.is_empty()), (4, false));
        drop(second);
        drop(first);
        assert_eq!(Scratch::default().nodes.capacity(), capacity);
        let mut large = Scratch::default();
        assert_eq!(count(&mut large, 100_000), 100_001);
        drop(large);
        assert!(Scratch::default().nodes.capacity() <= 1_024, "a large document leaves little");
    }
}
