use std::fs;
use std::path::Path;

use rusqlite::Connection;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::event::EventKind;
use crate::sample::{CheckResult, Signals, Timing, Usage};
use crate::verdict::{FaultClass, Flag, FlagSet, Source, Wire};

pub(super) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const QUICK: Duration = Duration::from_millis(50);

fn clock() -> Clock {
    Clock::manual(NOW)
}

fn open(path: &Path) -> Result<Store, StoreError> {
    Store::open_with(path.to_owned(), &Params::default(), clock(), QUICK, QUICK)
}

fn folder() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("data").join("touchstone.db");
    (dir, path)
}

fn event(id: u64, target: &str) -> Event {
    Event {
        id,
        at: NOW.plus_ms(id),
        kind: EventKind::BreakerTransition,
        target: Some(target.into()),
        route: None,
        reason: "golden_score".to_owned(),
        message: format!("event {id}"),
        data: json!({"from": "closed", "to": "open", "due": 7}),
    }
}

fn sample(at: Timestamp, source: Source, entropy: f64) -> Sample {
    Sample {
        at,
        request_id: "r".into(),
        route: "assistant".into(),
        target: "a".into(),
        source,
        wire: Wire::Chat,
        status: Some(200),
        class: Some(FaultClass::QualityHard),
        flags: FlagSet::from_iter([Flag::Repetition, Flag::Truncated]),
        signals: Signals { entropy_mean: Some(entropy), ..Signals::default() },
        usage: Usage::default(),
        timing: Timing { total_ms: 40, ..Timing::default() },
        request_hash: u64::MAX,
        prompt_id: Some("p1".into()),
        check: Some(CheckResult::Fail),
        first_position: None,
        prompt_text: Some("secret question".into()),
        answer_text: Some("secret answer".into()),
        partial: false,
        light: false,
        generation: 0,
    }
}

pub(super) fn exchange(id: &str, at: Timestamp, workflow: Option<&str>) -> Exchange {
    Exchange {
        id: id.into(),
        at,
        trace_id: "t".into(),
        workflow: workflow.map(Into::into),
        route: "assistant".into(),
        wire: Wire::Chat,
        attempts: Vec::new(),
        flags: FlagSet::EMPTY,
        signals: Signals::default(),
        usage: Usage::default(),
        cost_usd: Some(0.25),
        client_status: 200,
        partial: false,
        light: false,
        tier: "0".into(),
        target: Some("a".into()),
        degraded: None,
        ms: 12,
    }
}

/// Waits until the writer has answered, without a runtime.
fn settle(store: &Store) {
    let (done, answer) = oneshot::channel();
    store.send(Command::Flush(done));
    answer.blocking_recv().expect("the writer lives");
}

/// What a killed process leaves: the files as they are, without any goodbye.
fn as_after_a_kill(path: &Path) -> (TempDir, PathBuf) {
    let (dir, copy) = folder();
    fs::create_dir_all(copy.parent().expect("in a folder")).expect("makes it");
    for suffix in ["", "-wal"] {
        let from = PathBuf::from(format!("{}{suffix}", path.display()));
        fs::copy(&from, format!("{}{suffix}", copy.display())).expect("copies");
    }
    (dir, copy)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..400 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

#[test]
fn an_acknowledged_event_and_the_state_before_it_outlive_a_kill() {
    let (_dir, path) = folder();
    let store = open(&path).expect("opens");
    for id in 1..=20 {
        store.save_state("breaker/a", json!({"state": "open", "due": id}));
        assert_eq!(store.record_event(event(id, "a")).durable_blocking().ok(), Some(id));
    }
    let (_copy, copy) = as_after_a_kill(&path);
    let revived = open(&copy).expect("opens");
    assert_eq!(revived.last_event_id_blocking(), 20);
    assert_eq!(revived.states_blocking()["breaker/a"], json!({"state": "open", "due": 20}));
    let events = revived.reader().events(&EventQuery::default()).expect("reads");
    assert_eq!(events.iter().map(|e| e.id).collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>());
    assert_eq!(events[4].message, "event 5");
    assert_eq!(events[4].data, json!({"from": "closed", "to": "open", "due": 7}));
}

#[test]
fn events_are_found_by_number_time_target_and_kind() {
    let (_dir, path) = folder();
    let store = open(&path).expect("opens");
    for id in 1..=10 {
        let mut event = event(id, if id % 2 == 0 { "a" } else { "b" });
        if id > 8 {
            event.kind = EventKind::Finding;
        }
        assert!(store.record_event(event).durable_blocking().is_ok());
    }
    let ids = |query: EventQuery| {
        let found = store.reader().events(&query).expect("reads");
        found.iter().map(|e| e.id).collect::<Vec<_>>()
    };
    let all = EventQuery::default;
    assert_eq!(ids(EventQuery { limit: 3, ..all() }), [8, 9, 10], "the newest, newest last");
    assert_eq!(ids(EventQuery { after_id: Some(2), limit: 3, ..all() }), [3, 4, 5], "the next ones");
    assert_eq!(ids(EventQuery { since: Some(NOW.plus_ms(9)), ..all() }), [9, 10]);
    assert_eq!(ids(EventQuery { target: Some("a".to_owned()), ..all() }), [2, 4, 6, 8, 10]);
    assert_eq!(ids(EventQuery { kind: Some(EventKind::Finding), ..all() }), [9, 10]);
}

#[test]
fn a_number_that_is_taken_or_missing_loses_no_event() {
    let (_dir, path) = folder();
    let store = open(&path).expect("opens");
    assert_eq!(store.record_event(event(7, "a")).durable_blocking().ok(), Some(7));
    assert_eq!(store.record_event(event(7, "b")).durable_blocking().ok(), Some(8));
    assert_eq!(store.record_event(event(0, "c")).durable_blocking().ok(), Some(9));
    assert_eq!(store.reader().events(&EventQuery::default()).expect("reads").len(), 3);
}

#[test]
fn samples_are_stored_without_their_texts() {
    let (_dir, path) = folder();
    let store = open(&path).expect("opens");
    store.record_sample(Box::new(sample(NOW, Source::Burst, 1.5)));
    settle(&store);
    let rows = store.reader().samples(Some("a"), Timestamp::ZERO, 0).expect("reads");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].signals.entropy_mean, Some(1.5));
    assert_eq!(rows[0].flags.to_string(), "repetition,truncated");
    assert_eq!(rows[0].class, Some(FaultClass::QualityHard));
    assert_eq!((rows[0].source, rows[0].passed), (Source::Burst, Some(false)));
    drop(store);
    until("the file is closed", || !PathBuf::from(format!("{}-wal", path.display())).exists());
    let bytes = fs::read(&path).expect("reads");
    assert!(!bytes.windows(6).any(|w| w == b"secret"), "no text reaches the disk");

    let keeping: Params = serde_json::from_value(json!({"keep_text": true})).expect("reads");
    let store = Store::open(&path, &keeping, clock()).expect("opens");
    store.record_sample(Box::new(sample(NOW, Source::Live, 1.5)));
    settle(&store);
    let db = Connection::open(&path).expect("opens");
    let text: String = db
        .query_row("SELECT answer_text FROM samples ORDER BY id DESC LIMIT 1", [], |r| r.get(0))
        .expect("reads");
    assert_eq!(text, "secret answer");
}

#[test]
fn a_history_adds_up_over_batches_and_keeps_probes_apart() {
    let (_dir, path) = folder();
    let store = open(&path).expect("opens");
    for (i, entropy) in [1.0, 2.0, 6.0].into_iter().enumerate() {
        store.record_sample(Box::new(sample(NOW.plus_ms(i as u64), Source::Live, entropy)));
        settle(&store);
    }
    store.record_sample(Box::new(sample(NOW, Source::Canary, 100.0)));
    store.record_sample(Box::new(sample(NOW.plus_ms(120_000), Source::Live, f64::NAN)));
    store.record_sample(Box::new(sample(NOW.plus_ms(180_000), Source::Live, 4.0)));
    store.record_point("a".into(), "confidence_variance", NOW, 0.5);
    settle(&store);
    let history = |signal: &str, step_ms| {
        let query = HistoryQuery {
            target: "a".to_owned(),
            signal: signal.to_owned(),
            since: NOW,
            until: NOW.plus_ms(600_000),
            step_ms,
        };
        store.reader().history(&query).expect("reads")
    };
    let first = Point { at: NOW, count: 3, mean: 3.0, min: 1.0, max: 6.0 };
    let later = Point { at: NOW.plus_ms(180_000), count: 1, mean: 4.0, min: 4.0, max: 4.0 };
    assert_eq!(history("entropy_mean", 0), [first, later]);
    let all = Point { at: NOW, count: 4, mean: 3.25, min: 1.0, max: 6.0 };
    assert_eq!(history("entropy_mean", 300_000), [all]);
    assert_eq!(history("canary.entropy_mean", 60_000)[0].count, 1);
    assert_eq!(history("confidence_variance", 60_000)[0].mean.to_string(), "0.5");
    assert_eq!(history("golden_accuracy", 60_000)[0].mean.to_string(), "0", "the check failed each time");
    let drift = Signals { drift: Some(0.25), ..Signals::default() };
    store.record_sample(Box::new(Sample { signals: drift, ..sample(NOW, Source::Live, 1.0) }));
    settle(&store);
    assert_eq!(history("drift", 60_000), history("drift_cosine", 60_000));
    assert_eq!(history("drift", 60_000)[0].count, 1);
    assert!(history("nothing", 60_000).is_empty());
    assert!(store.reader().signals("a").expect("reads").contains(&"hard_fault_ratio".to_owned()));
}

#[tokio::test]
async fn an_exchange_is_found_at_once_and_after_a_restart() {
    let (_dir, path) = folder();
    let store = open(&path).expect("opens");
    store.record_exchange(Arc::new(exchange("x2", NOW.plus_ms(5), Some("run-1"))));
    store.record_exchange(Arc::new(exchange("x1", NOW, Some("run-1"))));
    store.record_exchange(Arc::new(exchange("x3", NOW, None)));
    let found = store.exchange("x2".to_owned()).await.expect("reads").expect("is there");
    assert_eq!(found.cost_usd, Some(0.25));
    assert_eq!(store.exchange("none".to_owned()).await.expect("reads").map(|e| e.ms), None);
    store.flush().await;
    let timeline = store.workflow("run-1".to_owned()).await.expect("reads");
    assert_eq!(timeline.iter().map(|e| &*e.id).collect::<Vec<_>>(), ["x1", "x2"], "once each, by time");

    let (_copy, copy) = as_after_a_kill(&path);
    let revived = open(&copy).expect("opens");
    assert!(revived.exchange("x3".to_owned()).await.expect("reads").is_some());
    assert_eq!(revived.workflow("run-1".to_owned()).await.expect("reads").len(), 2);
}

#[tokio::test]
async fn the_latest_baseline_is_given_back() {
    let (_dir, path) = folder();
    let store = open(&path).expect("opens");
    for (made_at, compression_max) in [(2, 5.0), (1, 4.0)] {
        store.record_baseline(Baseline {
            target: "a".into(),
            made_at: Timestamp::from_millis(made_at),
            compression_max,
            ..Baseline::default()
        });
    }
    store.flush().await;
    let found = store.baseline("a".to_owned()).await.expect("reads").expect("is there");
    assert_eq!(found.made_at, Timestamp::from_millis(2));
    assert!(store.baseline("b".to_owned()).await.expect("reads").is_none());
}

#[test]
fn a_damaged_file_is_refused_by_name_and_left_as_it_is() {
    let (_dir, path) = folder();
    fs::create_dir_all(path.parent().expect("in a folder")).expect("makes it");
    fs::write(&path, "this is no database, but somebody's notes\n".repeat(100)).expect("writes");
    let before = fs::read(&path).expect("reads");
    let error = open(&path).expect_err("refused");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("touchstone.db"), "{error}");
    assert_eq!(fs::read(&path).expect("reads"), before);
}

#[test]
fn damage_inside_a_file_is_found_at_start() {
    let (_dir, path) = folder();
    let store = open(&path).expect("opens");
    for id in 1..=200 {
        drop(store.record_event(event(id, "a")));
    }
    settle(&store);
    drop(store);
    until("the file is closed", || !PathBuf::from(format!("{}-wal", path.display())).exists());
    let mut bytes = fs::read(&path).expect("reads");
    for byte in bytes.iter_mut().skip(4_096) {
        *byte = 0xA5;
    }
    fs::write(&path, &bytes).expect("writes");
    let error = open(&path).expect_err("refused");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert_eq!(fs::read(&path).expect("reads"), bytes);
}

#[test]
fn a_newer_or_foreign_file_is_refused_and_left_as_it_is() {
    let (_dir, path) = folder();
    drop(open(&path).expect("opens"));
    until("the file is closed", || !PathBuf::from(format!("{}-wal", path.display())).exists());
    let db = Connection::open(&path).expect("opens");
    db.pragma_update(None, "user_version", 99).expect("sets");
    drop(db);
    let error = open(&path).expect_err("refused");
    assert!(error.to_string().contains("format 99"), "{error}");

    let (_dir, path) = folder();
    fs::create_dir_all(path.parent().expect("in a folder")).expect("makes it");
    Connection::open(&path).expect("opens").execute_batch("CREATE TABLE t (x)").expect("makes");
    let before = fs::read(&path).expect("reads");
    assert!(matches!(open(&path), Err(StoreError::Foreign { .. })));
    assert_eq!(fs::read(&path).expect("reads"), before);
}

#[test]
fn an_unfinished_migration_goes_on_where_it_stopped() {
    let (_dir, path) = folder();
    fs::create_dir_all(path.parent().expect("in a folder")).expect("makes it");
    let db = Connection::open(&path).expect("opens");
    db.pragma_update(None, "application_id", 0x544F_5543).expect("sets");
    drop(db); // killed before the first table
    let store = open(&path).expect("opens");
    assert!(store.record_event(event(1, "a")).durable_blocking().is_ok());
    let db = Connection::open(&path).expect("opens");
    assert_eq!(schema::pragma(&db, "user_version").ok(), Some(2));
}

#[test]
fn a_locked_file_turns_the_store_into_memory_until_it_is_free() {
    let (_dir, path) = folder();
    let store = open(&path).expect("opens");
    assert!(store.record_event(event(1, "a")).durable_blocking().is_ok());
    let other = Connection::open(&path).expect("opens");
    other.execute_batch("BEGIN EXCLUSIVE").expect("locks");
    let ack = store.record_event(event(2, "a")).durable_blocking();
    assert!(matches!(ack, Err(StoreError::Unavailable { .. })), "not durable is not called durable");
    let health = store.health();
    assert_eq!((health.state, health.write_failures), ("memory_only", 1));
    assert!(health.reason.is_some_and(|reason| reason.contains("locked")));
    store.record_sample(Box::new(sample(NOW, Source::Live, 1.0)));
    settle(&store);
    assert_eq!(store.health().dropped, 1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
    let seen = runtime.block_on(store.events(EventQuery::default())).expect("reads");
    assert_eq!(seen.iter().map(|e| e.id).collect::<Vec<_>>(), [1, 2], "memory and file together");
    other.execute_batch("COMMIT").expect("unlocks");
    until("it recovers", || store.health().state == "ok");
    assert_eq!(store.reader().events(&EventQuery::default()).expect("reads").len(), 2);
    let seen = runtime.block_on(store.events(EventQuery::default())).expect("reads");
    assert_eq!(seen.len(), 2, "once each");
}

#[test]
fn a_full_disk_turns_the_store_into_memory_until_there_is_room() {
    let (_dir, path) = folder();
    let params = Params::default();
    let store = open(&path).expect("opens");
    let shared = Arc::clone(&store.shared);
    drop(store);
    until("the lock is free", || schema::open(&path).is_ok());
    let file = schema::open(&path).expect("opens");
    let pages = schema::pragma(&file.connection, "page_count").expect("reads");
    file.connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).expect("sets");
    let (feed, intake) = queue::queue();
    let writer = Writer::new(Arc::clone(&shared), params, clock(), Some(file), QUICK);
    std::thread::spawn(move || writer.run(&intake));
    let store = Store { shared, feed: Arc::new(feed), reader: Reader::new(&path) };
    let mut big = event(1, "a");
    big.message = "x".repeat(100_000);
    let ack = store.record_event(big).durable_blocking();
    assert!(matches!(ack, Err(StoreError::Unavailable { .. })), "{ack:?}");
    assert!(store.health().reason.is_some_and(|reason| reason.contains("full")));
    assert_eq!(store.reader().events(&EventQuery::default()).expect("still reads").len(), 0);
}

#[test]
fn a_folder_that_cannot_be_written_means_memory_only() {
    let (dir, _) = folder();
    let blocked = dir.path().join("a-file");
    fs::write(&blocked, "").expect("writes");
    let path = blocked.join("touchstone.db"); // below a file: not even root can make it
    let store = open(&path).expect("degrades");
    assert_eq!(store.health().state, "memory_only");
    assert!(store.record_event(event(1, "a")).durable_blocking().is_err());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("builds");
    assert_eq!(runtime.block_on(store.events(EventQuery::default())).expect("reads").len(), 1);
    assert!(store.states_blocking().is_empty());
    fs::remove_file(&blocked).expect("removes");
    until("it recovers", || store.health().state == "ok");
    assert_eq!(store.reader().events(&EventQuery::default()).expect("reads").len(), 1);
}

#[test]
fn a_second_daemon_does_not_share_the_file() {
    let (_dir, path) = folder();
    let first = open(&path).expect("opens");
    let second = open(&path).expect("degrades");
    assert_eq!(first.health().state, "ok");
    assert!(second.health().reason.is_some_and(|reason| reason.contains("another process")));
    drop(first);
    until("the file is free", || second.health().state == "ok");
}

#[test]
fn a_full_queue_drops_samples_and_blocks_nobody() {
    let (_dir, path) = folder();
    let shared = Arc::clone(&open(&path).expect("opens").shared);
    let (feed, _intake) = queue::queue(); // nobody reads it
    let store = Store { shared, feed: Arc::new(feed), reader: Reader::new(&path) };
    until("the first writer is idle", || store.health().queued == 0);
    for _ in 0..MAX_QUEUED_SAMPLES + 10 {
        store.record_sample(Box::new(sample(NOW, Source::Canary, 1.0)));
    }
    assert_eq!(store.health().dropped, 10);
    let mut ack = store.record_event(event(1, "a"));
    assert!(ack.0.try_recv().is_err(), "an event still finds a place");
}

#[test]
fn what_is_old_goes_and_a_large_file_shrinks_from_the_oldest_sample() {
    let (_dir, path) = folder();
    let mut file = schema::open(&path).expect("opens");
    let mut batch = rows::Batch::default();
    for i in 0..9_000_u64 {
        batch.samples.push(sample(NOW.plus_ms(i), Source::Live, 1.0));
    }
    batch.samples.push(sample(Timestamp::from_millis(5), Source::Live, 1.0));
    batch.events.push((event(1, "a"), None));
    rows::write(&mut file.connection, &batch).expect("writes");
    let count = |db: &Connection, table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        db.query_row(&sql, [], |row| row.get::<_, i64>(0)).expect("counts")
    };
    let now = NOW.plus_ms(10_000);
    assert_eq!(retention::run(&file.connection, now, 60_000, u64::MAX).ok(), Some(false));
    assert_eq!(count(&file.connection, "samples"), 9_000, "one was older than a minute");
    let before = retention::used_bytes(&file.connection).expect("reads");
    let most = u64::try_from(before).expect("positive") / 2;
    assert_eq!(retention::run(&file.connection, now, 60_000, most).ok(), Some(false));
    assert!(retention::used_bytes(&file.connection).expect("reads") <= before / 2);
    assert_eq!(count(&file.connection, "samples"), 4_000);
    let oldest: i64 =
        file.connection.query_row("SELECT min(at) FROM samples", [], |row| row.get(0)).expect("reads");
    assert!(oldest > rows::int(NOW.as_millis()), "the oldest went first");
    assert_eq!(count(&file.connection, "events"), 1, "events go last");
    assert!(retention::run(&file.connection, now, 60_000, 1).is_ok(), "an impossible size ends all the same");
    assert_eq!(count(&file.connection, "events"), 0);
    assert_eq!(schema::pragma(&file.connection, "freelist_count").ok(), Some(0), "given back");
}

#[test]
fn numbers_of_events_are_never_used_twice() {
    let (_dir, path) = folder();
    let store = open(&path).expect("opens");
    assert!(store.record_event(event(41, "a")).durable_blocking().is_ok());
    let db = Connection::open(&path).expect("opens");
    db.execute("DELETE FROM events", []).expect("deletes");
    assert_eq!(store.last_event_id_blocking(), 41);
}

#[test]
fn parameters_are_strict() {
    let read = |value| serde_json::from_value::<Params>(value).map_err(|e| e.to_string());
    assert_eq!(read(json!({})), Ok(Params::default()));
    for (bad, word) in [
        (json!({"retention": "5m"}), "retention"),
        (json!({"max_mb": 1}), "max_mb"),
        (json!({"max_mb": -1}), "-1"),
        (json!({"keep_texts": true}), "keep_texts"),
    ] {
        let error = read(bad).expect_err(word);
        assert!(error.contains(word), "{error}");
    }
    let there = read(json!({"path": "/x/y.db"})).expect("reads");
    assert_eq!(there.file(Path::new("/data")), Path::new("/x/y.db"));
    assert_eq!(Params::default().file(Path::new("/data")), Path::new("/data/touchstone.db"));
}

#[test]
fn money_outlives_a_crash_and_what_was_under_way_is_charged_as_set_aside() {
    let (_dir, path) = folder();
    let open = || open(&path).expect("opens");
    let at = NOW;
    let row = |nano| MoneyRow { scope: "global".into(), at: NOW, nano };
    let scopes = || vec![Arc::<str>::from("global"), "route/r".into()];
    {
        let store = open();
        let _ = store.open_money(1, at, "t".into(), scopes(), 500, false);
        store.settle_money(1, vec![row(70)]);
        let ack = store.open_money(2, at, "t".into(), scopes(), 900, true).expect("an answer to come");
        assert!(ack.durable_blocking().is_ok());
        let ack = store.open_money(3, at, "t".into(), scopes(), 1, true).expect("an answer to come");
        assert!(ack.durable_blocking().is_ok());
        store.settle_money(3, vec![row(2)]);
        assert_eq!(store.last_event_id_blocking(), 0);
        drop(store); // nobody settles number 2 any more
    }
    wait_until_free(&path);
    let sum = |store: &Store, scope: &str| {
        store.money_blocking().iter().filter(|r| &*r.scope == scope).map(|r| r.nano).sum::<u64>()
    };
    let store = open();
    assert_eq!((sum(&store, "global"), sum(&store, "route/r")), (70 + 2 + 900, 900));
    drop(store);
    wait_until_free(&path);
    let again = open();
    assert_eq!(sum(&again, "global"), 972, "it is charged once");
}

/// The writer's thread ends a moment after the last handle.
fn wait_until_free(path: &Path) {
    let watch = crate::clock::Stopwatch::start();
    while schema::open(path).is_err() && watch.elapsed_ms() < 5_000 {
        std::thread::sleep(Duration::from_millis(10));
    }
}
