//! The thread that embeds, its two queues, and the handle through which everyone else asks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::{EmbedError, Embedder, Embedding, Params};
use crate::clock::Stopwatch;
use crate::stats::CpuBudget;

/// Golden answers that may wait: a burst of 50 for each of a few dozen targets.
const GOLDEN_QUEUE: usize = 2_048;

/// Cost of a text before one was measured, microseconds: about what 60 tokens take on one core.
const FIRST_GUESS_US: f64 = 20_000.0;

/// A vector on its way. It ends in an error if the text could not be embedded (counted as failed).
pub type Pending = oneshot::Receiver<Embedding>;

/// What the embedder did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbedStats {
    /// Texts embedded.
    pub done: u64,
    /// Texts that failed.
    pub failed: u64,
    /// Texts skipped because the queue was full.
    pub skipped_full: u64,
    /// Live texts skipped because the CPU budget was spent.
    pub skipped_budget: u64,
    /// Texts that wait now.
    pub queue_depth: usize,
    /// Duration of the last text, microseconds; 0 before the first.
    pub last_us: u64,
    /// Duration of all texts together, microseconds.
    pub busy_us: u64,
}

struct Job {
    text: Arc<str>,
    reply: oneshot::Sender<Embedding>,
    /// What was taken from the budget; `None` for golden answers.
    taken_us: Option<f64>,
}

struct Queues {
    golden: VecDeque<Job>,
    live: VecDeque<Job>,
    budget: CpuBudget,
    closed: bool,
}

#[derive(Default)]
struct Counters {
    done: AtomicU64,
    failed: AtomicU64,
    skipped_full: AtomicU64,
    skipped_budget: AtomicU64,
    last_us: AtomicU64,
    busy_us: AtomicU64,
}

struct Shared {
    embedder: Embedder,
    queues: Mutex<Queues>,
    wake: Condvar,
    live_capacity: usize,
    since: Stopwatch,
    counters: Counters,
}

/// The last handle to go ends the thread.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.wake.notify_all();
    }
}

/// Asks for vectors. Cheap to clone; never waits, but for [`EmbedHandle::embed_now`].
#[derive(Clone)]
pub struct EmbedHandle {
    shared: Arc<Shared>,
    _owner: Arc<Owner>,
}

impl std::fmt::Debug for EmbedHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbedHandle").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

impl EmbedHandle {
    /// Loads the model that `params` name and starts its thread.
    ///
    /// # Errors
    /// The model cannot be loaded, or there is no thread to be had.
    pub fn start(params: &Params) -> Result<Self, EmbedError> {
        Self::with(Embedder::load(params.model(), params.threads())?, params)
    }

    /// Starts the thread of a model that is loaded already.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn with(embedder: Embedder, params: &Params) -> Result<Self, EmbedError> {
        let shared = Arc::new(Shared {
            embedder,
            queues: Mutex::new(Queues {
                golden: VecDeque::new(),
                live: VecDeque::new(),
                budget: CpuBudget::new(params.max_cpu_share(), FIRST_GUESS_US),
                closed: false,
            }),
            wake: Condvar::new(),
            live_capacity: params.queue(),
            since: Stopwatch::start(),
            counters: Counters::default(),
        });
        let worker = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("embed".to_owned())
            .spawn(move || worker.run())
            .map_err(|e| EmbedError::Thread(e.to_string()))?;
        Ok(Self { _owner: Arc::new(Owner(Arc::clone(&shared))), shared })
    }

    /// Asks for a live text's vector. `None` if the queue is full or the CPU budget is spent; either is
    /// counted.
    #[must_use]
    pub fn try_embed(&self, text: impl Into<Arc<str>>) -> Option<Pending> {
        let now_us = self.shared.since.elapsed_us();
        let counters = &self.shared.counters;
        let mut queues = self.shared.lock();
        if queues.live.len() >= self.shared.live_capacity {
            counters.skipped_full.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let Some(taken) = queues.budget.take(now_us) else {
            counters.skipped_budget.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let (reply, pending) = oneshot::channel();
        queues.live.push_back(Job { text: text.into(), reply, taken_us: Some(taken) });
        drop(queues);
        self.shared.wake.notify_one();
        Some(pending)
    }

    /// Asks for the vector of a golden answer or reference: before live texts and whatever the CPU budget.
    /// `None` if too many wait already, which is counted.
    #[must_use]
    pub fn try_embed_golden(&self, text: impl Into<Arc<str>>) -> Option<Pending> {
        let mut queues = self.shared.lock();
        if queues.golden.len() >= GOLDEN_QUEUE {
            self.shared.counters.skipped_full.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let (reply, pending) = oneshot::channel();
        queues.golden.push_back(Job { text: text.into(), reply, taken_us: None });
        drop(queues);
        self.shared.wake.notify_one();
        Some(pending)
    }

    /// Embeds at once, past queue and budget, and waits for it: for commands, never for an async worker.
    ///
    /// # Errors
    /// As [`Embedder::embed`].
    pub fn embed_now(&self, text: &str) -> Result<Embedding, EmbedError> {
        self.shared.embed(text)
    }

    /// The model.
    #[must_use]
    pub fn embedder(&self) -> &Embedder {
        &self.shared.embedder
    }

    /// What was done so far.
    #[must_use]
    pub fn stats(&self) -> EmbedStats {
        let queue_depth = {
            let queues = self.shared.lock();
            queues.golden.len() + queues.live.len()
        };
        let Counters { done, failed, skipped_full, skipped_budget, last_us, busy_us } = &self.shared.counters;
        EmbedStats {
            done: done.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
            skipped_full: skipped_full.load(Ordering::Relaxed),
            skipped_budget: skipped_budget.load(Ordering::Relaxed),
            queue_depth,
            last_us: last_us.load(Ordering::Relaxed),
            busy_us: busy_us.load(Ordering::Relaxed),
        }
    }
}

impl Shared {
    /// No code here panics while it holds the lock, and the queues are sound after each line.
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while let Some(job) = self.next() {
            if job.reply.is_closed() {
                if let Some(taken) = job.taken_us {
                    self.lock().budget.refund(taken);
                }
                continue;
            }
            let before = Stopwatch::start();
            let embedding = self.embed(&job.text);
            if let Some(taken) = job.taken_us {
                self.lock().budget.settle(taken, before.elapsed_us());
            }
            match embedding {
                Ok(embedding) => {
                    let _ = job.reply.send(embedding); // whoever asked may be gone
                }
                Err(error) => tracing::warn!(%error, "a text could not be embedded"),
            }
        }
    }

    fn next(&self) -> Option<Job> {
        let mut queues = self.lock();
        loop {
            if queues.closed {
                return None;
            }
            let job = queues.golden.pop_front().or_else(|| queues.live.pop_front());
            if job.is_some() {
                return job;
            }
            queues = self.wake.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn embed(&self, text: &str) -> Result<Embedding, EmbedError> {
        let watch = Stopwatch::start();
        let embedding = self.embedder.embed(text);
        let us = watch.elapsed_us();
        let counter = if embedding.is_ok() { &self.counters.done } else { &self.counters.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        self.counters.last_us.store(us, Ordering::Relaxed);
        self.counters.busy_us.fetch_add(us, Ordering::Relaxed);
        embedding
    }
}
