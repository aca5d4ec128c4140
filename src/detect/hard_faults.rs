//! Arm C2: hard faults of live answers, from the first request on.
//!
//! A hard fault (empty, looping, gibberish, broken schema …) is deterministic, so this arm may open by
//! itself. It tests whether faults come more often than the healthy rate p₀ with an e-detector in
//! Shiryaev–Roberts form, R ← (1 + R)·e, where e is the likelihood ratio of one answer under a faulty
//! rate q against p₀. Restarting matters: a plain product has sunk after a thousand good answers and then
//! needs thirteen bad ones, the recursion forgets and needs three. The statistic is a weighted mean over
//! several q and over the streams "any fault" and each flag; a mean of such recursions keeps the promise
//! that a false alarm comes no sooner than once in `limit` answers on average (Shin, Ramdas and Rinaldo,
//! "E-detectors", 2022).
//!
//! p₀ is the 95 % upper bound of the larger of the golden and the healthy live rate, never below
//! 10⁻³. Until either is known, p₀ is assumed and only gross rates are bet on, so that a route whose callers ask
//! for the impossible now and then is learned and not condemned. Equal requests count as one fault in
//! ten minutes and at least three faults from two requests are needed: one caller retrying one bad
//! prompt trips nobody.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::sample::Outcome;
use crate::verdict::{FaultClass, Flag};

use super::bound::upper95;
use super::{Arm, ArmStatus, Finding, Level};

/// Faulty rates that are bet on: nearly all, half, one in ten.
const BETS: [f64; 3] = [0.95, 0.5, 0.1];
/// Without a known p₀ only these many of the bets run, the gross ones.
const GROSS_BETS: usize = 2;
/// A bet on less than thrice the healthy rate is no bet.
const MIN_ODDS: f64 = 3.0;
/// Share of the statistic that the stream of any fault carries; the flags share the rest.
const ANY_WEIGHT: f64 = 0.5;
/// No healthy rate is believed to be lower: a thousand answers show no less.
const P0_FLOOR: f64 = 1e-3;
/// A healthy rate above this leaves nothing to detect.
const P0_CEILING: f64 = 0.3;
/// Assumed while nothing is known: low enough that three bad answers in a row still suffice, high enough
/// that a route with one bad answer in twenty is learned first.
const P0_ASSUMED: f64 = 0.02;
/// Answers from which on the live rate is used.
const MIN_LIVE: u32 = 300;
/// Beyond this the older half is forgotten, so that the rate follows months and not minutes.
const MAX_LIVE: u32 = 4_000;
/// Answers are learned from in blocks, each only when it has passed without suspicion.
const BLOCK: u32 = 100;
/// Lowest limit: one false opening in ten thousand answers at most.
const MIN_LIMIT: f64 = 1e4;
/// Faults needed, whatever the statistic.
const MIN_FAULTS: u32 = 3;
/// Equal requests count once in this time, milliseconds.
const EQUAL_MS: u64 = 600_000;
/// Distinct faults remembered for that.
const MAX_REMEMBERED: usize = 512;
/// Routes watched apart; more share one stream.
const MAX_ROUTES: usize = 64;
/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;
/// Days that the limit covers.
const DAYS: u64 = 30;

/// Faults among answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Faulty ones.
    pub faults: u32,
    /// All.
    pub answers: u32,
}

impl Rate {
    fn share(self) -> f64 {
        if self.answers == 0 { 0.0 } else { f64::from(self.faults) / f64::from(self.answers) }
    }

    fn upper(self) -> f64 {
        upper95(self.faults, self.answers).clamp(P0_FLOOR, P0_CEILING)
    }

    fn add(&mut self, other: Self) {
        self.faults += other.faults;
        self.answers += other.answers;
        if self.answers > MAX_LIVE {
            (self.faults, self.answers) = (self.faults / 2, self.answers / 2);
        }
    }
}

/// One recursion, with a CUSUM beside it that tells the onset.
#[derive(Clone, Copy, Debug, Default)]
struct Bet {
    r: f64,
    cusum: f64,
    faults: u32,
    answers: u64,
    first_hash: u64,
    diverse: bool,
    onset: Timestamp,
}

impl Bet {
    fn step(&mut self, q: f64, p0: f64, fault: Option<u64>, at: Timestamp) {
        let e = if fault.is_some() { q / p0 } else { (1.0 - q) / (1.0 - p0) };
        self.r = ((1.0 + self.r) * e).min(f64::MAX / 1e6);
        self.cusum += e.ln();
        if self.cusum <= 0.0 {
            *self = Self { r: self.r, ..Self::default() };
            return;
        }
        self.answers += 1;
        if let Some(hash) = fault {
            if self.faults == 0 {
                (self.first_hash, self.onset) = (hash, at);
            }
            self.diverse |= hash != self.first_hash;
            self.faults += 1;
        }
    }
}

/// The recursions of one kind of fault, and its healthy rate.
#[derive(Clone, Debug, Default)]
struct Stream {
    bets: [Bet; BETS.len()],
    live: Rate,
    pending: Rate,
    p0: f64,
    known: bool,
}

impl Stream {
    fn new(live: Rate, golden: Rate) -> Self {
        let mut stream = Self { live, ..Self::default() };
        stream.settle(golden);
        stream
    }

    /// Sets p₀ from what is known.
    fn settle(&mut self, golden: Rate) {
        let live = if self.live.answers >= MIN_LIVE { self.live } else { Rate::default() };
        self.known = live.answers > 0 || golden.answers > 0;
        let larger = match live.share().total_cmp(&golden.share()) {
            std::cmp::Ordering::Greater => live,
            std::cmp::Ordering::Less => golden,
            std::cmp::Ordering::Equal if live.answers >= golden.answers => live,
            std::cmp::Ordering::Equal => golden,
        };
        self.p0 = if self.known { larger.upper() } else { P0_ASSUMED };
    }

    fn step(&mut self, fault: Option<u64>, at: Timestamp) {
        let running = if self.known { BETS.len() } else { GROSS_BETS };
        for (bet, q) in self.bets.iter_mut().zip(BETS).take(running) {
            if q >= MIN_ODDS * self.p0 {
                bet.step(q, self.p0, fault, at);
            }
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn statistic(&self) -> f64 {
        self.bets.iter().map(|b| b.r).sum::<f64>() / BETS.len() as f64
    }

    fn restart(&mut self) {
        self.bets = Default::default();
        self.pending = Rate::default();
    }

    fn leading(&self) -> &Bet {
        self.bets.iter().reduce(|a, b| if b.r > a.r { b } else { a }).unwrap_or(&self.bets[0])
    }

    fn learn(&mut self, fault: bool, golden: Rate) {
        self.pending.faults += u32::from(fault);
        self.pending.answers += 1;
        if self.pending.answers >= BLOCK {
            self.live.add(std::mem::take(&mut self.pending));
            self.settle(golden);
        }
    }
}

/// All streams of one route.
#[derive(Clone, Debug)]
struct RouteFaults {
    any: Stream,
    flags: BTreeMap<Flag, Stream>,
    remembered: VecDeque<(Timestamp, u64)>,
    answers: u64,
    alarms: u64,
}

/// What survives a restart: healthy rates and how many answers a day there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Healthy live rates by route; the key `any` is all faults, the others are flags.
    pub rates: BTreeMap<Arc<str>, BTreeMap<String, Rate>>,
    /// Answers by day since the epoch.
    pub days: BTreeMap<u64, u64>,
}

/// The arm of one target.
#[derive(Clone, Debug, Default)]
pub struct HardFaults {
    golden: Rate,
    routes: BTreeMap<Arc<str>, RouteFaults>,
    days: BTreeMap<u64, u64>,
}

impl HardFaults {
    /// An arm that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An arm with the healthy rates of an earlier life.
    #[must_use]
    pub fn restore(saved: &Saved) -> Self {
        let mut arm = Self { days: saved.days.clone(), ..Self::default() };
        for (route, rates) in saved.rates.iter().take(MAX_ROUTES) {
            let rate = |name: &str| rates.get(name).copied().unwrap_or_default();
            let mut streams = RouteFaults::new(rate("any"), arm.golden);
            for flag in rates.keys().filter_map(|name| Flag::parse(name)) {
                streams.flags.insert(flag, Stream::new(rate(flag.as_str()), arm.golden));
            }
            arm.routes.insert(Arc::clone(route), streams);
        }
        arm
    }

    /// What must survive a restart.
    #[must_use]
    pub fn saved(&self) -> Saved {
        let rates = |r: &RouteFaults| {
            let flags = r.flags.iter().map(|(flag, s)| (flag.as_str().to_owned(), s.live));
            std::iter::once(("any".to_owned(), r.any.live)).chain(flags).collect()
        };
        Saved {
            rates: self.routes.iter().map(|(route, r)| (Arc::clone(route), rates(r))).collect(),
            days: self.days.clone(),
        }
    }

    /// The golden rate of the calibration.
    pub fn set_golden(&mut self, golden: Rate) {
        self.golden = golden;
        for route in self.routes.values_mut() {
            route.any.settle(golden);
            route.flags.values_mut().for_each(|s| s.settle(golden));
        }
    }

    /// Begins anew; healthy rates stay.
    pub fn restart(&mut self) {
        self.routes.values_mut().for_each(RouteFaults::restart);
    }

    /// The limit at `now`: ten thousand, or the answers of the last 30 days.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn limit(&self, now: Timestamp) -> f64 {
        let oldest = (now.as_millis() / DAY_MS).saturating_sub(DAYS - 1);
        let answers: u64 = self.days.range(oldest..).map(|(_, n)| n).sum();
        (answers as f64).max(MIN_LIMIT)
    }

    /// A live attempt ended. `learning`: the target is not under suspicion.
    pub fn on_outcome(&mut self, outcome: &Outcome, learning: bool) -> Option<Finding> {
        if !matches!(
            outcome.class,
            None | Some(FaultClass::Info | FaultClass::QualitySoft | FaultClass::QualityHard)
        ) {
            return None; // no answer to judge
        }
        if outcome.light {
            return None; // neither a trial nor a fault, so that rates stay those of answers read in full
        }
        let at = outcome.at;
        self.count_day(at);
        let limit = self.limit(at);
        let full = self.routes.len() >= MAX_ROUTES && !self.routes.contains_key(&outcome.route);
        let name: Arc<str> = if full { Arc::from("other") } else { Arc::clone(&outcome.route) };
        let golden = self.golden;
        let route =
            self.routes.entry(Arc::clone(&name)).or_insert_with(|| RouteFaults::new(Rate::default(), golden));
        route.observe(outcome, learning, golden);
        let finding = route.finding(name, at, limit)?;
        route.alarms += 1;
        route.restart();
        Some(finding)
    }

    /// Where each route's stream stands.
    #[must_use]
    #[allow(clippy::cast_precision_loss)]
    pub fn status(&self, now: Timestamp) -> Vec<ArmStatus> {
        let limit = self.limit(now);
        let status = |(name, route): (&Arc<str>, &RouteFaults)| {
            let leading = route.any.leading();
            ArmStatus {
                arm: Arm::C2,
                route: Some(Arc::clone(name)),
                unavailable: None,
                statistic: route.statistic(),
                n: route.answers,
                limit,
                arl0: Some(limit),
                realised: (route.alarms > 0).then(|| route.answers as f64 / route.alarms as f64),
                onset: (leading.faults > 0).then_some(leading.onset),
                expected_delay: Some(f64::from(route.delay(limit))),
            }
        };
        self.routes.iter().map(status).collect()
    }

    fn count_day(&mut self, at: Timestamp) {
        let day = at.as_millis() / DAY_MS;
        *self.days.entry(day).or_default() += 1;
        while self.days.len() > usize::try_from(DAYS).unwrap_or(30) {
            self.days.pop_first();
        }
    }
}

impl RouteFaults {
    fn new(live: Rate, golden: Rate) -> Self {
        Self {
            any: Stream::new(live, golden),
            flags: BTreeMap::new(),
            remembered: VecDeque::new(),
            answers: 0,
            alarms: 0,
        }
    }

    fn restart(&mut self) {
        self.any.restart();
        self.flags.values_mut().for_each(Stream::restart);
        self.remembered.clear();
    }

    fn observe(&mut self, outcome: &Outcome, learning: bool, golden: Rate) {
        let hard = || outcome.flags.iter().filter(|f| f.class() == FaultClass::QualityHard);
        let faulty = hard().next().is_some();
        if faulty && self.is_equal(outcome.at, outcome.request_hash) {
            return;
        }
        self.answers += 1;
        let hash = outcome.request_hash;
        self.any.step(faulty.then_some(hash), outcome.at);
        for flag in hard() {
            // A stream that begins with its first fault is an e-detector begun later.
            let live = Rate { faults: 0, answers: self.any.live.answers };
            self.flags.entry(flag).or_insert_with(|| Stream::new(live, golden));
        }
        for (flag, stream) in &mut self.flags {
            stream.step(outcome.flags.contains(*flag).then_some(hash), outcome.at);
        }
        if learning {
            self.any.learn(faulty, golden);
            for (flag, stream) in &mut self.flags {
                stream.learn(outcome.flags.contains(*flag), golden);
            }
        }
    }

    /// Whether an equal request has been counted as a fault lately; remembers it if not.
    fn is_equal(&mut self, at: Timestamp, hash: u64) -> bool {
        while self.remembered.front().is_some_and(|(t, _)| at.ms_since(*t) >= EQUAL_MS) {
            self.remembered.pop_front();
        }
        if self.remembered.iter().any(|(_, h)| *h == hash) {
            return true;
        }
        if self.remembered.len() >= MAX_REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back((at, hash));
        false
    }

    #[allow(clippy::cast_precision_loss)]
    fn statistic(&self) -> f64 {
        let kinds = Flag::ALL.iter().filter(|f| f.class() == FaultClass::QualityHard).count().max(1);
        let each = (1.0 - ANY_WEIGHT) / kinds as f64;
        let flags: f64 = self.flags.values().map(Stream::statistic).sum();
        ANY_WEIGHT * self.any.statistic() + each * flags
    }

    fn finding(&self, name: Arc<str>, at: Timestamp, limit: f64) -> Option<Finding> {
        let statistic = self.statistic();
        if statistic < limit {
            return None;
        }
        let proven = |s: &&Stream| s.leading().faults >= MIN_FAULTS && s.leading().diverse;
        let run = std::iter::once(&self.any).chain(self.flags.values()).find(proven)?.leading();
        let named = |(flag, s): (&Flag, &Stream)| match s.leading().faults {
            0 => None,
            n => Some(format!("{flag} {n}")),
        };
        let flags: Vec<String> = self.flags.iter().filter_map(named).collect();
        let on = if name.is_empty() { String::new() } else { format!(" on route {name}") };
        let message = format!(
            "{} of the last {} answers{on} were unusable ({}); statistic {statistic:.3e}, limit {limit:.3e}, \
             healthy rate at most {:.2} %",
            run.faults,
            run.answers,
            flags.join(", "),
            self.any.p0 * 100.0
        );
        Some(Finding {
            at,
            route: Some(name),
            arm: Arm::C2,
            level: Level::Degraded,
            reason: "hard_faults".to_owned(),
            statistic,
            n: run.answers,
            limit,
            arl0: Some(limit),
            onset: Some(run.onset),
            message,
        })
    }

    /// Faults in a row until the limit, from a fresh start.
    fn delay(&self, limit: f64) -> u32 {
        let mut any = self.any.clone();
        any.restart();
        (1..=1_000)
            .find(|n| {
                any.step(Some(u64::from(*n)), Timestamp::ZERO);
                ANY_WEIGHT * any.statistic() >= limit
            })
            .unwrap_or(1_000)
            .max(MIN_FAULTS)
    }
}

#[cfg(test)]
mod tests;
