use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::clock::Clock;
use crate::detect::Finding;
use crate::store::{Params, Store};

const DAY_MS: u64 = 86_400_000;

fn event(at: u64, kind: EventKind, reason: &str, data: serde_json::Value) -> Event {
    Event {
        id: 0,
        at: Timestamp::from_millis(at),
        kind,
        target: Some(Arc::from("a")),
        route: None,
        reason: reason.to_owned(),
        message: format!("because {reason}"),
        data,
    }
}

fn finding(at: u64, arm: Arm) -> Event {
    let finding = Finding {
        at: Timestamp::from_millis(at),
        route: None,
        arm,
        level: Level::Suspect,
        reason: "canary_shift".to_owned(),
        statistic: 3e4,
        n: 5,
        limit: 2e4,
        arl0: Some(1e4),
        onset: None,
        message: String::new(),
    };
    event(at, EventKind::Finding, "canary_shift", serde_json::to_value(finding).expect("json"))
}

fn account(events: Vec<Event>) -> (Account, u64) {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("t.db");
    let now = Clock::system().now();
    let base = now.minus_ms(2 * DAY_MS).as_millis();
    let store = Store::open(file.clone(), &Params::default(), Clock::system()).expect("opens");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        for mut event in events {
            event.at = event.at.plus_ms(base);
            store.record_event(event).durable().await.expect("on disk");
        }
        store.save_state("target/a".to_owned(), json!({ "health": { "quality": "healthy" } }));
        store.flush().await;
    });
    let account = read(&Reader::new(&file), Timestamp::from_millis(base), now).expect("readable");
    drop(store);
    (account, base)
}

#[test]
fn openings_have_their_stretch_and_reason_and_half_open_belongs_to_it() {
    let to = |state: &str| json!({ "from": "closed", "to": state });
    let (account, base) = account(vec![
        event(1_000, EventKind::WouldOpen, "golden_burst", to("open")),
        event(2_000, EventKind::BreakerTransition, "due", to("half_open")),
        event(3_000, EventKind::WouldOpen, "burst_failed", to("open")),
        event(9_000, EventKind::BreakerTransition, "burst_passed", to("closed")),
        event(20_000, EventKind::BreakerTransition, "hard_faults", to("open")),
    ]);
    let openings = &account.targets["a"].openings;
    assert_eq!(openings.len(), 2, "{openings:#?}");
    assert_eq!((openings[0].reason.as_str(), openings[0].enforced), ("golden_burst", false));
    assert_eq!(openings[0].until, Some(Timestamp::from_millis(base + 9_000)));
    assert_eq!((openings[1].enforced, openings[1].until), (true, None));
    let page = super::super::page::text(&account);
    assert!(page.contains("would have opened for 8s (golden_burst): because golden_burst"), "{page}");
    assert!(super::super::page::html(&account).contains("still open"));
}

#[test]
fn time_in_each_state_adds_up_and_alarms_are_held_against_their_promise() {
    let change = |from: &str, to: &str| json!({ "from": from, "to": to });
    let hour = 3_600_000;
    let (account, base) = account(vec![
        event(hour, EventKind::HealthChange, "calibrated", change("unknown", "healthy")),
        finding(2 * hour, Arm::A1),
        event(2 * hour, EventKind::HealthChange, "canary_shift", change("healthy", "suspect")),
        event(2 * hour + 60_000, EventKind::Burst, "sound", json!({})),
        event(2 * hour + 60_000, EventKind::HealthChange, "cleared", change("suspect", "healthy")),
    ]);
    let target = &account.targets["a"];
    assert_eq!((target.health_ms["unknown"], target.health_ms["suspect"]), (hour, 60_000));
    let whole: u64 = target.health_ms.values().sum();
    assert_eq!(whole, account.until.ms_since(Timestamp::from_millis(base)));
    assert_eq!((target.suspicions["healthy"], target.bursts["sound"]), (1, 1));
    let a1 = target.arms.iter().find(|k| k.arm == Arm::A1).expect("listed");
    assert_eq!((a1.alarms, a1.observations, a1.allowed, a1.is_kept()), (1, 0, 0, false));
    assert!(
        account.recommendation.iter().any(|l| l.contains("calibrate it again")),
        "{:?}",
        account.recommendation
    );
}

#[test]
fn a_quiet_period_recommends_to_enforce_and_an_empty_one_says_so() {
    let change = json!({ "from": "unknown", "to": "healthy" });
    let (quiet, _) = account(vec![event(1, EventKind::HealthChange, "calibrated", change)]);
    assert_eq!(quiet.recommendation.len(), 1);
    assert!(quiet.recommendation[0].contains("enforcing is safe"), "{:?}", quiet.recommendation);
    let nothing = recommend(&Account { until: Timestamp::from_millis(9 * DAY_MS), ..Account::default() });
    assert!(nothing[0].contains("nothing was recorded"));
}
