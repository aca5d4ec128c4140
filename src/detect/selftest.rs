//! Does a calibration keep its promise? Asked of the calibration itself, before it is trusted.
//!
//! A limit that is right on average over all calibrations is far too low for many of them: with a
//! hundred scores the true rate of false alarms differs tenfold between one calibration and the next. So
//! calibration *and* stream are resampled from the observations; each pair has its own, conditional rate
//! of alarms, and the limit is raised until the 10th percentile of the mean time between them meets the
//! promise.
//!
//! Values that occur once are drawn as if from a continuous law: copies of one observation are told apart by
//! a random place in its gap, so that a copy does not count as a tie. Values that occur several times are
//! atoms and tie.
//!
//! An alarm takes a few suspicious scores in a row, so dependence between neighbours matters far more
//! than its size: an autocorrelation of 0.04 halves the time between alarms, and no test on a few hundred
//! scores can see it. So one is always assumed, the seen one and a standard error (1/√n) more: the
//! stream is drawn through a Gaussian autoregression over ranks. (A block bootstrap keeps what a few hundred
//! scores happen to show of dependence, which is too little here: it promised four times too much.)
//!
//! Alarms within one pair are a Poisson count; what their variance exceeds that of a Poisson count is
//! the spread of the conditional rate, fitted by a lognormal law. A quantile of the bare counts would
//! mistake luck for a bad calibration.

use std::collections::HashMap;

use crate::baseline::Tested;
use crate::clock::Timestamp;
use crate::stats::betting::{BETS, Bets};
use crate::stats::quantile;
use crate::stats::ranks::Ranks;
use crate::stats::resample::{Autoregression, lag1};

use super::conformal::{Conformal, Healthy, Score};

/// Promised mean number of observations between false alarms of an arm.
pub const PROMISE: f64 = 1e4;
/// Resampled pairs: the 10th percentile then has an error of a few percent.
pub const RESAMPLES: u32 = 1_000;
/// A stream that depends more on its past than this is no stream for ranks.
const MOST_DEPENDENT: f64 = 0.9;
/// Rounds of raising the limit.
const ROUNDS: u32 = 6;
/// No limit is raised beyond: what needs more has too few scores for the promise.
const MAX_LIMIT: f64 = 1e9;
/// Standard normal quantile of 90 %.
const Z90: f64 = 1.281_551_565_544_6;

/// One score's observations by rank.
struct Column {
    score: Score,
    group: Vec<Option<u32>>,
    atom: Vec<bool>,
}

impl Column {
    fn new(score: Score, values: &[f64]) -> Self {
        let mut distinct: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        distinct.sort_unstable_by(f64::total_cmp);
        distinct.dedup_by(|a, b| a.total_cmp(b).is_eq());
        let place = |v: &f64| {
            let at = distinct.binary_search_by(|d| d.total_cmp(v)).ok()?;
            u32::try_from(at).ok()
        };
        let group: Vec<Option<u32>> = values.iter().map(place).collect();
        let mut counts = vec![0_u32; distinct.len()];
        group.iter().flatten().for_each(|g| counts[*g as usize] += 1);
        Self { score, group, atom: counts.iter().map(|n| *n > 1).collect() }
    }
}

/// One column of one resampled calibration.
#[derive(Default)]
struct Drawn {
    places: Vec<Vec<f64>>,
    above: Vec<usize>,
    n: usize,
    upper: [f64; BETS.len()],
    lower: [f64; BETS.len()],
}

impl Drawn {
    fn fill(&mut self, column: &Column, rows: &[usize], rng: &mut fastrand::Rng) {
        self.places.resize_with(column.atom.len(), Vec::new);
        self.places.iter_mut().for_each(Vec::clear);
        for group in rows.iter().filter_map(|i| column.group[*i]) {
            self.places[group as usize].push(rng.f64());
        }
        self.above = vec![0; column.atom.len()];
        let mut above = 0;
        for (group, places) in self.places.iter().enumerate().rev() {
            self.above[group] = above;
            above += places.len();
        }
        self.n = above;
    }

    /// Cells of an observation of `group`, from the top and from the bottom.
    fn cells(&self, group: u32, atom: bool, rng: &mut fastrand::Rng) -> (usize, usize) {
        let group = group as usize;
        let (places, above) = (&self.places[group], self.above[group]);
        let below = self.n - above - places.len();
        if atom {
            return (above + places.len(), below + places.len());
        }
        let own = rng.f64();
        let larger = places.iter().filter(|p| **p > own).count();
        (above + larger, below + places.len() - larger)
    }
}

fn step(r: &mut [f64; BETS.len()], bets: &Bets, cell: usize) -> f64 {
    let mut sum = 0.0;
    for ((r, bet), (_, _, weight)) in r.iter_mut().zip(bets.of(cell)).zip(BETS) {
        *r = (1.0 + *r) * bet;
        sum += *r * weight;
    }
    sum
}

/// Mean time between alarms, over all streams and its 10th percentile over streams, from the `alarms` of
/// each in `length` observations. Without any alarm three are assumed: nothing in N is at most 3/N.
#[must_use]
pub fn arl0(length: f64, alarms: &[f64]) -> (f64, f64) {
    let mean = quantile::mean(alarms).unwrap_or(0.0);
    if mean <= 0.0 {
        let bound = length * alarms.len() as f64 / 3.0;
        return (bound, bound);
    }
    let excess = (quantile::variance(alarms).unwrap_or(0.0) - mean).max(0.0);
    let spread = (1.0 + excess / (mean * mean)).ln(); // the lognormal's variance of logarithms
    let worst = mean * (Z90 * spread.sqrt() - spread / 2.0).exp().max(1.0);
    (length / mean, length / worst)
}

fn simulate(
    columns: &[Column],
    order: &[usize],
    dependence: f64,
    limit: f64,
    length: u32,
    resamples: u32,
    seed: u64,
) -> Vec<f64> {
    let rows = order.len();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut tables: HashMap<usize, Bets> = HashMap::new();
    let mut drawn: Vec<Drawn> = columns.iter().map(|_| Drawn::default()).collect();
    let tails: usize = columns.iter().map(|c| c.score.tails()).sum();
    let enough = limit * tails as f64;
    let mut alarms = Vec::with_capacity(resamples as usize);
    let mut stream = Autoregression::new(dependence);
    for _ in 0..resamples {
        let calibration: Vec<usize> = (0..rows).map(|_| rng.usize(..rows)).collect();
        let mut bets = Vec::with_capacity(columns.len());
        for (drawn, column) in drawn.iter_mut().zip(columns) {
            drawn.fill(column, &calibration, &mut rng);
            (drawn.upper, drawn.lower) = Default::default();
            let n = drawn.n;
            bets.push(tables.entry(n).or_insert_with(|| Bets::normal_scores(n)).clone());
        }
        let mut count = 0.0;
        for _ in 0..length {
            let i = order[stream.draw(rows, &mut rng)];
            let mut sum = 0.0;
            for ((drawn, column), bets) in drawn.iter_mut().zip(columns).zip(&bets) {
                let Some(group) = column.group[i] else {
                    continue; // what is not there makes no alarm
                };
                let (top, bottom) = drawn.cells(group, column.atom[group as usize], &mut rng);
                if column.score.upper {
                    sum += step(&mut drawn.upper, bets, top);
                }
                if column.score.lower {
                    sum += step(&mut drawn.lower, bets, bottom);
                }
            }
            if sum >= enough {
                count += 1.0;
                drawn.iter_mut().for_each(|d| (d.upper, d.lower) = Default::default());
            }
        }
        alarms.push(count);
    }
    alarms
}

/// Finds the limit at which these healthy observations keep `promise`, beginning at the promise itself
/// (which a mean over calibrations keeps by the theory). Takes a second or so: not for an async worker.
#[must_use]
pub fn test(healthy: &Healthy, promise: f64, resamples: u32, seed: u64) -> Tested {
    let known = |c: &Vec<f64>| c.iter().any(|v| v.is_finite());
    let columns: Vec<Column> = healthy
        .scores()
        .iter()
        .zip(healthy.columns())
        .filter(|(_, values)| known(values))
        .map(|(score, values)| Column::new(*score, values))
        .collect();
    let rows = healthy.len();
    let dependence = healthy.columns().iter().filter_map(|c| lag1(c)).fold(0.0, f64::max);
    let atoms = healthy.columns().iter().map(|c| Ranks::new(c.iter().copied()).share_of_atoms());
    let mut tested = Tested {
        limit: promise,
        promise,
        n: rows,
        atoms: atoms.fold(0.0, f64::max),
        lag1: dependence,
        resamples,
        ..Tested::default()
    };
    if columns.is_empty() {
        return tested;
    }
    if healthy.is_constant() {
        // Nothing to resample: the theory's promise is all there is.
        (tested.arl0, tested.arl0_p10, tested.kept) = (promise, promise, true);
        return tested;
    }
    // The order in which the autoregression moves through the rows: that of the most dependent score.
    let by = |c: &&Vec<f64>| lag1(c).unwrap_or(-1.0);
    let leading = healthy.columns().iter().max_by(|a, b| by(a).total_cmp(&by(b)));
    let mut order: Vec<usize> = (0..rows).collect();
    if let Some(leading) = leading {
        order.sort_by(|a, b| leading[*a].total_cmp(&leading[*b]));
    }
    let assumed = (dependence + 1.0 / (rows as f64).sqrt()).min(MOST_DEPENDENT);
    let length = promise.clamp(100.0, 1e6) as u32;
    for round in 0..ROUNDS {
        let alarms =
            simulate(&columns, &order, assumed, tested.limit, length, resamples, seed ^ u64::from(round));
        (tested.arl0, tested.arl0_p10) = arl0(f64::from(length), &alarms);
        tested.kept = tested.arl0_p10 >= promise;
        if tested.kept || tested.limit >= MAX_LIMIT {
            break;
        }
        if round + 1 < ROUNDS {
            // Few alarms say little of how far to go; a large calibration is never four times off.
            let factor = (1.05 * promise / tested.arl0_p10).clamp(1.05, 8.0);
            tested.limit = (tested.limit * factor).min(MAX_LIMIT);
        }
    }
    tested
}

/// A change on paper: what it makes of one healthy observation, in place.
pub type Fault<'a> = &'a dyn Fn(&mut Vec<f64>, &mut fastrand::Rng);

/// Mean observations from a change to the alarm, over `runs` of the detector on healthy observations that
/// `fault` has altered; at most `cap`.
#[must_use]
pub fn delay(healthy: &Healthy, limit: f64, fault: Fault<'_>, runs: u32, cap: u32, seed: u64) -> Option<f64> {
    let fresh = Conformal::new(healthy, limit, 1)?;
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut total = 0.0;
    for _ in 0..runs.max(1) {
        let mut detector = fresh.clone();
        let mut n = 0;
        loop {
            n += 1;
            let mut row: Vec<f64> = healthy.row(rng.usize(..healthy.len().max(1))).collect();
            fault(&mut row, &mut rng);
            let value = |name: &str| {
                let column = healthy.scores().iter().position(|s| s.name == name)?;
                row.get(column).copied()
            };
            if detector.record(Timestamp::ZERO, value).is_some() || n >= cap {
                break;
            }
        }
        total += f64::from(n);
    }
    Some(total / f64::from(runs.max(1)))
}

#[cfg(test)]
mod tests;
