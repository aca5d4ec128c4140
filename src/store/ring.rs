//! The latest exchanges in memory, so that one can be asked for as soon as its answer has ended.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::fast::RandomState;

use crate::sample::Exchange;

/// About a kilobyte each.
const CAPACITY: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct Ring {
    order: VecDeque<Arc<Exchange>>,
    by_id: HashMap<Arc<str>, Arc<Exchange>, RandomState>,
}

impl Ring {
    pub(super) fn push(&mut self, exchange: Arc<Exchange>) {
        if self.order.len() == CAPACITY
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_id.remove(&oldest.id);
        }
        self.by_id.insert(Arc::clone(&exchange.id), Arc::clone(&exchange));
        self.order.push_back(exchange);
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Exchange>> {
        self.by_id.get(id).cloned()
    }

    pub(super) fn workflow(&self, id: &str) -> Vec<Arc<Exchange>> {
        self.order.iter().filter(|exchange| exchange.workflow.as_deref() == Some(id)).cloned().collect()
    }
}
