//! What a call needs before it is made: a permit and money. In shadow mode both are counted and neither is
//! waited for or refused.

use std::sync::Arc;

use super::bill;
use super::flow::Wanted;
use super::inference::{GateBoard, Inquiry};
use super::ledger::Ledger;
use super::running::Hold;
use crate::gate::ProbeSlot;
use crate::plan::{Away, Board};
use crate::spend::{Denied, Nano};

fn wanted(ledger: &Ledger, board: &GateBoard, target: usize, patience_ms: u64) -> Wanted {
    let admission = board.admission(target);
    let ask = ledger.ask.as_deref();
    let (input, output) = bill::tokens(ledger.wire, ask, ledger.live.cost.default_max_tokens());
    Wanted {
        tokens: input.saturating_add(output),
        patience_ms,
        share: admission.share,
        degraded: admission.small_only.is_some(),
    }
}

fn amount(ledger: &Ledger, target: usize) -> Option<Nano> {
    if !ledger.live.counts_money {
        return None;
    }
    let price = ledger.target(target).upstream.params().price()?;
    let ask = ledger.ask.as_deref();
    Some(bill::estimate(&price, ledger.wire, ask, ledger.live.cost.default_max_tokens()))
}

/// Counts the call; nothing is refused.
pub(super) fn observe(ledger: &Ledger, board: &GateBoard, target: usize) -> Hold {
    let flow = &ledger.target(target).flow;
    let wanted = wanted(ledger, board, target, u64::MAX);
    let permit = flow.observe(wanted, ledger.proxy.clock.now());
    let purchase = amount(ledger, target).map(|amount| {
        let name = &ledger.target(target).name;
        let (purchase, denied) = ledger.proxy.money.observe(ledger.scopes, name, amount);
        if denied {
            flow.note_unaffordable(false);
        }
        purchase
    });
    Hold { probe: None, permit: Some(permit), purchase, further: false }
}

/// Waits for a permit and sets money aside.
pub(super) async fn admit(
    ledger: &mut Ledger,
    inquiry: &Inquiry,
    board: &GateBoard,
    target: usize,
    probe: Option<ProbeSlot>,
    further: bool,
) -> Result<Hold, Away> {
    let patience_ms = inquiry.left_ms(ledger).unwrap_or(u64::MAX);
    let wanted = wanted(ledger, board, target, patience_ms);
    let flow = Arc::clone(&ledger.target(target).flow);
    let before = ledger.watch.elapsed_us();
    let permit = flow.acquire(wanted, ledger.proxy.clock.now()).await;
    ledger.waited_us += ledger.watch.elapsed_us().saturating_sub(before);
    let permit = permit.map_err(|(_, retry_after_ms)| Away::Overloaded { retry_after_ms })?;
    let mut purchase = None;
    if let Some(amount) = amount(ledger, target) {
        let name = Arc::clone(&ledger.target(target).name);
        let reserved = ledger.proxy.money.reserve(ledger.scopes, &name, amount).await;
        purchase = Some(reserved.map_err(|denied| {
            flow.note_unaffordable(true);
            match denied {
                Denied::TooExpensive { .. } => Away::TooExpensive,
                Denied::Spent { retry_after_ms, .. } => Away::Spent { retry_after_ms },
            }
        })?);
    }
    Ok(Hold { probe, permit: Some(permit), purchase, further })
}
