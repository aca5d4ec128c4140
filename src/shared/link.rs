//! Keeps the link: connects, beats, pays what is owed, tells states and hears of others'.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::RedisError;
use redis::aio::MultiplexedConnection;
use serde::Deserialize;
use tokio::sync::mpsc;

use super::{Inner, Remote, Spent, scripts};

/// A trip is known to all within a second: several beats.
const BEAT_EVERY: Duration = Duration::from_millis(250);
/// Every so many beats the common money is looked at.
const SPENT_EVERY: u32 = 4;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Between two attempts to connect.
const AGAIN: Duration = Duration::from_millis(300);
/// What nobody waits for may take longer than what a caller waits for.
const PATIENCE: Duration = Duration::from_secs(1);

/// What stands in the hash of states.
#[derive(Deserialize)]
struct Entry {
    at: u64,
    by: String,
    open: bool,
    due: Option<u64>,
    cause: String,
    message: String,
}

/// Runs until the last handle is gone.
pub(super) async fn keep(shared: Weak<Inner>, out: mpsc::UnboundedSender<Remote>) {
    let mut heard: HashMap<String, u64> = HashMap::new();
    let mut told = None;
    loop {
        let Some(inner) = shared.upgrade() else { return };
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connected = inner.client.get_multiplexed_async_connection_with_config(&config).await;
        let error = match connected {
            Ok(connection) => {
                inner.connection.store(Some(Arc::new(connection.clone())));
                drop(inner);
                match beat_on(&shared, connection, &out, &mut heard, &mut told).await {
                    Some(error) => error,
                    None => return,
                }
            }
            Err(error) => error,
        };
        let Some(inner) = shared.upgrade() else { return };
        inner.up.store(false, Ordering::Release);
        inner.connection.store(None);
        if told != Some(false) {
            tracing::warn!(%error, "the shared state is lost; this instance goes on with its local share");
            told = Some(false);
        }
        drop(inner);
        tokio::time::sleep(AGAIN).await;
    }
}

/// Beats until the link breaks; `None` once the last handle is gone.
async fn beat_on(
    shared: &Weak<Inner>,
    mut connection: MultiplexedConnection,
    out: &mpsc::UnboundedSender<Remote>,
    heard: &mut HashMap<String, u64>,
    told: &mut Option<bool>,
) -> Option<RedisError> {
    let mut beats = 0_u32;
    loop {
        let inner = shared.upgrade()?;
        beats += 1;
        let beaten = async {
            pay(&inner, &mut connection).await?;
            beat(&inner, &mut connection, out, heard).await?;
            if beats.is_multiple_of(SPENT_EVERY) {
                look_at_money(&inner, &mut connection).await?;
            }
            Ok::<(), RedisError>(())
        };
        if let Err(error) = beaten.await {
            return Some(error);
        }
        inner.up.store(true, Ordering::Release);
        if *told != Some(true) {
            tracing::info!(
                instances = inner.instances.load(Ordering::Relaxed),
                "the shared state is reachable"
            );
            *told = Some(true);
        }
        let _ = tokio::time::timeout(BEAT_EVERY, inner.wake.notified()).await; // a beat is due, or there is something to tell
    }
}

/// Tells states and pays what is owed; what cannot be told now is kept.
async fn pay(inner: &Inner, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let (states, money) = {
        let mut outgoing = inner.lock_outgoing();
        (std::mem::take(&mut outgoing.states), std::mem::take(&mut outgoing.money))
    };
    let mut states: Vec<Remote> = states.into_values().collect();
    let mut money: Vec<((Arc<str>, u64), i64)> = money.into_iter().collect();
    let sent = async {
        while let Some(state) = states.last() {
            let due = state.due.map_or(0, |due| inner.server_ms(due));
            let mut call = inner.scripts.publish.prepare_invoke();
            call.key(inner.key("states"))
                .arg(&inner.instance)
                .arg(&*state.target)
                .arg(u8::from(state.open))
                .arg(due)
                .arg(&state.cause)
                .arg(&state.message);
            let _: u64 = call.invoke_async(connection).await?;
            states.pop();
        }
        while let Some(((scope, at), delta)) = money.last() {
            let mut call = inner.scripts.settle.prepare_invoke();
            call.key(inner.money_key(scope)).arg(*at).arg(*delta);
            let _: u8 = call.invoke_async(connection).await?;
            money.pop();
        }
        Ok(())
    };
    let result = sent.await;
    if result.is_err() {
        let mut outgoing = inner.lock_outgoing();
        for state in states {
            outgoing.states.entry(Arc::clone(&state.target)).or_insert(state);
        }
        for (key, delta) in money {
            *outgoing.money.entry(key).or_default() += delta;
        }
    }
    result
}

/// What all instances together have spent of every scope that somebody asked for.
async fn look_at_money(inner: &Inner, connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    let scopes: Vec<Arc<str>> = inner.lock_spent().keys().cloned().collect();
    if scopes.is_empty() {
        return Ok(());
    }
    let mut call = inner.scripts.spent.prepare_invoke();
    for scope in &scopes {
        call.key(inner.money_key(scope));
    }
    let (now, sums): (u64, Vec<[i64; 5]>) = call.invoke_async(connection).await?;
    let mut known = inner.lock_spent();
    for (scope, [hour, day, since_hour, since_day, lately]) in scopes.into_iter().zip(sums) {
        let nano = |n: i64| u64::try_from(n).unwrap_or(0); // a correction may come before what it corrects
        let over_ms = scripts::SLICE_MS + now % scripts::SLICE_MS;
        let project = |since: i64, length_ms: u64| {
            let left_ms = length_ms - now % length_ms;
            let rest = u128::from(nano(lately)) * u128::from(left_ms) / u128::from(over_ms);
            nano(since).saturating_add(u64::try_from(rest).unwrap_or(u64::MAX))
        };
        let spent = Spent {
            hour: nano(hour),
            day: nano(day),
            hour_projected: project(since_hour, HOUR_MS),
            day_projected: project(since_day, DAY_MS),
        };
        known.insert(scope, Some(spent));
    }
    Ok(())
}

type Beat = (u64, u32, String, Vec<u8>, Vec<String>);

async fn beat(
    inner: &Inner,
    connection: &mut MultiplexedConnection,
    out: &mpsc::UnboundedSender<Remote>,
    heard: &mut HashMap<String, u64>,
) -> Result<(), RedisError> {
    let names: Vec<Arc<str>> = inner.lock_leases().keys().cloned().collect();
    let mut call = inner.scripts.beat.prepare_invoke();
    call.key(inner.key("instances")).key(inner.key("states")).key(inner.key("retry"));
    for name in &names {
        call.key(inner.key(&format!("lease:{name}")));
    }
    call.arg(&inner.instance).arg(inner.params.lease.as_millis());
    let (now, instances, level, held, states): Beat = call.invoke_async(connection).await?;
    let local = inner.clock.now().as_millis();
    let ahead = i64::try_from(now).unwrap_or(0).saturating_sub(i64::try_from(local).unwrap_or(0));
    inner.ahead_ms.store(ahead, Ordering::Relaxed);
    inner.instances.store(instances.max(1), Ordering::Relaxed);
    // The level is that of the last take; time has refilled it since, which the next take will tell.
    let level = if level.is_empty() { f64::INFINITY } else { level.parse().unwrap_or(f64::INFINITY) + 1.0 };
    inner.retry_level.store(level.to_bits(), Ordering::Relaxed);
    {
        let mut leases = inner.lock_leases();
        for (name, held) in names.iter().zip(held) {
            if let Some(slot) = leases.get_mut(name) {
                *slot = held == 1;
            }
        }
    }
    for pair in states.chunks_exact(2) {
        let (target, Ok(entry)) = (&pair[0], serde_json::from_str::<Entry>(&pair[1])) else { continue };
        let fresh = heard.insert(target.clone(), entry.at).is_none_or(|before| entry.at > before);
        let due = entry.due.filter(|due| *due > 0).map(|due| inner.local(due));
        let over = entry.open && due.is_some_and(|due| due <= inner.clock.now());
        if fresh && !over && entry.by != inner.instance {
            let Entry { open, cause, message, .. } = entry;
            // nobody listens only when the daemon ends
            let _ = out.send(Remote { target: target.as_str().into(), open, due, cause, message });
        }
    }
    Ok(())
}
