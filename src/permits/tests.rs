use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

const fn member(cap: u32) -> Member {
    Member { cap, tokens_per_permit: None, rate: None }
}

const fn ask(member: usize) -> Ask {
    Ask { member, tokens: 0, patience_ms: 60_000, share: 1.0, degraded: false }
}

fn pool(limit: u32, members: &[Member]) -> Pool {
    Pool::new(limit, &Params::default(), members, at(0))
}

fn granted(answer: Answer) -> u32 {
    match answer {
        Answer::Granted { weight } => weight,
        other => panic!("expected a permit, got {other:?}"),
    }
}

fn queued(answer: Answer) -> Ticket {
    match answer {
        Answer::Queued { ticket, .. } => ticket,
        other => panic!("expected a place, got {other:?}"),
    }
}

#[test]
fn the_fourth_call_waits_for_a_card_of_three_and_goes_when_one_ends() {
    let mut pool = pool(3, &[member(3)]);
    for _ in 0..3 {
        assert_eq!(granted(pool.acquire(&ask(0), at(0))), 1);
    }
    assert!(pool.is_busy(0));
    let ticket = queued(pool.acquire(&ask(0), at(0)));
    assert_eq!((pool.waiting(0), pool.admit_next()), (1, None));
    pool.release(0, 1, 500, Some(true));
    assert_eq!(pool.admit_next(), Some((ticket, 0, 1)));
    assert_eq!((pool.in_use(0), pool.waiting(0)), (3, 0));
    assert!(!pool.cancel(ticket), "it was granted");
}

#[test]
fn targets_of_one_card_share_its_limit() {
    let mut pool = pool(2, &[member(2), member(2)]);
    granted(pool.acquire(&ask(0), at(0)));
    granted(pool.acquire(&ask(1), at(0)));
    queued(pool.acquire(&ask(1), at(0)));
    assert_eq!(pool.total_in_use(), 2);
}

#[test]
fn a_request_that_could_not_start_in_time_is_refused_at_once() {
    let mut pool = pool(1, &[member(1)]);
    granted(pool.acquire(&ask(0), at(0)));
    pool.release(0, 1, 4_000, None);
    granted(pool.acquire(&ask(0), at(0)));
    let hurried = Ask { patience_ms: 3_000, ..ask(0) };
    assert_eq!(
        pool.acquire(&hurried, at(0)),
        Answer::Refused { why: Shed::Late, retry_after_ms: 4_000 },
        "permits are held for 4 s"
    );
    for _ in 0..7 {
        queued(pool.acquire(&ask(0), at(0)));
    }
    let Answer::Refused { why: Shed::Late, retry_after_ms: 32_000 } = pool.acquire(&ask(0), at(0)) else {
        panic!("eight times 4 s are more than the queue's 30 s")
    };
}

#[test]
fn the_queue_is_bounded() {
    let queue: Params = toml::from_str("size = 2").expect("reads");
    let mut pool = Pool::new(1, &queue, &[member(1)], at(0));
    granted(pool.acquire(&ask(0), at(0)));
    let first = queued(pool.acquire(&ask(0), at(0)));
    queued(pool.acquire(&ask(0), at(0)));
    assert!(matches!(pool.acquire(&ask(0), at(0)), Answer::Refused { why: Shed::QueueFull, .. }));
    assert!(pool.cancel(first) && !pool.cancel(first));
    queued(pool.acquire(&ask(0), at(0)));
}

#[test]
fn four_requests_of_four_thousand_tokens_fill_a_card() {
    let by_tokens = Member { cap: 16, tokens_per_permit: Some(1_024), rate: None };
    let mut pool = pool(16, &[by_tokens]);
    let long = Ask { tokens: 4_096, ..ask(0) };
    for _ in 0..4 {
        assert_eq!(granted(pool.acquire(&long, at(0))), 4);
    }
    queued(pool.acquire(&Ask { tokens: 1, ..ask(0) }, at(0)));
    assert_eq!(pool.weight(0, u64::MAX), 16, "never more than all");
}

#[test]
fn nobody_passes_a_heavy_request_and_a_full_member_holds_up_nobody_else() {
    let by_tokens = Member { cap: 4, tokens_per_permit: Some(1), rate: None };
    let mut pool = pool(4, &[by_tokens, member(1)]);
    granted(pool.acquire(&Ask { tokens: 3, ..ask(0) }, at(0)));
    let heavy = queued(pool.acquire(&Ask { tokens: 4, ..ask(0) }, at(0)));
    queued(pool.acquire(&ask(1), at(0)));
    assert_eq!(pool.admit_next(), None, "the light one waits behind");
    pool.release(0, 3, 10, None);
    assert_eq!(pool.admit_next().map(|(t, ..)| t), Some(heavy));
    pool.release(0, 4, 10, None);
    assert!(pool.admit_next().is_some());
    // member 1 is full now, member 0 is not
    queued(pool.acquire(&ask(1), at(0)));
    granted(pool.acquire(&Ask { tokens: 1, ..ask(0) }, at(0)));
}

#[test]
fn a_request_rate_lets_a_burst_through_and_then_its_refill() {
    let rate = Rate { capacity: 32.0, refill_per_second: 8.0 };
    let mut pool = pool(1_000, &[Member { rate: Some(rate), ..member(1_000) }]);
    let pass = |pool: &mut Pool, ms| matches!(pool.acquire(&ask(0), at(ms)), Answer::Granted { .. });
    assert_eq!((0..50).filter(|_| pass(&mut pool, 0)).count(), 32);
    assert_eq!(
        pool.acquire(&ask(0), at(0)),
        Answer::Refused { why: Shed::Rate, retry_after_ms: 125 },
        "8 a second"
    );
    assert_eq!((0..50).filter(|_| pass(&mut pool, 1_000)).count(), 8);
}

#[test]
fn permits_follow_the_ramp_and_shrink_while_degraded() {
    let mut pool = pool(40, &[member(40)]);
    let ramped = |share| Ask { share, ..ask(0) };
    granted(pool.acquire(&ramped(0.1), at(0)));
    assert_eq!(pool.limit(0), 4);
    pool.release(0, 1, 10, Some(true));
    granted(pool.acquire(&ramped(0.01), at(0)));
    assert_eq!(pool.limit(0), 1, "one call can always show that it is well");
    pool.release(0, 1, 10, Some(true));
    let degraded = Ask { degraded: true, ..ask(0) };
    for _ in 0..40 {
        if let Answer::Granted { weight } = pool.acquire(&degraded, at(0)) {
            pool.release(0, weight, 10, Some(false));
        }
    }
    assert_eq!(pool.limit(0), 4, "to a tenth, never to nothing");
    for _ in 0..2_000 {
        if let Answer::Granted { weight } = pool.acquire(&ask(0), at(0)) {
            pool.release(0, weight, 10, Some(true));
        }
    }
    assert_eq!(pool.limit(0), 40);
    granted(pool.acquire(&ask(0), at(0)));
    pool.release(0, 1, 10, Some(false));
    assert_eq!(pool.limit(0), 40, "one bad answer of a target that is well is chance");
}

#[test]
fn shadow_counts_every_call_and_says_what_would_have_been() {
    let queue: Params = toml::from_str("size = 1").expect("reads");
    let mut pool = Pool::new(1, &queue, &[member(1)], at(0));
    let said: Vec<_> = (0..4).map(|_| pool.observe(&ask(0), at(0)).1).collect();
    assert_eq!(said, [None, None, Some(Shed::QueueFull), Some(Shed::QueueFull)]);
    assert_eq!(pool.total_in_use(), 4);
    (0..4).for_each(|_| pool.release(0, 1, 5, None));
    assert_eq!(pool.total_in_use(), 0);
}

#[test]
fn another_configuration_keeps_what_is_out() {
    let mut pool = pool(3, &[member(3)]);
    for _ in 0..3 {
        granted(pool.acquire(&ask(0), at(0)));
    }
    pool.reconfigure(2, &Params::default(), &[member(2)], at(1));
    pool.release(0, 1, 1, None);
    queued(pool.acquire(&ask(0), at(1)));
    pool.release(0, 1, 1, None);
    assert!(pool.admit_next().is_some());
    assert_eq!(pool.total_in_use(), 2);
}

#[derive(Clone, Debug)]
enum Deed {
    Ask {
        member: usize,
        tokens: u64,
        patience_ms: u64,
        share: f64,
        degraded: bool,
    },
    /// The n-th of those that hold a permit ends: sound, failed, or dropped (panic, cancel, disconnect).
    End(usize, Option<bool>),
    /// The n-th of those that wait leaves.
    Leave(usize),
    /// The clock moves, also backwards, also by a day.
    Move(i64),
    Limit(u32),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (0usize..3, 0u64..9_000, 0u64..40_000, 0.0..=1.0f64, any::<bool>()).prop_map(
            |(member, tokens, patience_ms, share, degraded)| Deed::Ask { member, tokens, patience_ms, share, degraded }
        ),
        3 => (0usize..50, any::<Option<bool>>()).prop_map(|(n, sound)| Deed::End(n, sound)),
        1 => (0usize..50).prop_map(Deed::Leave),
        1 => prop_oneof![-90_000_000i64..90_000_000, -1_000i64..1_000].prop_map(Deed::Move),
        1 => (1u32..9).prop_map(Deed::Limit),
    ]
}

proptest! {
    #[test]
    fn permits_never_exceed_the_limit_and_return_to_nothing(
        deeds in proptest::collection::vec(deed(), 1..200),
        (size, limit) in (0usize..8, 1u32..9),
    ) {
        let queue: Params = toml::from_str(&format!("size = {size}")).expect("reads");
        let rate = Rate { capacity: 5.0, refill_per_second: 2.0 };
        let members = |limit| [
            Member { cap: limit, tokens_per_permit: Some(1_000), rate: None },
            member(2),
            Member { rate: Some(rate), ..member(limit) },
        ];
        let (mut limit, mut now) = (limit, 100_000_000i64);
        let mut pool = Pool::new(limit, &queue, &members(limit), at(now as u64));
        let mut holding: Vec<(usize, u32)> = Vec::new();
        let mut waiting: Vec<Ticket> = Vec::new();
        for deed in deeds {
            let before = pool.total_in_use();
            match deed {
                Deed::Ask { member, tokens, patience_ms, share, degraded } => {
                    let ask = Ask { member, tokens, patience_ms, share, degraded };
                    match pool.acquire(&ask, at(now as u64)) {
                        Answer::Granted { weight } => holding.push((member, weight)),
                        Answer::Queued { ticket, patience_ms: wait } => {
                            prop_assert!(wait <= patience_ms && wait <= 30_000);
                            waiting.push(ticket);
                        }
                        Answer::Refused { retry_after_ms, .. } => prop_assert!(retry_after_ms > 0),
                    }
                }
                Deed::End(n, sound) if !holding.is_empty() => {
                    let (member, weight) = holding.swap_remove(n % holding.len());
                    pool.release(member, weight, n as u64 * 100, sound);
                }
                Deed::Leave(n) if !waiting.is_empty() => {
                    let ticket = waiting.swap_remove(n % waiting.len());
                    prop_assert!(pool.cancel(ticket));
                }
                Deed::Move(by) => now = (now + by).max(0),
                Deed::Limit(new) => {
                    limit = new;
                    pool.reconfigure(limit, &queue, &members(limit), at(now as u64));
                }
                _ => {}
            }
            while let Some((ticket, member, weight)) = pool.admit_next() {
                waiting.retain(|t| *t != ticket);
                holding.push((member, weight));
            }
            prop_assert_eq!(pool.total_in_use(), holding.iter().map(|(_, w)| *w).sum::<u32>());
            prop_assert!(pool.total_in_use() <= limit.max(before), "only a smaller limit leaves more out");
            prop_assert!(waiting.len() <= size);
            if holding.is_empty() {
                prop_assert!(waiting.is_empty(), "with nothing in flight nobody waits");
            }
        }
        for (member, weight) in std::mem::take(&mut holding) {
            pool.release(member, weight, 1, None);
            while let Some((ticket, member, weight)) = pool.admit_next() {
                waiting.retain(|t| *t != ticket);
                pool.give_back(member, weight);
            }
        }
        prop_assert!(waiting.is_empty(), "nobody is left waiting");
        prop_assert_eq!(pool.total_in_use(), 0);
        prop_assert_eq!((0..3).map(|m| pool.in_use(m) + pool.waiting(m)).sum::<u32>(), 0);
    }
}
