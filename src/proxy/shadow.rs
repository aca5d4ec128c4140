//! Shadow mode: forward first, judge a copy.
//!
//! Nothing is held, changed, delayed or repeated. The first tier's targets take turns whatever is published
//! of them, and a limit that runs out is noted but cuts nothing; only a deadline that the caller itself set is
//! kept.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http::Response;

use super::admission;
use super::body::Body;
use super::inference::{GateBoard, Inquiry, mark, moment, refuse, send, unanswered};
use super::ledger::Ledger;
use super::refusal::Refusal;
use super::tap::{Bounds, Tap};
use crate::plan::{Course, Purse, Step};
use crate::upstream::FailureKind;
use crate::verdict::{ErrorCode, FaultClass, Mode};

/// Forwards one call.
pub(super) async fn forward(mut ledger: Box<Ledger>, mut inquiry: Inquiry) -> Response<Body> {
    let mut board = GateBoard::new(&ledger);
    let live = Arc::clone(&ledger.live);
    let mut course = Course::new(&live.routes[ledger.route], Mode::Shadow, inquiry.asked(&ledger));
    let now = moment(&ledger, ledger.extra().next_turn());
    let purse = Purse { tokens: 0, shared: false, patience_ms: 0, quality_retries: 0 };
    let Step::Send { tier, target, generation, .. } = course.first(&now, &mut board, &purse) else {
        let refusal = Refusal::new(ErrorCode::BadRequest, "the route has no target");
        return refuse(ledger, &refusal, None);
    };
    let left = inquiry.left_ms(&ledger);
    let wait = left.map(Duration::from_millis);
    let headers = std::mem::take(&mut inquiry.headers);
    let hold = admission::observe(&ledger, &board, target);
    match send(&mut ledger, &inquiry, headers, (target, tier), generation, hold, wait).await {
        Ok(answer) => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = answer.status;
            *response.headers_mut() = answer.headers;
            let words = Arc::clone(&ledger.proxy);
            let tier = words.words.tier(tier);
            let name = Arc::clone(&ledger.target(target).name);
            mark(response.headers_mut(), &ledger, Some(target), Some(tier), None);
            ledger.deliver(response.status().as_u16(), tier, Some(name), None);
            let bounds = Bounds { total: left, ..Bounds::default() };
            let tap =
                Tap::new(answer.body, ledger, VecDeque::new(), bounds, answer.close_delimited, inquiry.after);
            *response.body_mut() = Body::tapped(tap);
            response
        }
        Err(failure) => {
            // Only the caller's own deadline ends the wait here.
            let timed_out = failure.kind == FailureKind::HeadersTimeout;
            let class = if timed_out { FaultClass::Client } else { failure.class() };
            ledger.lost(&failure, class);
            refuse(ledger, &unanswered(&failure, class), None)
        }
    }
}
