//! One request's way through the tiers of its route.

use super::fault::{Elsewhere, Fault, FaultKind, Same};
use super::route::{Member, Route, Tier};
use super::step::{Asked, Board, Cost, GiveUp, Moment, Purse, Step, Wait};
use crate::clock::Timestamp;
use crate::verdict::{BreakerState, Flag, Mode, Reason};

/// The wait that an open breaker without a known due time is worth, milliseconds.
const UNKNOWN_DUE_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
struct Try {
    target: usize,
    max_context_tokens: Option<u64>,
    times: u32,
}

/// One request's way.
#[derive(Debug)]
pub struct Course<'r> {
    route: &'r Route,
    mode: Mode,
    asked: Asked,
    tier: usize,
    tries: Vec<Try>,
    retries: u32,
    quality_retries: u32,
    left_because: Option<(Reason, Option<Flag>)>,
    last_target: bool,
    failed: Option<Fault>,
    soft: Option<(usize, &'r Member)>,
    due: Option<Timestamp>,
}

impl<'r> Course<'r> {
    /// At the start of the route.
    #[must_use]
    pub fn new(route: &'r Route, mode: Mode, asked: Asked) -> Self {
        Self {
            route,
            mode,
            asked,
            tier: 0,
            tries: Vec::new(),
            retries: 0,
            quality_retries: 0,
            left_because: None,
            last_target: false,
            failed: None,
            soft: None,
            due: None,
        }
    }

    /// Why the answer does not come from tier 0 as asked, if it does not.
    #[must_use]
    pub fn degraded(&self) -> Option<(Reason, Option<Flag>)> {
        if self.tier > 0 { self.left_because } else { self.last_target.then_some((Reason::LastTarget, None)) }
    }

    /// Why the first tier was passed over or left, wherever the request stands now.
    #[must_use]
    pub fn left_because(&self) -> Option<(Reason, Option<Flag>)> {
        self.left_because
    }

    /// Picks where the request starts. In shadow mode: the first tier's targets in turn, whatever is
    /// published of them.
    pub fn first(&mut self, moment: &Moment, board: &mut impl Board) -> Step {
        if self.mode == Mode::Shadow {
            return match self.route.tiers().first() {
                Some(Tier::Targets(members)) => {
                    let member = &members[moment.turn % members.len()];
                    self.send(0, member, false, board, Wait::None, Cost::Nothing)
                }
                _ => Step::GiveUp(GiveUp::Nothing),
            };
        }
        self.descend(0, moment, board, Cost::Nothing)
    }

    /// The cache of this tier had nothing: what comes after it.
    pub fn cache_missed(
        &mut self,
        tier: usize,
        moment: &Moment,
        board: &mut impl Board,
        purse: &Purse,
    ) -> Step {
        if self.failed.is_none() {
            return self.descend(tier + 1, moment, board, Cost::Nothing);
        }
        self.below(tier + 1, moment, board, purse)
    }

    /// Decides what follows a failed try. Nothing may have been handed to the caller yet.
    pub fn after(&mut self, fault: Fault, moment: &Moment, board: &mut impl Board, purse: &Purse) -> Step {
        if self.mode == Mode::Shadow {
            return Step::GiveUp(GiveUp::Nothing);
        }
        self.failed = Some(fault);
        let Some(last) = self.tries.last().copied() else { return Step::GiveUp(GiveUp::Nothing) };
        let again = self.again_wait(&fault, &last, purse);
        let stay = self.stay(&fault, &last, again, moment, board, purse);
        match stay {
            Some(step) => step,
            None if fault.kind.elsewhere() == Elsewhere::Never => Step::GiveUp(GiveUp::Nothing),
            None => {
                self.left_because.get_or_insert(fault.kind.reason());
                match self.below(self.tier + 1, moment, board, purse) {
                    Step::GiveUp(GiveUp::Nothing) => self.last_resort(&fault, &last, board, purse),
                    step => step,
                }
            }
        }
    }

    /// Another try within the tier: the same target or its neighbour.
    fn stay(
        &mut self,
        fault: &Fault,
        last: &Try,
        again: Option<Wait>,
        moment: &Moment,
        board: &mut impl Board,
        purse: &Purse,
    ) -> Option<Step> {
        if self.asked.no_retry || purse.tokens == 0 || !purse.shared {
            return None;
        }
        let quality = fault.kind.same() == Same::Quality;
        if let (true, Some(wait)) = (quality, again) {
            self.quality_retries += 1;
            return Some(self.repeat(last, wait, board));
        }
        if fault.kind.elsewhere() != Elsewhere::Never
            && let Some((member, probe)) = self.pick(self.tier, moment, board, true).found
        {
            return Some(self.send(self.tier, member, probe, board, Wait::None, Cost::RequestAndShared));
        }
        match again {
            Some(wait) if !quality && self.is_alone() => Some(self.repeat(last, wait, board)),
            _ => None,
        }
    }

    /// The wait before the same target may be asked again, if it may.
    fn again_wait(&self, fault: &Fault, last: &Try, purse: &Purse) -> Option<Wait> {
        match (fault.kind.same(), fault.kind) {
            (Same::Never, _) => None,
            (Same::Quality, _) => (self.quality_retries < purse.quality_retries).then_some(Wait::None),
            (Same::IfAlone, FaultKind::Backpressure) => {
                let wait = fault.retry_after_ms.filter(|ms| *ms <= purse.patience_ms)?;
                (last.times < 2).then_some(Wait::Exactly(wait))
            }
            (Same::IfAlone, _) => (last.times < 2).then_some(Wait::BackOff(self.retries)),
        }
    }

    /// Nothing else can answer: a server under pressure is asked again after the time it named, or with
    /// back-off.
    fn last_resort(&mut self, fault: &Fault, last: &Try, board: &mut impl Board, purse: &Purse) -> Step {
        let wait = match fault.retry_after_ms {
            Some(ms) if ms > purse.patience_ms || last.times > 1 => return Step::GiveUp(GiveUp::Nothing),
            Some(ms) => Wait::Exactly(ms),
            None => Wait::BackOff(self.retries),
        };
        if fault.kind != FaultKind::Backpressure || self.asked.no_retry {
            return Step::GiveUp(GiveUp::Nothing);
        }
        if purse.tokens == 0 || !purse.shared {
            return Step::GiveUp(GiveUp::NoTokens);
        }
        self.repeat(last, wait, board)
    }

    /// A lower tier after a failed try.
    fn below(&mut self, from: usize, moment: &Moment, board: &mut impl Board, purse: &Purse) -> Step {
        if self.asked.no_fallback {
            return self.spent_or_nothing(purse);
        }
        if purse.tokens == 0 || self.asked.no_retry {
            // A cached answer is no extra call; another target would be.
            let cache = self.route.tiers().iter().skip(from).position(|tier| *tier == Tier::Cache);
            let without = if self.asked.no_retry { GiveUp::Nothing } else { GiveUp::NoTokens };
            return cache.map_or(Step::GiveUp(without), |i| Step::Cache { tier: from + i });
        }
        match self.descend(from, moment, board, Cost::Request) {
            Step::GiveUp(_) => self.spent_or_nothing(purse),
            step => step,
        }
    }

    /// With no token or an empty bucket a repetition that the rules would allow is what was missing.
    fn spent_or_nothing(&self, purse: &Purse) -> Step {
        let repeatable = self.failed.is_some_and(|f| f.kind.same() != Same::Never) && !self.asked.no_retry;
        let spent = purse.tokens == 0 || !purse.shared;
        let untried = self.tries.last().is_some_and(|t| t.times == 1);
        if repeatable && spent && untried {
            Step::GiveUp(GiveUp::NoTokens)
        } else {
            Step::GiveUp(GiveUp::Nothing)
        }
    }

    /// The best tier from `from` on that can answer.
    fn descend(&mut self, from: usize, moment: &Moment, board: &mut impl Board, cost: Cost) -> Step {
        let tiers = self.route.tiers();
        let last = if self.asked.no_fallback { 1 } else { tiers.len() };
        for (tier, kind) in tiers.iter().enumerate().take(last).skip(from) {
            if *kind == Tier::Cache {
                return Step::Cache { tier };
            }
            let picked = self.pick(tier, moment, board, false);
            if let Some((member, probe)) = picked.found {
                return self.send(tier, member, probe, board, Wait::None, cost);
            }
            if self.soft.is_none() {
                self.soft = picked.soft.map(|member| (tier, member));
            }
            self.due = earliest(self.due, picked.due);
            if let Some(reason) = picked.refused {
                self.left_because.get_or_insert((reason, None));
            }
        }
        match self.soft.take() {
            Some((tier, member)) => self.send(tier, member, false, board, Wait::None, cost),
            None => {
                let retry_after_ms = self.due.map_or(UNKNOWN_DUE_MS, |at| at.ms_since(moment.now));
                Step::GiveUp(GiveUp::Open { retry_after_ms })
            }
        }
    }

    /// One member of a tier that has not been tried and is admitted, in turn.
    fn pick(&self, tier: usize, moment: &Moment, board: &mut impl Board, neighbour: bool) -> Picked<'r> {
        let mut picked = Picked::default();
        let Some(Tier::Targets(members)) = self.route.tiers().get(tier) else { return picked };
        let mut first_refusal = usize::MAX;
        for i in 0..members.len() {
            let place = moment.turn.wrapping_add(i) % members.len();
            let member = &members[place];
            if self.tries.iter().any(|t| t.target == member.index) {
                continue;
            }
            let refused = if self.is_too_long(member, tier > 0 || neighbour) {
                Refusal::Hard(Reason::ContextTooLong, None)
            } else {
                match admit(moment, board, member.index) {
                    Ok(probe) => {
                        picked.found = Some((member, probe));
                        return picked;
                    }
                    Err(refusal) => refusal,
                }
            };
            let (reason, due) = match refused {
                Refusal::Soft(reason, due) => {
                    picked.soft.get_or_insert(member);
                    (reason, due)
                }
                Refusal::Hard(reason, due) => (reason, due),
            };
            picked.due = earliest(picked.due, due);
            if place < first_refusal {
                first_refusal = place;
                picked.refused = Some(reason);
            }
        }
        picked
    }

    /// A fallback must hold the prompt; the first choice is never skipped for an estimate.
    fn is_too_long(&self, member: &Member, is_fallback: bool) -> bool {
        if self.failed.is_some_and(|f| f.kind == FaultKind::ContextLength) {
            let before = self.tries.iter().filter_map(|t| t.max_context_tokens).max();
            return match (before, member.max_context_tokens) {
                (Some(before), Some(here)) => here <= before,
                _ => true, // not known to be larger
            };
        }
        is_fallback && member.max_context_tokens.is_some_and(|most| self.asked.input_tokens > most)
    }

    fn is_alone(&self) -> bool {
        matches!(self.route.tiers().get(self.tier), Some(Tier::Targets(members)) if members.len() == 1)
    }

    fn send(
        &mut self,
        tier: usize,
        member: &Member,
        probe: bool,
        board: &impl Board,
        wait: Wait,
        cost: Cost,
    ) -> Step {
        let admission = board.admission(member.index);
        self.tier = tier;
        self.last_target = admission.cause == Reason::LastTarget.as_str();
        let fresh = Try { target: member.index, max_context_tokens: member.max_context_tokens, times: 1 };
        self.tries.push(fresh);
        Step::Send { tier, target: member.index, probe, generation: admission.generation, wait, cost }
    }

    fn repeat(&mut self, last: &Try, wait: Wait, board: &impl Board) -> Step {
        self.retries += 1;
        if let Some(this) = self.tries.last_mut() {
            this.times += 1;
        }
        let generation = board.admission(last.target).generation;
        let cost = Cost::RequestAndShared;
        Step::Send { tier: self.tier, target: last.target, probe: false, generation, wait, cost }
    }
}

#[derive(Default)]
struct Picked<'r> {
    found: Option<(&'r Member, bool)>,
    soft: Option<&'r Member>,
    refused: Option<Reason>,
    due: Option<Timestamp>,
}

enum Refusal {
    Soft(Reason, Option<Timestamp>),
    Hard(Reason, Option<Timestamp>),
}

/// Whether the published state admits a call now, and whether as a probe.
fn admit(moment: &Moment, board: &mut impl Board, target: usize) -> Result<bool, Refusal> {
    if moment.stale {
        return Ok(false);
    }
    let admission = board.admission(target);
    match admission.state {
        BreakerState::ForcedClosed => Ok(false),
        BreakerState::ForcedOpen => Err(Refusal::Hard(Reason::Operator, None)),
        BreakerState::Open => Err(Refusal::Hard(Reason::BreakerOpen, admission.due)),
        BreakerState::HalfOpen if admission.live_probes == 0 => {
            Err(Refusal::Hard(Reason::BreakerOpen, admission.due))
        }
        BreakerState::HalfOpen if board.take_probe(target) => Ok(true),
        BreakerState::HalfOpen => Err(Refusal::Hard(Reason::HalfOpenBusy, admission.due)),
        BreakerState::Closed => match admission.cooling_until {
            Some(until) if until > moment.now => Err(Refusal::Soft(Reason::CoolingDown, Some(until))),
            _ if moment.roll >= admission.share => Err(Refusal::Soft(Reason::BreakerOpen, None)),
            _ => Ok(false),
        },
    }
}

fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}
