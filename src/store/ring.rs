//! The latest exchanges in memory, so that one can be asked for as soon as its answer has ended.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::sample::Exchange;

/// About a kilobyte each. Up to fifty a second are on disk as well; where more come, four times as many here would
/// hold seconds longer, and each request would find the one it replaces outside the processor's cache.
const CAPACITY: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Ring {
    order: VecDeque<(u64, Arc<Exchange>)>,
    /// By the hash of its id: the place in all that ever came. What stands there may be another.
    by_id: HashMap<u64, u64, RandomState>,
    /// How many came before the first that is here.
    gone: u64,
    state: RandomState,
}

impl Ring {
    pub(super) fn push(&mut self, exchange: Arc<Exchange>) {
        if self.order.len() == CAPACITY
            && let Some((hash, _)) = self.order.pop_front()
        {
            if self.by_id.get(&hash) == Some(&self.gone) {
                self.by_id.remove(&hash);
            }
            self.gone += 1;
        }
        let hash = self.state.hash_one(&*exchange.id);
        self.by_id.insert(hash, self.gone + self.order.len() as u64);
        self.order.push_back((hash, exchange));
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Exchange>> {
        let place = self.by_id.get(&self.state.hash_one(id))?.checked_sub(self.gone)?;
        let (_, exchange) = self.order.get(usize::try_from(place).ok()?)?;
        (&*exchange.id == id).then(|| Arc::clone(exchange))
    }

    pub(super) fn workflow(&self, id: &str) -> Vec<Arc<Exchange>> {
        let of_it = |exchange: &Arc<Exchange>| exchange.workflow.as_deref() == Some(id);
        self.order.iter().map(|(_, exchange)| exchange).filter(|e| of_it(e)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, exchange};
    use super::*;

    #[test]
    fn the_latest_are_found_by_id_and_the_oldest_give_way() {
        let mut ring = Ring::default();
        let id = |i: usize| format!("{i:016x}");
        for i in 0..3 * CAPACITY {
            ring.push(Arc::new(exchange(&id(i), NOW, Some(if i % 2 == 0 { "even" } else { "odd" }))));
            let oldest = (i + 1).saturating_sub(CAPACITY);
            for known in [oldest, oldest.midpoint(i), i] {
                assert_eq!(&*ring.find(&id(known)).expect("is here").id, id(known));
            }
            assert!(oldest == 0 || ring.find(&id(oldest - 1)).is_none(), "{i}");
            assert!(ring.find(&id(i + 1)).is_none());
        }
        assert_eq!((ring.order.len(), ring.by_id.len()), (CAPACITY, CAPACITY));
        assert_eq!(ring.workflow("odd").len(), CAPACITY / 2);
    }

    #[test]
    fn an_id_that_comes_twice_is_found_as_it_was_last() {
        let mut ring = Ring::default();
        ring.push(Arc::new(exchange("a", NOW, Some("first"))));
        ring.push(Arc::new(exchange("a", NOW, Some("second"))));
        for i in 0..CAPACITY - 1 {
            assert_eq!(ring.find("a").and_then(|e| e.workflow.clone()).as_deref(), Some("second"), "{i}");
            ring.push(Arc::new(exchange(&i.to_string(), NOW, None)));
        }
        ring.push(Arc::new(exchange("b", NOW, None)));
        assert!(ring.find("a").is_none());
    }
}
