//! Permits of one GPU or account, and the queue before them.

use std::collections::VecDeque;

use super::Params;
use super::size::Size;
use crate::clock::Timestamp;
use crate::stats::Bucket;

/// Weight of the newest in the mean time for which a permit is held.
const HOLD_WEIGHT: f64 = 0.1;
/// `Retry-After` of a refusal where nothing has been observed yet, milliseconds.
const UNKNOWN_WAIT_MS: u64 = 1_000;

/// Requests a second that a target takes, whatever is in flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// At once.
    pub capacity: f64,
    /// A second.
    pub refill_per_second: f64,
}

/// One target's part of a pool, as configured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    /// Calls of this target in flight at most.
    pub cap: u32,
    /// Tokens that one permit covers; `None`: a call is one permit.
    pub tokens_per_permit: Option<u32>,
    /// Requests a second.
    pub rate: Option<Rate>,
}

/// Who asks for a permit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ask {
    /// Which member.
    pub member: usize,
    /// Estimated tokens of prompt and answer.
    pub tokens: u64,
    /// Longest wait that the caller has patience for, milliseconds.
    pub patience_ms: u64,
    /// Share that the breaker's ramp gives the target, 0..=1.
    pub share: f64,
    /// Whether the target is degraded in capacity.
    pub degraded: bool,
}

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// Why a request was refused before any attempt; fit for a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// Permits and queue are full.
    QueueFull,
    /// It could not start before its deadline, or has waited in vain.
    Late,
    /// The target's request rate is used up.
    Rate,
}

impl Shed {
    /// Every reason.
    pub const ALL: [Self; 3] = [Self::QueueFull, Self::Late, Self::Rate];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Late => "deadline",
            Self::Rate => "rate",
        }
    }
}

/// What an [`Ask`] gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// Go ahead; give `weight` back with [`Pool::release`].
    Granted {
        /// Permits taken.
        weight: u32,
    },
    /// Wait for this ticket to come out of [`Pool::admit_next`], at most `patience_ms`.
    Queued {
        /// The place.
        ticket: Ticket,
        /// Milliseconds.
        patience_ms: u64,
    },
    /// Not now.
    Refused {
        /// Why.
        why: Shed,
        /// When it is worth asking again, milliseconds.
        retry_after_ms: u64,
    },
}

#[derive(Clone, Debug)]
struct Seat {
    member: Member,
    in_use: u32,
    waiting: u32,
    size: Size,
    share: f64,
    degraded: bool,
    rate: Option<Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    ticket: Ticket,
    member: usize,
    weight: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Pool {
    limit: u32,
    queue_size: usize,
    timeout_ms: u64,
    seats: Vec<Seat>,
    in_use: u32,
    waiting: VecDeque<Waiter>,
    tickets: u64,
    held_ms: Option<f64>,
}

impl Pool {
    /// A pool of `limit` permits (at least 1) for these members.
    #[must_use]
    pub fn new(limit: u32, queue: &Params, members: &[Member], now: Timestamp) -> Self {
        let mut pool = Self {
            limit: 1,
            queue_size: 0,
            timeout_ms: 0,
            seats: Vec::new(),
            in_use: 0,
            waiting: VecDeque::new(),
            tickets: 0,
            held_ms: None,
        };
        pool.reconfigure(limit, queue, members, now);
        pool
    }

    /// Takes over other values; permits that are out stay out. Members keep their places; the list may grow.
    pub fn reconfigure(&mut self, limit: u32, queue: &Params, members: &[Member], now: Timestamp) {
        self.limit = limit.max(1);
        self.queue_size = queue.size();
        self.timeout_ms = queue.timeout_ms();
        self.waiting.iter_mut().for_each(|w| w.weight = w.weight.min(self.limit)); // or it would wait for ever
        for (i, member) in members.iter().enumerate() {
            let rate = member.rate.map(|r| Bucket::new(r.refill_per_second, r.capacity, now));
            match self.seats.get_mut(i) {
                Some(seat) => {
                    if seat.member.rate != member.rate {
                        seat.rate = rate;
                    }
                    seat.member = *member;
                }
                None => self.seats.push(Seat {
                    member: *member,
                    in_use: 0,
                    waiting: 0,
                    size: Size::default(),
                    share: 1.0,
                    degraded: false,
                    rate,
                }),
            }
        }
    }

    /// Permits that a request of so many tokens takes.
    #[must_use]
    pub fn weight(&self, member: usize, tokens: u64) -> u32 {
        let per = self.seats.get(member).and_then(|s| s.member.tokens_per_permit);
        let weight = per.map_or(1, |per| tokens.div_ceil(u64::from(per.max(1))).max(1));
        u32::try_from(weight).unwrap_or(u32::MAX).min(self.limit)
    }

    /// Asks for a permit.
    pub fn acquire(&mut self, ask: &Ask, now: Timestamp) -> Answer {
        let weight = self.weight(ask.member, ask.tokens);
        let Some(seat) = self.seats.get_mut(ask.member) else { return Answer::Granted { weight: 0 } };
        (seat.share, seat.degraded) = (ask.share, ask.degraded);
        let patience_ms = ask.patience_ms.min(self.timeout_ms);
        if let Some(wait) = seat.rate.as_ref().and_then(|rate| (!rate.has_at(now)).then(|| rate.wait_ms(now)))
        {
            return Answer::Refused {
                why: Shed::Rate,
                retry_after_ms: wait.unwrap_or(UNKNOWN_WAIT_MS).max(1),
            };
        }
        let alone = !self.waiting.iter().any(|w| w.member == ask.member || !self.fits_pool(w.weight));
        if alone && self.fits(ask.member, weight) {
            self.spend_rate(ask.member, now);
            self.take(ask.member, weight);
            return Answer::Granted { weight };
        }
        let wait_ms = self.foreseen_ms(weight);
        if self.waiting.len() >= self.queue_size {
            let retry_after_ms = wait_ms.unwrap_or(UNKNOWN_WAIT_MS).max(1);
            return Answer::Refused { why: Shed::QueueFull, retry_after_ms };
        }
        if wait_ms.unwrap_or(0) > patience_ms || patience_ms == 0 {
            let retry_after_ms = wait_ms.unwrap_or(UNKNOWN_WAIT_MS).max(1);
            return Answer::Refused { why: Shed::Late, retry_after_ms };
        }
        self.spend_rate(ask.member, now);
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waiting.push_back(Waiter { ticket, member: ask.member, weight });
        self.seats[ask.member].waiting += 1;
        Answer::Queued { ticket, patience_ms }
    }

    /// Counts a call that is made whatever the limits say (shadow mode); what would have been said of it.
    pub fn observe(&mut self, ask: &Ask, now: Timestamp) -> (u32, Option<Shed>) {
        let weight = self.weight(ask.member, ask.tokens);
        let Some(seat) = self.seats.get_mut(ask.member) else { return (0, None) };
        (seat.share, seat.degraded) = (ask.share, ask.degraded);
        let dry = seat.rate.as_mut().is_some_and(|rate| !rate.take(now));
        let over = self.in_use.saturating_add(weight).saturating_sub(self.limit) as usize;
        let why = if dry {
            Some(Shed::Rate)
        } else if over > self.queue_size {
            Some(Shed::QueueFull)
        } else if over > 0 && self.foreseen_ms(weight).unwrap_or(0) > ask.patience_ms.min(self.timeout_ms) {
            Some(Shed::Late)
        } else {
            None
        };
        self.take(ask.member, weight);
        (weight, why)
    }

    /// Gives permits back after so long; `sound` says how the call ended, if it is known.
    pub fn release(&mut self, member: usize, weight: u32, held_ms: u64, sound: Option<bool>) {
        self.held_ms = Some(match self.held_ms {
            None => held_ms as f64,
            Some(mean) => mean + HOLD_WEIGHT * (held_ms as f64 - mean),
        });
        if let Some(seat) = self.seats.get_mut(member)
            && let Some(sound) = sound
        {
            seat.size.record(sound, seat.degraded, seat.member.cap);
        }
        self.give_back(member, weight);
    }

    /// Gives permits back that were never used.
    pub fn give_back(&mut self, member: usize, weight: u32) {
        self.in_use = self.in_use.saturating_sub(weight);
        if let Some(seat) = self.seats.get_mut(member) {
            seat.in_use = seat.in_use.saturating_sub(weight);
        }
    }

    /// The next in the queue that may go ahead, its member and its weight; call it until there is none.
    #[must_use]
    pub fn admit_next(&mut self) -> Option<(Ticket, usize, u32)> {
        let mut at = None;
        for (i, waiter) in self.waiting.iter().enumerate() {
            if !self.fits_pool(waiter.weight) {
                break; // nobody passes one that waits for room in the pool
            }
            if self.fits(waiter.member, waiter.weight) {
                at = Some(i);
                break;
            }
        }
        let waiter = self.waiting.remove(at?)?;
        self.seats[waiter.member].waiting -= 1;
        self.take(waiter.member, waiter.weight);
        Some((waiter.ticket, waiter.member, waiter.weight))
    }

    /// Takes a waiting request out of the queue; false if it waits no longer, because it was granted.
    #[must_use]
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let Some(at) = self.waiting.iter().position(|w| w.ticket == ticket) else { return false };
        if let Some(waiter) = self.waiting.remove(at) {
            self.seats[waiter.member].waiting -= 1;
        }
        true
    }

    /// Whether a request of the member would have to wait.
    #[must_use]
    pub fn is_busy(&self, member: usize) -> bool {
        !self.waiting.is_empty() || !self.fits(member, 1)
    }

    /// Permits of the member that are out.
    #[must_use]
    pub fn in_use(&self, member: usize) -> u32 {
        self.seats.get(member).map_or(0, |s| s.in_use)
    }

    /// Permits of the whole pool that are out.
    #[must_use]
    pub const fn total_in_use(&self) -> u32 {
        self.in_use
    }

    /// Permits that the member may have out now.
    #[must_use]
    pub fn limit(&self, member: usize) -> u32 {
        self.seats.get(member).map_or(0, |s| s.size.limit(s.member.cap, s.share).min(self.limit))
    }

    /// Requests of the member that wait.
    #[must_use]
    pub fn waiting(&self, member: usize) -> u32 {
        self.seats.get(member).map_or(0, |s| s.waiting)
    }

    /// When it is worth asking again, milliseconds.
    #[must_use]
    pub fn retry_after_ms(&self) -> u64 {
        self.foreseen_ms(1).unwrap_or(UNKNOWN_WAIT_MS).max(1)
    }

    fn fits_pool(&self, weight: u32) -> bool {
        self.in_use.saturating_add(weight) <= self.limit
    }

    /// Whether pool and member have room. A request heavier than all that its member may have goes alone.
    fn fits(&self, member: usize, weight: u32) -> bool {
        let used = self.in_use(member);
        let room = used.saturating_add(weight) <= self.limit(member) || used == 0;
        room && self.fits_pool(weight)
    }

    fn take(&mut self, member: usize, weight: u32) {
        self.in_use = self.in_use.saturating_add(weight);
        let seat = &mut self.seats[member];
        seat.in_use = seat.in_use.saturating_add(weight);
    }

    fn spend_rate(&mut self, member: usize, now: Timestamp) {
        if let Some(rate) = &mut self.seats[member].rate {
            let _ = rate.take(now); // looked at before
        }
    }

    /// How long a request at the end of the queue waits: what is before it, at the pace at which permits come
    /// back. `None` until a call has been observed.
    fn foreseen_ms(&self, weight: u32) -> Option<u64> {
        let before: u64 = self.waiting.iter().map(|w| u64::from(w.weight)).sum::<u64>() + u64::from(weight);
        let pace = self.held_ms? / f64::from(self.limit);
        Some((before as f64 * pace) as u64)
    }
}
