//! Enforce mode: commit late, so that another try is still free.
//!
//! A JSON answer is held whole, a stream until its first real content. What turns out bad before that is left
//! for the next step of the plan; once a byte has been handed over there is no other try, only an honest break.
//! When every try was bad, the last usable answer is delivered unchanged and says so.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::{HeaderValue, Response, StatusCode, header};

use super::admission::admit;
use super::body::Body;
use super::flow::Further;
use super::hold::{Held, WholeAnswer, hold};
use super::inference::{GateBoard, Inquiry, VERDICT, closed, mark, moment, refuse, send, unanswered};
use super::ledger::Ledger;
use super::omit;
use super::recall::{from_cache, kept, list};
use super::refusal::Refusal;
use super::tap::Tap;
use super::trim;
use crate::plan::{Away, Board, Cost, Course, Fault, FaultKind, GiveUp, Purse, Step, Traits, Wait};
use crate::upstream::{Failure, FailureKind, Limits};
use crate::verdict::{BreakerState, ErrorCode, FaultClass, Flag, Mode, Reason};

/// When a fallback's share is worth asking for again, milliseconds.
const SHARE_RETRY_MS: u64 = 5_000;

/// What was left behind by tries that failed.
#[derive(Default)]
struct Leftovers {
    /// The last answer that came whole, usable answers before errors.
    answer: Option<WholeAnswer>,
    failure: Option<(Failure, FaultClass)>,
    status: Option<StatusCode>,
}

/// How a try ended, as far as the plan is concerned.
enum Tried {
    Done(Response<Body>),
    Again(Box<Ledger>, Fault),
}

/// Forwards one call through the tiers of its route.
pub(super) async fn forward(mut ledger: Box<Ledger>, mut inquiry: Inquiry) -> Response<Body> {
    let live = Arc::clone(&ledger.live);
    let mut board = GateBoard::new(&ledger);
    let route = &live.routes[ledger.route];
    let course = Course::new(route, Mode::Enforce, inquiry.asked(&ledger));
    let mut course = if route.has_picks() { course.starting_at(start(&ledger, &inquiry)) } else { course };
    let turn = ledger.extra().next_turn();
    let mut tokens = live.retry.tokens_per_request();
    let mut left = Leftovers::default();
    let mut failed = None;
    count_request(&ledger);
    if inquiry.from_cache_first
        && let Some(entry) = kept(&ledger, &inquiry)
    {
        return from_cache(ledger, entry, &course);
    }
    let first = purse(&ledger, &inquiry, tokens);
    let mut step = course.first(&moment(&ledger, turn), &mut board, &first);
    loop {
        match step {
            Step::Send { tier, target, probe, generation, wait, cost } => {
                let slot = if probe { board.take_slot() } else { None };
                if !pay(&ledger, &board, target, cost, &mut tokens).await
                    || !pause(&mut ledger, wait, &inquiry).await
                {
                    return give_up(ledger, left, GiveUp::NoTokens, &course);
                }
                if wait != Wait::None
                    && let Some(fault) = failed
                    && has_opened(&board, target)
                {
                    tokens += 1; // no call was made
                    let purse = purse(&ledger, &inquiry, tokens);
                    step = course.after(fault, &moment(&ledger, turn), &mut board, &purse);
                    continue;
                }
                let further = cost == Cost::RequestAndShared;
                let hold = match admit(&mut ledger, &inquiry, &board, target, slot, further).await {
                    Ok(hold) => hold,
                    Err(away) => {
                        tokens += u32::from(cost != Cost::Nothing); // no call was made
                        let purse = purse(&ledger, &inquiry, tokens);
                        step = course.turned_away(away, &moment(&ledger, turn), &mut board, &purse);
                        continue;
                    }
                };
                if let Some(most) = course.trim_to() {
                    cut(&ledger, &mut inquiry, most);
                }
                if course.is_fallback() {
                    count_fallback(&ledger, target);
                }
                let place = Place { target, tier, generation };
                match try_once(ledger, &inquiry, place, hold, &course, &mut left).await {
                    Tried::Done(response) => return response,
                    Tried::Again(back, fault) => {
                        ledger = back;
                        failed = Some(fault);
                        let purse = purse(&ledger, &inquiry, tokens);
                        step = if inquiry.left_ms(&ledger) == Some(0) {
                            Step::GiveUp(GiveUp::Nothing)
                        } else {
                            course.after(fault, &moment(&ledger, turn), &mut board, &purse)
                        };
                        note_leaving(&ledger, place, fault.kind, &step);
                    }
                }
            }
            Step::Cache { tier } => {
                if let Some(entry) = kept(&ledger, &inquiry) {
                    list(&ledger, &inquiry, Some(&entry));
                    return from_cache(ledger, entry, &course);
                }
                list(&ledger, &inquiry, None);
                let purse = purse(&ledger, &inquiry, tokens);
                step = course.missed(tier, &moment(&ledger, turn), &mut board, &purse);
            }
            Step::Omit { tier } => {
                if let Some(made) = omit::answer(&ledger, &inquiry).await {
                    return omitted(ledger, made);
                }
                let purse = purse(&ledger, &inquiry, tokens);
                step = course.missed(tier, &moment(&ledger, turn), &mut board, &purse);
            }
            Step::GiveUp(why) => return give_up(ledger, left, why, &course),
        }
    }
}

/// Cuts the oldest turns; an answer to what is left is none to what was asked, and is not kept.
fn cut(ledger: &Ledger, inquiry: &mut Inquiry, most: u64) {
    let tokens = ledger.ask.as_ref().map_or(0, |ask| ask.input_tokens_estimate);
    if let Some(body) = trim::to_fit(&inquiry.body, ledger.wire, tokens, most) {
        (inquiry.body, inquiry.cache_key) = (body, None);
    }
}

/// Whether the breaker has opened, as it may have while a request waited to ask again.
fn has_opened(board: &GateBoard, target: usize) -> bool {
    matches!(board.admission(target).state, BreakerState::Open | BreakerState::ForcedOpen)
}

/// The tier at which the route's rules let the request start.
fn start(ledger: &Ledger, inquiry: &Inquiry) -> usize {
    let ask = ledger.ask.as_deref();
    let traits = Traits {
        input_tokens: ask.map_or(0, |ask| ask.input_tokens_estimate),
        tools: ask.is_some_and(|ask| ask.tools.any()),
        text: ask.map_or("", |ask| &ask.prompt_text),
    };
    ledger.route().start(&traits, |name| inquiry.headers.get(name).and_then(|v| v.to_str().ok()))
}

fn count_request(ledger: &Ledger) {
    if let Some(share) = &ledger.extra().share {
        share.lock().unwrap_or_else(PoisonError::into_inner).request(ledger.proxy.clock.now());
    }
}

fn count_fallback(ledger: &Ledger, target: usize) {
    if let Some(share) = &ledger.extra().share {
        share.lock().unwrap_or_else(PoisonError::into_inner).fallback(ledger.proxy.clock.now(), target);
    }
}

/// A target whose tier is left because it failed; one that is left again and again rests.
fn note_leaving(ledger: &Ledger, place: Place, kind: FaultKind, step: &Step) {
    let failed = matches!(kind, FaultKind::Broken | FaultKind::Silent | FaultKind::Cut);
    let leaves = match step {
        Step::Send { tier, .. } => *tier != place.tier,
        Step::Cache { .. } | Step::Omit { .. } => true,
        Step::GiveUp(_) => false, // there is nowhere to go to and fro
    };
    if failed && leaves {
        let flow = &ledger.target(place.target).flow;
        flow.left(ledger.proxy.clock.now(), ledger.live.fallback.cool_down_ms());
    }
}

#[derive(Clone, Copy)]
struct Place {
    target: usize,
    tier: usize,
    generation: u64,
}

async fn try_once(
    mut ledger: Box<Ledger>,
    inquiry: &Inquiry,
    place: Place,
    held: super::running::Hold,
    course: &Course<'_>,
    left: &mut Leftovers,
) -> Tried {
    let Place { target, tier, generation } = place;
    let limits = ledger.limits(target);
    let wait = head_wait(&ledger, inquiry, &limits);
    let headers = inquiry.headers.clone();
    let answer = match send(&mut ledger, inquiry, headers, (target, tier), generation, held, Some(wait)).await
    {
        Ok(answer) => answer,
        Err(failure) => {
            // A deadline shorter than the limits is the caller's choice, not the target's fault.
            let hurried = failure.kind == FailureKind::HeadersTimeout && inquiry.left_ms(&ledger) == Some(0);
            let class = if hurried { FaultClass::Client } else { failure.class() };
            ledger.lost(&failure, class);
            let kind = match failure.kind {
                FailureKind::HeadersTimeout => FaultKind::Silent,
                FailureKind::Request => FaultKind::Caller,
                _ => FaultKind::Broken,
            };
            left.failure = Some((failure, class));
            return Tried::Again(ledger, Fault { kind, retry_after_ms: None });
        }
    };
    match hold(ledger, answer, inquiry, &limits, place.target).await {
        Held::Open(ledger, opening) => Tried::Done(commit(ledger, *opening, inquiry, place, course)),
        Held::Whole(ledger, answer, fault) => match fault {
            None => Tried::Done(deliver(ledger, *answer, tier, course.degraded())),
            Some(fault) => {
                left.status = Some(answer.status);
                left.failure = None;
                if is_usable(&answer) || !left.answer.as_ref().is_some_and(is_usable) {
                    left.answer = Some(WholeAnswer { tier, fault: Some(fault.kind), ..*answer });
                }
                Tried::Again(ledger, fault)
            }
        },
        Held::Lost(ledger, failure, class, kind) => {
            left.failure = Some((failure, class));
            Tried::Again(ledger, Fault { kind, retry_after_ms: None })
        }
    }
}

/// Waits for the head: a JSON answer has none before it is finished, so that the default of
/// `limits.headers` is no measure for it; `limits.total` is.
fn head_wait(ledger: &Ledger, inquiry: &Inquiry, limits: &Limits) -> Duration {
    let streams = ledger.ask.as_ref().is_some_and(|ask| ask.stream);
    let tightened = limits.headers() < Limits::default().headers();
    let limit = if streams || tightened { limits.headers().min(limits.total()) } else { limits.total() };
    inquiry.left_ms(ledger).map_or(limit, |left| limit.min(Duration::from_millis(left)))
}

/// Draws from every purse that the step costs.
async fn pay(ledger: &Ledger, board: &GateBoard, target: usize, cost: Cost, tokens: &mut u32) -> bool {
    if cost == Cost::Nothing {
        return true;
    }
    if *tokens == 0 {
        return false;
    }
    let (proxy, retry, flow) = (&ledger.proxy, &ledger.live.retry, &ledger.target(target).flow);
    if let Some(id) = &ledger.workflow
        && !proxy.take_workflow(id, retry.tokens_per_workflow())
    {
        flow.note_further(Further::RefusedWorkflow);
        return false;
    }
    if cost == Cost::RequestAndShared {
        if !flow.take_retry(retry, proxy.clock.now(), closed(&board.admission(target))) {
            return false;
        }
        if !proxy.take_retry_token().await {
            flow.note_further(Further::RefusedGlobal);
            return false;
        }
    }
    *tokens -= 1;
    true
}

fn purse(ledger: &Ledger, inquiry: &Inquiry, tokens: u32) -> Purse {
    let retry = &ledger.live.retry;
    let patience_ms =
        inquiry.left_ms(ledger).map_or(retry.max_wait_ms(), |left| left.min(retry.max_wait_ms()));
    let shared = ledger.proxy.has_retry_token();
    let of_workflow = |id: &Arc<str>| ledger.proxy.workflow_left(id, retry.tokens_per_workflow());
    let tokens = ledger.workflow.as_ref().map_or(tokens, |id| tokens.min(of_workflow(id)));
    Purse { tokens, shared, patience_ms, quality_retries: retry.quality_retries() }
}

/// Waits; false where the wait would outlast the caller's deadline, which then is not waited for.
async fn pause(ledger: &mut Ledger, wait: Wait, inquiry: &Inquiry) -> bool {
    let ms = match wait {
        Wait::None => return true,
        Wait::Exactly(ms) => ms,
        Wait::BackOff(retry) => ledger.live.retry.backoff_ms(retry, fastrand::f64()),
    };
    if inquiry.left_ms(ledger).is_some_and(|left| ms >= left) {
        return false;
    }
    let before = ledger.watch.elapsed_us();
    tokio::time::sleep(Duration::from_millis(ms)).await;
    ledger.waited_us += ledger.watch.elapsed_us().saturating_sub(before);
    true
}

/// Hands the opening over; from here on there is no way back.
fn commit(
    mut ledger: Box<Ledger>,
    opening: super::hold::Opening,
    inquiry: &Inquiry,
    place: Place,
    course: &Course<'_>,
) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = opening.status;
    *response.headers_mut() = opening.headers;
    let proxy = Arc::clone(&ledger.proxy);
    let tier = proxy.words.tier(place.tier);
    let name = Arc::clone(&ledger.target(place.target).name);
    mark(response.headers_mut(), &ledger, Some(place.target), Some(tier), course.degraded());
    ledger.deliver(opening.status.as_u16(), tier, Some(name), course.degraded());
    let after = inquiry.after.clone();
    let tap = Tap::new(opening.body, ledger, opening.pieces, opening.bounds, opening.close_delimited, after);
    *response.body_mut() = Body::tapped(tap);
    response
}

fn deliver(
    mut ledger: Box<Ledger>,
    answer: WholeAnswer,
    tier: usize,
    degraded: Option<(Reason, Option<Flag>)>,
) -> Response<Body> {
    let mut response = Response::new(Body::whole(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    let proxy = Arc::clone(&ledger.proxy);
    let tier = proxy.words.tier(tier);
    let name = Arc::clone(&ledger.target(answer.target).name);
    mark(response.headers_mut(), &ledger, Some(answer.target), Some(tier), degraded);
    if let Some(verdict) = answer.verdict {
        let text = if verdict.flags.is_empty() { "ok".to_owned() } else { verdict.flags.to_string() };
        if let Ok(value) = HeaderValue::from_str(&text)
            && !verdict.partial
        {
            response.headers_mut().append(VERDICT, value);
        }
        ledger.show(*verdict);
    }
    ledger.deliver(answer.status.as_u16(), tier, Some(name), degraded);
    ledger.close();
    response
}

/// An answer that leaves the step out.
fn omitted(mut ledger: Box<Ledger>, body: bytes::Bytes) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let tier = Arc::clone(&ledger.proxy.words.passthrough);
    let degraded = Some((Reason::StepOmitted, None));
    mark(response.headers_mut(), &ledger, None, Some(&tier), degraded);
    ledger.deliver(200, &tier, None, degraded);
    ledger.close();
    response
}

/// Whether an answer may be delivered though it is bad: a success status without a body says nothing.
fn is_usable(answer: &WholeAnswer) -> bool {
    answer.status.is_success() && !answer.body.trim_ascii().is_empty()
}

/// The best that is left: a whole answer though it is bad, the upstream's own error, or the daemon's.
fn give_up(ledger: Box<Ledger>, left: Leftovers, why: GiveUp, course: &Course<'_>) -> Response<Body> {
    let Leftovers { answer, failure, status } = left;
    let usable = answer.as_ref().is_some_and(is_usable);
    let answer = answer.filter(|a| usable || !a.status.is_success());
    if let Some(answer) = answer
        && (usable || (failure.is_none() && why != GiveUp::NoTokens))
    {
        let tier = answer.tier;
        let degraded = match answer.fault {
            Some(FaultKind::Quality(flag)) => Some((Reason::Quality, Some(flag))),
            _ => course.degraded().filter(|_| tier > 0),
        };
        return deliver(ledger, answer, tier, degraded);
    }
    let reason = course.left_because();
    match why {
        GiveUp::Open { retry_after_ms } => {
            let words = "no tier of the route can answer: its breakers are open and the cache has no answer";
            refuse(ledger, &Refusal::new(ErrorCode::BreakerOpen, words).after(retry_after_ms), reason)
        }
        GiveUp::Away(away) => refuse(ledger, &turned_away(away), reason.or(Some((away.reason(), None)))),
        GiveUp::NoTokens => {
            let words = "no retry token is left for a further try";
            let refusal = Refusal::new(ErrorCode::RetryBudgetExhausted, words);
            let refusal = match status.filter(|s| s.as_u16() >= 400) {
                Some(status) => refusal.with_status(status),
                None => refusal,
            };
            refuse(ledger, &refusal, Some((Reason::RetryBudget, None)))
        }
        GiveUp::Nothing => match failure {
            Some((failure, class)) => refuse(ledger, &unanswered(&failure, class), reason),
            None => {
                let refusal = Refusal::new(ErrorCode::UpstreamUnreachable, "no target gave an answer");
                refuse(ledger, &refusal, reason)
            }
        },
    }
}

/// Nobody who could answer takes the request.
fn turned_away(away: Away) -> Refusal {
    match away {
        Away::Overloaded { retry_after_ms } => {
            let words = "all permits are taken, and waiting for one would take too long";
            Refusal::new(ErrorCode::Overloaded, words).after(retry_after_ms)
        }
        Away::ShareLimit => {
            let words = "the fallback has had its share of the traffic (fallback.max_share)";
            Refusal::new(ErrorCode::Overloaded, words).after(SHARE_RETRY_MS)
        }
        Away::TooLarge => {
            let words =
                "the target is degraded and takes small requests only: send fewer inputs or a shorter prompt";
            Refusal::new(ErrorCode::BatchTooLarge, words)
        }
        Away::Spent { retry_after_ms } => {
            let words = "the money of this hour or day is spent";
            Refusal::new(ErrorCode::CostBudgetExhausted, words).after(retry_after_ms)
        }
        Away::TooExpensive => {
            let words = "the request could cost more than cost.per_request_usd; ask for fewer tokens";
            Refusal::new(ErrorCode::RequestTooExpensive, words)
        }
    }
}
