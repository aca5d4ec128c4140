//! Budgets in numbers: for `/v1/budgets`, and as metrics.

use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::{Value, json};

use crate::admin::Budgets;
use crate::metrics::{Metrics, UPKEEP_EVERY_MS};
use crate::proxy::{FlowView, Proxy};
use crate::shared::Shared;
use crate::spend::Account;

/// Gauges follow within this time, milliseconds.
const SHOW_EVERY_MS: u64 = 1_000;

/// What `/v1/budgets` answers.
pub(super) fn report(proxy: &Arc<Proxy>) -> Budgets {
    let proxy = Arc::downgrade(proxy);
    Budgets(Arc::new(move || proxy.upgrade().map_or(Value::Null, |proxy| budgets(&proxy))))
}

fn budgets(proxy: &Proxy) -> Value {
    let flows = proxy.flows();
    let retry = |flow: &FlowView| {
        let further: serde_json::Map<_, _> =
            flow.further.iter().map(|(word, n)| ((*word).to_owned(), json!(n))).collect();
        json!({ "target": flow.target, "tokens": flow.retry_tokens, "waste_ratio": flow.retry_waste, "retries": further })
    };
    let permits = |flow: &FlowView| {
        let shed: serde_json::Map<_, _> =
            flow.shed.iter().map(|(word, n)| ((*word).to_owned(), json!(n))).collect();
        json!({
            "target": flow.target, "pool": flow.pool, "in_use": flow.permits_in_use, "limit": flow.permits_limit,
            "in_flight": flow.in_flight, "queue_depth": flow.queue_depth, "shed": shed,
        })
    };
    json!({
        "retry": {
            "global": { "tokens": proxy.retry_tokens() },
            "targets": flows.iter().map(retry).collect::<Vec<_>>(),
        },
        "permits": flows.iter().map(permits).collect::<Vec<_>>(),
        "money": proxy.accounts().iter().map(money).collect::<Vec<_>>(),
    })
}

fn money(account: &Account) -> Value {
    let taken = account.common.unwrap_or_else(|| account.spent.plus(account.reserved));
    let left = account.limit.map(|limit| limit.minus(taken).usd());
    json!({
        "scope": account.scope, "window": account.span.as_str(), "spent_usd": account.spent.usd(),
        "reserved_usd": account.reserved.usd(), "limit_usd": account.limit.map(|l| l.usd()), "left_usd": left,
        "projected_usd": account.projected.usd(), "common_usd": account.common.map(|c| c.usd()),
    })
}

/// Keeps the metrics of budgets, until the proxy is gone.
pub(super) async fn upkeep(metrics: Metrics, proxy: Weak<Proxy>, shared: Option<Shared>) {
    let mut every = tokio::time::interval(Duration::from_millis(SHOW_EVERY_MS));
    let mut turns = 0_u64;
    loop {
        every.tick().await;
        let Some(proxy) = proxy.upgrade() else { return };
        show(&metrics, &proxy);
        if let Some(shared) = &shared {
            metrics.shared_state_up().set_bool(shared.is_up());
        }
        turns += 1;
        if turns.is_multiple_of(UPKEEP_EVERY_MS / SHOW_EVERY_MS) {
            metrics.upkeep();
        }
    }
}

fn show(m: &Metrics, proxy: &Proxy) {
    m.gate_stale().set_bool(proxy.is_gate_stale());
    m.retry_tokens("global").set(proxy.retry_tokens());
    for flow in proxy.flows() {
        let target = &*flow.target;
        m.permits_in_use(target).set(f64::from(flow.permits_in_use));
        m.queue_depth(target).set(f64::from(flow.queue_depth));
        if let Some(limit) = flow.permits_limit {
            m.permits_limit(target).set(f64::from(limit));
        }
        for (reason, n) in flow.shed {
            m.shed(target, reason).raise_to(n);
        }
        for (outcome, n) in flow.further {
            m.retries(target, outcome).raise_to(n);
        }
        m.retry_tokens(&format!("target:{target}")).set(flow.retry_tokens);
        if let Some(waste) = flow.retry_waste {
            m.retry_waste(target).set(waste);
        }
    }
    for account in proxy.accounts().iter().filter(|a| &*a.scope == "global") {
        m.budget_spent_usd(account.span.as_str()).set(account.common.unwrap_or(account.spent).usd());
        if let Some(limit) = account.limit {
            m.budget_limit_usd(account.span.as_str()).set(limit.usd());
        }
    }
}
