//! Whether the published state of a target admits a call, and what a look at a tier comes to.

use super::route::Member;
use super::step::{Asked, Away, Board, Moment};
use crate::clock::Timestamp;
use crate::verdict::{BreakerState, Reason};

/// A target that was called, and how often in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Try {
    pub(super) target: usize,
    pub(super) max_context_tokens: Option<u64>,
    pub(super) times: u32,
}

/// What a look at a tier came to.
#[derive(Default)]
pub(super) struct Picked<'r> {
    pub(super) found: Option<(&'r Member, bool)>,
    pub(super) soft: Option<&'r Member>,
    pub(super) away: Option<Away>,
    pub(super) refused: Option<Reason>,
    pub(super) due: Option<Timestamp>,
}

/// Why it does not.
pub(super) enum Refusal {
    /// Used all the same when nothing else can answer.
    Soft(Reason, Option<Timestamp>),
    /// Never called.
    Hard(Reason, Option<Timestamp>),
    /// It could answer, but not this request.
    Away(Away),
}

/// Whether the published state admits a call now, and whether as a probe. `probes`: the request can pay for one.
pub(super) fn admit(
    moment: &Moment,
    board: &mut impl Board,
    target: usize,
    asked: &Asked,
    probes: bool,
) -> Result<bool, Refusal> {
    if moment.stale {
        return Ok(false);
    }
    let admission = board.admission(target);
    let probes = probes && board.may_retry(target);
    match admission.state {
        BreakerState::ForcedClosed => Ok(false),
        BreakerState::ForcedOpen => Err(Refusal::Hard(Reason::Operator, None)),
        BreakerState::Open => Err(Refusal::Hard(Reason::BreakerOpen, admission.due)),
        BreakerState::HalfOpen if admission.live_probes == 0 => {
            Err(Refusal::Hard(Reason::BreakerOpen, admission.due))
        }
        BreakerState::HalfOpen if probes && board.take_probe(target) => Ok(true),
        BreakerState::HalfOpen => Err(Refusal::Hard(Reason::HalfOpenBusy, admission.due)),
        BreakerState::Closed => {
            if let Some((tokens, batch)) = admission.small_only
                && (asked.input_tokens > tokens || asked.batch > batch)
            {
                return Err(Refusal::Away(Away::TooLarge));
            }
            let own = board.cooling_until(target);
            match admission.cooling_until.max(own) {
                Some(until) if until > moment.now => Err(Refusal::Soft(Reason::CoolingDown, Some(until))),
                _ if moment.roll >= admission.share => Err(Refusal::Soft(Reason::BreakerOpen, None)),
                _ => Ok(false),
            }
        }
    }
}

pub(super) fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Tokens to which a request that is too long for `member` could be cut for it.
pub(super) fn cut_for(member: &Member, asked: &Asked) -> Option<u64> {
    let least = asked.trims_to?;
    member.max_context_tokens.filter(|most| asked.input_tokens > *most && least <= *most)
}
