//! Where answers are judged, so that judging never delays, changes or ends one.
//!
//! Pieces are fed as they pass, which is cheap. The end of an answer, where whole bodies are read and
//! texts compressed, waits until the last byte has been handed to the socket: small answers are judged on
//! the connection's own task right after it wrote ([`Afterwork`]), large ones on a few threads of their
//! own with a bounded queue ([`Pool`]). A judge that panics only makes the analysis partial. Where no
//! decision depends on an answer, reading texts in full has an allowance of processor time
//! ([`Allowance`]); beyond it they are read lightly, and marked so.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Stopwatch;
use crate::judge::{Ask, Depth, End, Head, Judge, Progress, Verdict};
use crate::stats::CpuBudget;

/// A larger body is judged on the pool, bytes.
pub(super) const INLINE_BYTES: usize = 64 << 10;
/// Judgements that wait; beyond it an answer goes unjudged.
const QUEUE: usize = 64;
/// Threads that judge large answers.
const THREADS: usize = 2;
/// Cost of an answer before one was measured, microseconds.
const FIRST_GUESS_US: f64 = 200.0;

/// Work to be done when the socket has been written to.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Processor time that reading answers in full may take where nothing depends on it (shadow mode).
#[derive(Debug)]
pub(super) struct Allowance {
    budget: Mutex<CpuBudget>,
    since: Stopwatch,
}

impl Allowance {
    /// `share` of one core.
    pub(super) fn new(share: f64) -> Arc<Self> {
        Arc::new(Self {
            budget: Mutex::new(CpuBudget::new(share, FIRST_GUESS_US)),
            since: Stopwatch::start(),
        })
    }

    /// Leave to read one answer in full, unless the time is spent.
    pub(super) fn grant(self: &Arc<Self>) -> Option<Grant> {
        let taken_us = self.lock().take(self.since.elapsed_us())?;
        Some(Grant { allowance: Arc::clone(self), taken_us, spent: Duration::ZERO })
    }

    fn lock(&self) -> MutexGuard<'_, CpuBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Leave to read one answer in full. Settled when it is dropped.
#[derive(Debug)]
pub(super) struct Grant {
    allowance: Arc<Allowance>,
    taken_us: f64,
    spent: Duration,
}

impl Drop for Grant {
    fn drop(&mut self) {
        let spent_us = u64::try_from(self.spent.as_micros()).unwrap_or(u64::MAX);
        self.allowance.lock().settle(self.taken_us, spent_us);
    }
}

/// How closely an answer is read.
#[derive(Debug)]
pub(super) enum Reading {
    /// In full, whatever it costs: a decision depends on it.
    Full,
    /// In full, on the allowance.
    Granted(Grant),
    /// Lightly.
    Light,
}

impl Reading {
    fn depth(&self) -> Depth {
        if matches!(self, Self::Light) { Depth::Light } else { Depth::Full }
    }

    fn timed<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let Self::Granted(grant) = self else { return work() };
        let watch = Stopwatch::start();
        let done = work();
        grant.spent += watch.elapsed();
        done
    }
}

/// A judge that may fail without harm.
#[derive(Debug)]
pub(super) struct Watch {
    judge: Option<Judge>,
    reading: Reading,
    partial: bool,
}

impl Watch {
    /// Begins a judgement.
    pub(super) fn new(ask: Arc<Ask>, head: Head, reading: Reading) -> Self {
        let depth = reading.depth();
        let judge = catch_unwind(AssertUnwindSafe(|| Judge::with_depth(ask, head, depth))).ok();
        Self { partial: judge.is_none(), reading, judge }
    }

    /// One that judges nothing, for protocols without a reader.
    pub(super) fn blind() -> Self {
        Self { judge: None, reading: Reading::Full, partial: false }
    }

    /// One that was begun and cannot be ended.
    pub(super) fn given_up() -> Self {
        Self { judge: None, reading: Reading::Full, partial: true }
    }

    /// Whether pieces are really read; if not, every byte counts as progress.
    pub(super) fn sees(&self) -> bool {
        self.judge.is_some()
    }

    /// Nothing further is read; the analysis is partial.
    pub(super) fn give_up(&mut self) {
        self.partial |= self.judge.take().is_some();
    }

    pub(super) fn push(&mut self, at_ms: u64, bytes: &[u8]) -> Progress {
        self.read(|judge| judge.push(at_ms, bytes))
    }

    /// Where the answer stands with all its text read.
    pub(super) fn catch_up(&mut self) -> Progress {
        self.read(Judge::catch_up)
    }

    fn read(&mut self, read: impl FnOnce(&mut Judge) -> Progress) -> Progress {
        let unknown = Progress { has_content: true, progressed: true, ..Progress::default() };
        let Some(judge) = &mut self.judge else { return unknown };
        let progress = catch_unwind(AssertUnwindSafe(|| self.reading.timed(|| read(judge))));
        progress.unwrap_or_else(|_| {
            self.judge = None;
            self.partial = true;
            unknown
        })
    }

    pub(super) fn finish(mut self, at_ms: u64, end: End) -> Verdict {
        let unknown = || Verdict { partial: true, ..Verdict::default() };
        match self.judge {
            Some(judge) => {
                let finish = || self.reading.timed(|| judge.finish(at_ms, end));
                catch_unwind(AssertUnwindSafe(finish)).unwrap_or_else(|_| unknown())
            }
            None if self.partial => unknown(),
            None => Verdict::default(),
        }
    }
}

/// Reads the request; `None` where even that fails.
pub(super) fn read_ask(wire: crate::verdict::Wire, body: &[u8]) -> Option<Arc<Ask>> {
    catch_unwind(AssertUnwindSafe(|| Ask::parse(wire, body))).ok().map(Arc::new)
}

/// Threads that judge large answers.
#[derive(Clone, Debug)]
pub(super) struct Pool(SyncSender<Job>);

impl Pool {
    pub(super) fn new() -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel::<Job>(QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        for i in 0..THREADS {
            let queue = Arc::clone(&queue);
            std::thread::Builder::new().name(format!("judge-{i}")).spawn(move || work(&queue))?;
        }
        Ok(Self(jobs))
    }

    /// Hands a job over, or gives it back where the queue is full.
    pub(super) fn offer(&self, job: Job) -> Result<(), Job> {
        self.0.try_send(job).map_err(|e| match e {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
        })
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(job) => {
                let _ = catch_unwind(AssertUnwindSafe(job)); // one bad answer must not stop the others
            }
            Err(_) => return,
        }
    }
}

/// Jobs of one connection that wait until it has written.
#[derive(Clone, Debug, Default)]
pub(super) struct Afterwork(Arc<Mutex<Vec<Deferred>>>);

struct Deferred(Job);

impl std::fmt::Debug for Deferred {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Deferred")
    }
}

impl Afterwork {
    /// Puts a job off.
    pub(super) fn defer(&self, job: Job) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Deferred(job));
    }

    /// Does what was put off.
    pub(super) fn run(&self) {
        loop {
            let job = {
                let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if jobs.is_empty() {
                    return;
                }
                jobs.remove(0)
            };
            let _ = catch_unwind(AssertUnwindSafe(job.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_full_pool_gives_the_job_back_and_a_panic_stops_nobody() {
        let pool = Pool::new().expect("threads");
        let (open, gate) = sync_channel::<()>(0);
        let gate = Arc::new(Mutex::new(gate));
        for _ in 0..THREADS {
            let gate = Arc::clone(&gate);
            let wait = move || {
                let _ = gate.lock().map(|g| g.recv());
                panic!("a bad answer");
            };
            assert!(pool.offer(Box::new(wait)).is_ok());
        }
        let done = Arc::new(AtomicUsize::new(0));
        let mut refused = 0;
        for _ in 0..QUEUE + THREADS + 5 {
            let done = Arc::clone(&done);
            let count = move || {
                done.fetch_add(1, Ordering::SeqCst);
            };
            refused += usize::from(pool.offer(Box::new(count)).is_err());
        }
        assert!(refused >= 5, "{refused}");
        drop(open);
        let watch = crate::clock::Stopwatch::start();
        while done.load(Ordering::SeqCst) + refused < QUEUE + THREADS + 5 && watch.elapsed_ms() < 5_000 {
            std::thread::yield_now();
        }
        assert_eq!(done.load(Ordering::SeqCst) + refused, QUEUE + THREADS + 5);
    }

    #[test]
    fn deferred_work_runs_in_order_and_may_defer_more() {
        let after = Afterwork::default();
        let order = Arc::new(Mutex::new(Vec::new()));
        for i in 0..3 {
            let (order, again) = (Arc::clone(&order), after.clone());
            after.defer(Box::new(move || {
                order.lock().expect("whole").push(i);
                if i == 0 {
                    let order = Arc::clone(&order);
                    again.defer(Box::new(move || order.lock().expect("whole").push(9)));
                }
            }));
        }
        after.run();
        assert_eq!(*order.lock().expect("whole"), [0, 1, 2, 9]);
    }
}
