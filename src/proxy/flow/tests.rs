use std::time::Duration;

use super::*;

fn flow(text: &str) -> Arc<Flow> {
    let target: TargetParams =
        toml::from_str(&format!("name = \"a\"\nurl = \"http://h\"\n{text}")).expect("a target");
    let (queue, retry) = (permits::Params::default(), retry::Params::default());
    flows(&[target], &queue, &retry, &[]).remove(0)
}

const fn wanted(patience_ms: u64) -> Wanted {
    Wanted { tokens: 0, patience_ms, share: 1.0, degraded: false }
}

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn in_use(flow: &Flow) -> (u32, u32) {
    let view = flow.view(&retry::Params::default(), NOW);
    (view.permits_in_use, view.queue_depth)
}

#[tokio::test]
async fn a_waiting_request_gets_the_permit_that_is_given_back() {
    let flow = flow("max_concurrency = 1");
    let first = flow.acquire(wanted(1_000), NOW).await.expect("free");
    let twin = Arc::clone(&flow);
    let second = tokio::spawn(async move { twin.acquire(wanted(1_000), NOW).await });
    tokio::task::yield_now().await;
    assert_eq!(in_use(&flow), (1, 1));
    drop(first);
    let second = second.await.expect("no panic").expect("granted");
    assert_eq!(in_use(&flow), (1, 0));
    drop(second);
    assert_eq!(in_use(&flow), (0, 0));
}

#[tokio::test]
async fn waiting_in_vain_ends_with_a_refusal_and_leaves_nothing_behind() {
    let flow = flow("max_concurrency = 1");
    let held = flow.acquire(wanted(1_000), NOW).await.expect("free");
    let refused = flow.acquire(wanted(1_000), NOW).await;
    assert!(matches!(refused, Err((Shed::Late, after)) if after > 0));
    assert_eq!(in_use(&flow), (1, 0));
    drop(held);
    assert_eq!(in_use(&flow), (0, 0));
    assert_eq!(flow.view(&retry::Params::default(), NOW).shed, [("deadline", 1)]);
}

#[tokio::test]
async fn no_permit_leaks_over_cancel_panic_timeout_and_disconnect() {
    let flow = flow("max_concurrency = 3");
    let mut rng = fastrand::Rng::with_seed(7);
    let mut tasks = Vec::new();
    for i in 0..400u64 {
        let flow = Arc::clone(&flow);
        let (patience, work, fate) = (rng.u64(0..50), rng.u64(0..20), rng.u8(0..4));
        tasks.push(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(i / 4)).await;
            let all = async {
                let Ok(mut permit) = flow.acquire(wanted(patience), NOW).await else { return };
                assert!(flow.view(&retry::Params::default(), NOW).permits_in_use <= 3);
                tokio::time::sleep(Duration::from_millis(work)).await;
                permit.ended(fate == 0);
                assert!(fate != 1, "a panic with the permit in hand");
            };
            let _ = tokio::time::timeout(Duration::from_millis(patience / 2 + 5), all).await;
        }));
        if fate == 2 {
            let last = tasks.len() - 1;
            tasks[last].abort();
        }
    }
    for task in tasks {
        let _ = task.await; // some panic, some are cancelled
    }
    assert_eq!(in_use(&flow), (0, 0));
    for _ in 0..3 {
        assert!(flow.acquire(wanted(0), NOW).await.is_ok(), "all are there again");
    }
}

#[test]
fn a_reload_keeps_permits_that_are_out_and_shares_a_pool_by_its_name() {
    let read = |text: &str| toml::from_str::<TargetParams>(text).expect("a target");
    let a = "name = \"a\"\nurl = \"http://h\"\npool = \"gpu\"\nmax_concurrency = 2";
    let b = "name = \"b\"\nurl = \"http://h\"\npool = \"gpu\"";
    let (queue, retry) = (permits::Params::default(), retry::Params::default());
    let before = flows(&[read(a), read(b)], &queue, &retry, &[]);
    let held = (before[0].observe(wanted(0), NOW), before[1].observe(wanted(0), NOW));
    let after = flows(&[read(b), read(&a.replace("= 2", "= 3"))], &queue, &retry, &before);
    assert!(Arc::ptr_eq(&before[0], &after[1]));
    assert_eq!((in_use(&after[0]).0, in_use(&after[1]).0), (1, 1));
    assert_eq!(
        after[0].view(&retry, NOW).permits_limit,
        Some(3),
        "the pool's limit is that of the one that names it"
    );
    drop(held);
    assert_eq!((in_use(&after[0]).0, in_use(&after[1]).0), (0, 0));
}

#[test]
fn a_callers_limit_rests_the_target_for_that_caller_alone() {
    let flow = flow("");
    flow.cool_key(1, NOW, 5_000);
    assert_eq!(flow.cooling_until(Some(1), NOW), Some(NOW.plus_ms(5_000)));
    assert_eq!(flow.cooling_until(Some(2), NOW), None);
    assert_eq!(flow.cooling_until(Some(1), NOW.plus_ms(5_000)), None);
}

#[test]
fn a_tier_that_is_left_again_and_again_rests_its_target() {
    let flow = flow("");
    for i in 0..4 {
        flow.left(NOW.plus_ms(i * 5_000), 15_000);
    }
    assert_eq!(flow.cooling_until(None, NOW.plus_ms(15_000)), None, "now and then is no going to and fro");
    let flow = super::tests::flow("");
    (0..5).for_each(|i| flow.left(NOW.plus_ms(i), 15_000));
    assert_eq!(flow.cooling_until(None, NOW.plus_ms(5)), Some(NOW.plus_ms(15_004)));
}
