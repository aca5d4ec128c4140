//! One request's way through the tiers of its route.

use super::admit::{Picked, Refusal, Try, admit, cut_for, earliest};
use super::fault::{Elsewhere, Fault, FaultKind, Same};
use super::route::{Member, Route, Tier};
use super::step::{Asked, Away, Board, Cost, GiveUp, Moment, Purse, Step, Wait};
use crate::clock::Timestamp;
use crate::verdict::{BreakerState, Flag, Mode, Reason};

/// The wait that an open breaker without a known due time is worth, milliseconds.
const UNKNOWN_DUE_MS: u64 = 1_000;

/// One request's way.
#[derive(Debug)]
pub struct Course<'r> {
    route: &'r Route,
    mode: Mode,
    asked: Asked,
    /// The tier at which it starts.
    start: usize,
    /// How many tiers it has gone down from there.
    depth: usize,
    tries: Vec<Try>,
    /// Targets that turned the request away.
    shut: Vec<usize>,
    retries: u32,
    quality_retries: u32,
    left_because: Option<(Reason, Option<Flag>)>,
    last_target: bool,
    trim_to: Option<u64>,
    failed: Option<Fault>,
    soft: Option<(usize, &'r Member)>,
    due: Option<Timestamp>,
    away: Option<Away>,
}

impl<'r> Course<'r> {
    /// At the start of the route.
    #[must_use]
    pub fn new(route: &'r Route, mode: Mode, asked: Asked) -> Self {
        Self {
            route,
            mode,
            asked,
            start: 0,
            depth: 0,
            tries: Vec::new(),
            shut: Vec::new(),
            retries: 0,
            quality_retries: 0,
            left_because: None,
            last_target: false,
            trim_to: None,
            failed: None,
            soft: None,
            due: None,
            away: None,
        }
    }

    /// Starts at another tier than the first; those above are asked after those below.
    #[must_use]
    pub fn starting_at(mut self, tier: usize) -> Self {
        self.start = tier.min(self.route.tiers().len().saturating_sub(1));
        self
    }

    /// Why the answer does not come from where it was to come from, if it does not.
    #[must_use]
    pub fn degraded(&self) -> Option<(Reason, Option<Flag>)> {
        if self.depth > 0 {
            self.left_because
        } else {
            self.last_target.then_some((Reason::LastTarget, None))
        }
    }

    /// Why the first choice was passed over or left, wherever the request stands now.
    #[must_use]
    pub fn left_because(&self) -> Option<(Reason, Option<Flag>)> {
        self.left_because
    }

    /// Prompt tokens to which the request must be cut before it is sent, if it is too long for where it goes.
    #[must_use]
    pub fn trim_to(&self) -> Option<u64> {
        self.trim_to
    }

    /// Whether the request has left the tier at which it started.
    #[must_use]
    pub fn is_fallback(&self) -> bool {
        self.depth > 0
    }

    /// Picks where the request starts. In shadow mode: the first tier's targets in turn, whatever is
    /// published of them.
    pub fn first(&mut self, moment: &Moment, board: &mut impl Board, purse: &Purse) -> Step {
        if self.mode == Mode::Shadow {
            return match self.route.tiers().first() {
                Some(Tier::Targets(members)) => {
                    let member = &members[moment.turn % members.len()];
                    self.send(0, member, false, board, Wait::None, Cost::Nothing)
                }
                _ => Step::GiveUp(GiveUp::Nothing),
            };
        }
        self.descend(0, moment, board, purse, Cost::Nothing)
    }

    /// The cache of this tier had nothing, or the step cannot be left out: what comes after it.
    pub fn missed(&mut self, tier: usize, moment: &Moment, board: &mut impl Board, purse: &Purse) -> Step {
        let depth = self.route.depth_of(self.start, tier);
        if self.failed.is_none() {
            return self.descend(depth + 1, moment, board, purse, Cost::Nothing);
        }
        self.below(depth + 1, moment, board, purse)
    }

    /// The call that was decided on last cannot be made: what comes in its place.
    pub fn turned_away(
        &mut self,
        away: Away,
        moment: &Moment,
        board: &mut impl Board,
        purse: &Purse,
    ) -> Step {
        if let Some(last) = self.tries.last_mut() {
            self.shut.push(last.target);
            last.times = last.times.saturating_sub(1);
            if last.times == 0 {
                self.tries.pop();
            }
        }
        self.away.get_or_insert(away);
        self.left_because.get_or_insert((away.reason(), None));
        let step = if self.failed.is_none() {
            self.descend(self.depth, moment, board, purse, Cost::Nothing)
        } else {
            self.below(self.depth + 1, moment, board, purse)
        };
        match step {
            Step::GiveUp(GiveUp::Open { .. } | GiveUp::Nothing) => Step::GiveUp(GiveUp::Away(away)),
            step => step,
        }
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
            None if self.elsewhere(fault.kind) == Elsewhere::Never => Step::GiveUp(GiveUp::Nothing),
            None => {
                self.left_because.get_or_insert(fault.kind.reason());
                match self.below(self.depth + 1, moment, board, purse) {
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
        let again = again.filter(|_| board.may_retry(last.target) && self.still_admits(last, moment, board));
        let quality = fault.kind.same() == Same::Quality;
        if let (true, Some(wait)) = (quality, again) {
            self.quality_retries += 1;
            return Some(self.repeat(last, wait, board));
        }
        if self.elsewhere(fault.kind) != Elsewhere::Never
            && let Some((member, probe)) = self.pick(self.depth, moment, board, purse, true).found
        {
            return Some(self.send(self.depth, member, probe, board, Wait::None, Cost::RequestAndShared));
        }
        match again {
            Some(wait) if !quality && self.is_alone() => Some(self.repeat(last, wait, board)),
            _ => None,
        }
    }

    /// Whether the target's breaker has not opened since it was called.
    fn still_admits(&self, last: &Try, moment: &Moment, board: &impl Board) -> bool {
        moment.stale
            || matches!(
                board.admission(last.target).state,
                BreakerState::Closed | BreakerState::ForcedClosed | BreakerState::HalfOpen
            )
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
        if purse.tokens == 0 || !purse.shared || !board.may_retry(last.target) {
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
            // A cached answer or a step left out is no extra call; another target would be.
            let free = (from..self.route.tiers().len()).find_map(|depth| self.without_call(depth));
            let without = if self.asked.no_retry { GiveUp::Nothing } else { GiveUp::NoTokens };
            return free.unwrap_or(Step::GiveUp(without));
        }
        match self.descend(from, moment, board, purse, Cost::Request) {
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
    fn descend(
        &mut self,
        from: usize,
        moment: &Moment,
        board: &mut impl Board,
        purse: &Purse,
        cost: Cost,
    ) -> Step {
        let last = if self.asked.no_fallback { 1 } else { self.route.tiers().len() };
        for depth in from..last {
            if let Some(step) = self.without_call(depth) {
                return step;
            }
            let picked = self.pick(depth, moment, board, purse, false);
            if let Some((member, probe)) = picked.found {
                // A probe with a caller's request is an extra call in disguise: it may well be made twice.
                let cost = if probe { Cost::RequestAndShared } else { cost };
                return self.send(depth, member, probe, board, Wait::None, cost);
            }
            if self.soft.is_none() {
                self.soft = picked.soft.map(|member| (depth, member));
            }
            if self.away.is_none() {
                self.away = picked.away;
            }
            self.due = earliest(self.due, picked.due);
            if let Some(reason) = picked.refused {
                self.left_because.get_or_insert((reason, None));
            }
        }
        match (self.soft.take(), self.away) {
            (Some((depth, member)), _) => self.send(depth, member, false, board, Wait::None, cost),
            (None, Some(away)) => Step::GiveUp(GiveUp::Away(away)),
            (None, None) => {
                let retry_after_ms = self.due.map_or(UNKNOWN_DUE_MS, |at| at.ms_since(moment.now));
                Step::GiveUp(GiveUp::Open { retry_after_ms })
            }
        }
    }

    /// A tier that answers without a call.
    fn without_call(&self, depth: usize) -> Option<Step> {
        let tier = self.route.tier_at(self.start, depth);
        match self.route.tiers().get(tier)? {
            Tier::Cache => Some(Step::Cache { tier }),
            Tier::Omit => Some(Step::Omit { tier }),
            Tier::Targets(_) => None,
        }
    }

    /// One member of a tier that has not been tried and is admitted: in turn, the idle before the busy.
    fn pick(
        &self,
        depth: usize,
        moment: &Moment,
        board: &mut impl Board,
        purse: &Purse,
        neighbour: bool,
    ) -> Picked<'r> {
        let mut picked = Picked::default();
        let Some(Tier::Targets(members)) = self.route.tiers().get(self.route.tier_at(self.start, depth))
        else {
            return picked;
        };
        let mut first_refusal = usize::MAX;
        let mut busy = None;
        for i in 0..members.len() {
            let place = moment.turn.wrapping_add(i) % members.len();
            let member = &members[place];
            if self.tries.iter().any(|t| t.target == member.index) || self.shut.contains(&member.index) {
                continue;
            }
            let refused = match self.look(member, depth, moment, board, purse, neighbour) {
                Ok(true) => {
                    picked.found = Some((member, true));
                    return picked;
                }
                Ok(false) if members.len() > 1 && board.is_busy(member.index) => {
                    busy.get_or_insert(member);
                    continue;
                }
                Ok(false) => {
                    picked.found = Some((member, false));
                    return picked;
                }
                Err(refusal) => refusal,
            };
            let (reason, due) = match refused {
                Refusal::Soft(reason, due) => {
                    picked.soft.get_or_insert(member);
                    (reason, due)
                }
                Refusal::Hard(reason, due) => (reason, due),
                Refusal::Away(away) => {
                    picked.away.get_or_insert(away);
                    (away.reason(), None)
                }
            };
            picked.due = earliest(picked.due, due);
            if place < first_refusal {
                first_refusal = place;
                picked.refused = Some(reason);
            }
        }
        picked.found = busy.map(|member| (member, false));
        picked
    }

    /// Whether this member may be called, and whether as a probe.
    fn look(
        &self,
        member: &Member,
        depth: usize,
        moment: &Moment,
        board: &mut impl Board,
        purse: &Purse,
        neighbour: bool,
    ) -> Result<bool, Refusal> {
        if self.is_too_long(member, depth > 0 || neighbour) {
            let cut = depth > 0 && cut_for(member, &self.asked).is_some();
            let refuse = if cut { Refusal::Soft } else { Refusal::Hard };
            return Err(refuse(Reason::ContextTooLong, None));
        }
        if neighbour && !board.may_retry(member.index) {
            return Err(Refusal::Hard(Reason::RetryBudget, None));
        }
        if depth > 0 && !board.has_share(member.index) {
            return Err(Refusal::Away(Away::ShareLimit));
        }
        let probes = !self.asked.no_retry && purse.tokens > 0 && purse.shared;
        admit(moment, board, member.index, &self.asked, probes)
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

    fn elsewhere(&self, kind: FaultKind) -> Elsewhere {
        match kind {
            FaultKind::ContentFilter if self.asked.on_content_filter => Elsewhere::Any,
            kind => kind.elsewhere(),
        }
    }

    fn is_alone(&self) -> bool {
        let tier = self.route.tiers().get(self.route.tier_at(self.start, self.depth));
        matches!(tier, Some(Tier::Targets(members)) if members.len() == 1)
    }

    fn send(
        &mut self,
        depth: usize,
        member: &Member,
        probe: bool,
        board: &impl Board,
        wait: Wait,
        cost: Cost,
    ) -> Step {
        let admission = board.admission(member.index);
        self.depth = depth;
        self.trim_to = cut_for(member, &self.asked).filter(|_| depth > 0);
        if self.trim_to.is_some() {
            self.left_because = Some((Reason::Trimmed, None)); // what the caller must know before the rest
        }
        self.last_target = admission.cause == Reason::LastTarget.as_str();
        let fresh = Try { target: member.index, max_context_tokens: member.max_context_tokens, times: 1 };
        self.tries.push(fresh);
        let (tier, generation) = (self.route.tier_at(self.start, depth), admission.generation);
        Step::Send { tier, target: member.index, probe, generation, wait, cost }
    }

    fn repeat(&mut self, last: &Try, wait: Wait, board: &impl Board) -> Step {
        self.retries += 1;
        if let Some(this) = self.tries.last_mut() {
            this.times += 1;
        }
        let generation = board.admission(last.target).generation;
        let (tier, cost) = (self.route.tier_at(self.start, self.depth), Cost::RequestAndShared);
        Step::Send { tier, target: last.target, probe: false, generation, wait, cost }
    }
}
