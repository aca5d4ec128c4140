use proptest::prelude::*;

use super::*;
use crate::clock::Timestamp;

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

const fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(1_000 * DAY + ms)
}

fn params(text: &str) -> Params {
    toml::from_str(text).expect(text)
}

fn usd(x: f64) -> Nano {
    Nano::from_usd(x)
}

fn hour(book: &Book, scope: &str, ms: u64) -> Account {
    let accounts = book.accounts(at(ms));
    accounts.into_iter().find(|a| &*a.scope == scope && a.span == Span::Hour).expect("an account")
}

#[test]
fn a_dollar_is_a_billion_and_fractions_do_not_drift() {
    assert_eq!(usd(0.42 / 1e6), Nano(420));
    assert_eq!(usd(0.1).plus(usd(0.2)), usd(0.3));
    assert_eq!((usd(f64::NAN), usd(-1.0)), (Nano::ZERO, Nano::ZERO));
    assert!((usd(1.02).usd() - 1.02).abs() < 1e-12);
}

#[test]
fn many_small_requests_together_cannot_pass_a_spent_budget() {
    let mut book = Book::new(&params("per_hour_usd = 1.0"), 1);
    let scopes = book.scopes("r", None, None);
    let held: Vec<_> = (0..500).filter_map(|_| book.reserve(at(0), scopes, usd(0.01)).ok()).collect();
    assert_eq!(held.len(), 100, "reserved at once, before any was settled");
    let denied = book.reserve(at(0), scopes, usd(0.01));
    assert!(matches!(&denied, Err(Denied::Spent { scope, span: Span::Hour, .. }) if &**scope == "global"));
    for reservation in held {
        let kept = book.settle(at(1_000), reservation, usd(0.005));
        assert_eq!(kept.len(), 2, "global and route");
    }
    assert_eq!(hour(&book, "global", 1_000).spent, usd(0.5));
    assert_eq!((0..500).filter(|_| book.reserve(at(2_000), scopes, usd(0.01)).is_ok()).count(), 50);
}

#[test]
fn a_window_slides_and_says_when_it_frees() {
    let mut book = Book::new(&params("per_hour_usd = 1.0\nper_day_usd = 2.0"), 1);
    let scopes = book.scopes("r", None, None);
    let mut spend = |ms, x| match book.reserve(at(ms), scopes, usd(x)) {
        Ok(reservation) => {
            let _ = book.settle(at(ms), reservation, usd(x));
            Ok(())
        }
        Err(Denied::Spent { span, retry_after_ms, .. }) => Err((span, retry_after_ms)),
        Err(other) => panic!("{other:?}"),
    };
    assert_eq!(spend(0, 0.4), Ok(()));
    assert_eq!(spend(30 * MINUTE, 0.6), Ok(()));
    assert_eq!(spend(40 * MINUTE, 0.3), Err((Span::Hour, 21 * MINUTE)), "the first 0.4 leave after 61 min");
    assert_eq!(spend(61 * MINUTE, 0.3), Ok(()));
    assert_eq!(spend(3 * HOUR, 0.9), Err((Span::Day, DAY + MINUTE - 3 * HOUR)));
    assert_eq!(spend(DAY + 2 * MINUTE, 0.9), Ok(()));
}

#[test]
fn scopes_are_charged_together_and_the_tightest_denies() {
    let text = "per_hour_usd = 10.0\n[[budget]]\nroute = \"r\"\nper_hour_usd = 5.0\n\
                [[budget]]\nkey = \"team\"\nper_day_usd = 3.0\n\
                [[budget]]\nkey = \"team\"\nname = \"eval\"\nper_hour_usd = 1.0";
    let mut book = Book::new(&params(text), 1);
    let eval = book.scopes("r", Some("team"), Some("eval"));
    let team = book.scopes("r", Some("team"), None);
    let who = |denied: Result<Reservation, Denied>| match denied {
        Err(Denied::Spent { scope, .. }) => scope.to_string(),
        other => panic!("{other:?}"),
    };
    let first = book.reserve(at(0), eval, usd(1.0)).expect("fits");
    assert_eq!(who(book.reserve(at(0), eval, usd(0.1))), "key/team/eval");
    let second = book.reserve(at(0), team, usd(2.0)).expect("fits");
    assert_eq!(who(book.reserve(at(0), team, usd(0.1))), "key/team");
    let stranger = book.scopes("r", None, None);
    assert_eq!(who(book.reserve(at(0), stranger, usd(2.1))), "route/r");
    for reservation in [first, second] {
        let _ = book.settle(at(0), reservation, usd(1.0));
    }
    assert_eq!(hour(&book, "key/team/eval", 0).spent, usd(1.0));
    assert_eq!(hour(&book, "key/team", 0).spent, usd(2.0));
    assert_eq!(hour(&book, "global", 0).reserved, Nano::ZERO);
}

#[test]
fn one_request_may_not_cost_more_than_its_cap() {
    let mut book = Book::new(&params("per_request_usd = 0.5"), 1);
    let scopes = book.scopes("r", None, None);
    assert!(book.is_limited(scopes));
    assert!(book.reserve(at(0), scopes, usd(0.5)).is_ok());
    let denied = Denied::TooExpensive { amount: usd(0.6), limit: usd(0.5) };
    assert_eq!(book.reserve(at(0), scopes, usd(0.6)), Err(denied));
}

#[test]
fn the_pace_of_the_last_minutes_tells_the_end_of_the_hour() {
    let mut book = Book::new(&Params::default(), 1);
    let scopes = book.scopes("r", None, None);
    for minute in 0..30 {
        let _ = book.charge(at(minute * MINUTE + 1), scopes, usd(0.01));
    }
    let projected = hour(&book, "global", 30 * MINUTE - 1).projected.usd();
    assert!((projected - 0.60).abs() < 0.002, "{projected}");
}

#[test]
fn odd_budgets_are_refused_by_name() {
    for (text, key) in [
        ("per_hour_usd = -1.0", "per_hour_usd"),
        ("per_day_usd = nan", "per_day_usd"),
        ("default_max_tokens = 0", "default_max_tokens"),
        ("[[budget]]\nper_day_usd = 1.0", "budget[0].route"),
        ("[[budget]]\nroute = \"r\"\nkey = \"k\"\nper_day_usd = 1.0", "budget[0].route"),
        ("[[budget]]\nname = \"k\"\nper_day_usd = 1.0", "budget[0].name"),
        ("[[budget]]\nkey = \"k\"", "budget[0].per_hour_usd"),
        (
            "[[budget]]\nkey = \"k\"\nper_day_usd = 1.0\n[[budget]]\nkey = \"k\"\nper_day_usd = 1.0",
            "budget[1].key",
        ),
    ] {
        let fault = toml::from_str::<Params>(text).expect_err(text).to_string();
        assert!(fault.contains(key), "{text}: {fault}");
    }
}

#[test]
fn a_clock_set_back_a_day_forgets_nothing_and_waits_for_nothing() {
    let mut book = Book::new(&params("per_hour_usd = 1.0"), 1);
    let scopes = book.scopes("r", None, None);
    let _ = book.charge(at(2 * DAY), scopes, usd(0.9));
    assert!(book.reserve(at(DAY), scopes, usd(0.2)).is_err(), "still spent");
    assert!(book.reserve(at(DAY + 62 * MINUTE), scopes, usd(0.2)).is_ok(), "and free an hour later");
}

proptest! {
    #[test]
    fn admission_never_reserves_past_a_limit_and_a_restart_forgets_nothing(
        deeds in proptest::collection::vec((0u64..20 * MINUTE, 0u64..400, any::<bool>(), 0u64..500, any::<bool>()), 1..120),
        (hourly, daily) in (1u64..2_000, 1u64..4_000),
    ) {
        let text = format!("per_hour_usd = {:?}\nper_day_usd = {:?}", hourly as f64 / 1e9, daily as f64 / 1e9);
        let limits = params(&text);
        let mut book = Book::new(&limits, 7);
        let scopes = book.scopes("r", None, None);
        let mut now = 0;
        let (mut open, mut spent, mut kept): (Vec<Reservation>, Vec<(u64, u64)>, Vec<Minute>) = Default::default();
        let mut beyond: Vec<(u64, u64)> = Vec::new(); // what answers cost more than was set aside for them
        for (wait, amount, settles, cost, restarts) in deeds {
            now += wait;
            let reserved: u64 = open.iter().map(|r| r.amount.0).sum();
            let within = |span: u64| spent.iter().filter(|(t, _)| t + span > now).map(|(_, x)| *x).sum::<u64>();
            if let Ok(reservation) = book.reserve(at(now), scopes, Nano(amount)) {
                prop_assert!(within(HOUR) + reserved + amount <= hourly);
                prop_assert!(within(DAY) + reserved + amount <= daily);
                open.push(reservation);
            }
            if settles && !open.is_empty() {
                let reservation = open.swap_remove(0);
                beyond.push((now, cost.saturating_sub(reservation.amount.0)));
                kept.extend(book.settle(at(now), reservation, Nano(cost)));
                spent.push((now, cost));
            }
            let sum = |all: &[(u64, u64)], span: u64| all.iter().filter(|(t, _)| t + span > now).map(|(_, x)| *x).sum::<u64>();
            prop_assert!(sum(&spent, HOUR) <= hourly + sum(&beyond, HOUR), "the overshoot is what answers cost beyond");
            prop_assert!(sum(&spent, DAY) <= daily + sum(&beyond, DAY));
            if restarts {
                // what was under way is settled at its reservation, as it is not known to have cost less
                for reservation in open.drain(..) {
                    kept.extend(book.settle(at(now), reservation, reservation.amount));
                    spent.push((now, reservation.amount.0));
                }
                let before = book.accounts(at(now));
                book = Book::new(&limits, 8);
                book.restore(at(now), kept.iter().cloned());
                prop_assert_eq!(book.scopes("r", None, None), scopes);
                let money = |all: Vec<Account>| all.into_iter().map(|a| (a.scope, a.span.as_str(), a.spent)).collect::<Vec<_>>();
                prop_assert_eq!(money(book.accounts(at(now))), money(before));
            }
        }
    }
}
