//! The detector of arms A1 and C1: do new scores still stand among the healthy ones as chance would have it?
//!
//! Each score has a column of healthy values from calibration and looks at one tail or both. The
//! statistic is the mean of all Shiryaev–Roberts recursions, one a score, tail and size of shift (see
//! [`crate::stats::betting`]); so several scores share one promise, and one that is missing at the
//! moment is passed over without loosening it. The limit comes from [`super::selftest`], for what a mean
//! over many calibrations promises says little about the one at hand.

use std::collections::BTreeMap;

use super::Tally;
use crate::clock::Timestamp;
use crate::stats::betting::{Bets, ShiryaevRoberts};
use crate::stats::ranks::Ranks;

/// A score and the tails that make sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Its name; closed.
    pub name: &'static str,
    /// Whether large values are suspicious.
    pub upper: bool,
    /// Whether small values are suspicious.
    pub lower: bool,
}

impl Score {
    /// How many tails it looks at.
    #[must_use]
    pub const fn tails(&self) -> usize {
        self.upper as usize + self.lower as usize
    }
}

/// Healthy scores in the order they were observed: one column a score, row by row; NaN where an
/// observation lacks the score.
#[derive(Clone, Debug, PartialEq)]
pub struct Healthy {
    scores: &'static [Score],
    columns: Vec<Vec<f64>>,
}

impl Healthy {
    /// No observation of these scores yet.
    #[must_use]
    pub fn new(scores: &'static [Score]) -> Self {
        Self { scores, columns: vec![Vec::new(); scores.len()] }
    }

    /// Takes one observation, a value a score.
    pub fn push(&mut self, row: impl IntoIterator<Item = Option<f64>>) {
        for (column, value) in self.columns.iter_mut().zip(row) {
            column.push(value.filter(|v| v.is_finite()).unwrap_or(f64::NAN));
        }
    }

    /// From columns by score name, as a baseline keeps them; of different lengths, the longest common
    /// stretch.
    #[must_use]
    pub fn from_columns(scores: &'static [Score], named: &BTreeMap<String, Vec<f64>>) -> Self {
        let known = scores.iter().filter_map(|s| named.get(s.name)).filter(|c| !c.is_empty());
        let rows = known.map(Vec::len).min().unwrap_or(0);
        let column = |s: &Score| match named.get(s.name) {
            Some(values) if !values.is_empty() => values[..rows].to_vec(),
            _ => vec![f64::NAN; rows],
        };
        Self { scores, columns: scores.iter().map(column).collect() }
    }

    /// Columns by score name; a score that some observation lacks is left out.
    #[must_use]
    pub fn to_columns(&self) -> BTreeMap<String, Vec<f64>> {
        let whole = |c: &&Vec<f64>| !c.is_empty() && c.iter().all(|v| v.is_finite());
        let named = self.scores.iter().zip(&self.columns).filter(|(_, c)| whole(c));
        named.map(|(s, c)| (s.name.to_owned(), c.clone())).collect()
    }

    /// Observations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The scores.
    #[must_use]
    pub const fn scores(&self) -> &'static [Score] {
        self.scores
    }

    /// The columns, in the scores' order.
    #[must_use]
    pub fn columns(&self) -> &[Vec<f64>] {
        &self.columns
    }

    /// One observation.
    pub fn row(&self, i: usize) -> impl Iterator<Item = f64> + '_ {
        self.columns.iter().map(move |c| c.get(i).copied().unwrap_or(f64::NAN))
    }

    /// Whether every score has one value only: then nothing is known of how it moves.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        let constant = |c: &Vec<f64>| {
            let mut known = c.iter().filter(|v| v.is_finite());
            known.next().is_none_or(|first| known.all(|v| v.total_cmp(first).is_eq()))
        };
        self.columns.iter().all(constant)
    }
}

/// The statistic passed its limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Alarm {
    /// The statistic.
    pub statistic: f64,
    /// Observations since the last restart.
    pub n: u64,
    /// When it seems to have begun.
    pub onset: Option<Timestamp>,
    /// The score that contributed most.
    pub score: &'static str,
    /// Whether it is larger than in health.
    pub larger: bool,
}

#[derive(Clone, Debug)]
struct Stream {
    score: Score,
    ranks: Ranks,
    bets: Bets,
    upper: ShiryaevRoberts,
    lower: ShiryaevRoberts,
}

/// One detector over the scores of one stream.
#[derive(Clone, Debug)]
pub struct Conformal {
    streams: Vec<Stream>,
    limit: f64,
    tally: Tally,
    since: u64,
}

impl Conformal {
    /// Against these healthy observations, with the limit that the self-test found. A score with fewer
    /// than `least` healthy values takes no part; `None` if none is left.
    #[must_use]
    pub fn new(healthy: &Healthy, limit: f64, least: usize) -> Option<Self> {
        let mut tables: BTreeMap<usize, Bets> = BTreeMap::new();
        let streams: Vec<Stream> = healthy
            .scores
            .iter()
            .zip(&healthy.columns)
            .map(|(score, column)| (*score, Ranks::new(column.iter().copied())))
            .filter(|(_, ranks)| ranks.len() >= least.max(1))
            .map(|(score, ranks)| {
                let n = ranks.len();
                let bets = tables.entry(n).or_insert_with(|| Bets::normal_scores(n)).clone();
                Stream {
                    score,
                    ranks,
                    bets,
                    upper: ShiryaevRoberts::default(),
                    lower: ShiryaevRoberts::default(),
                }
            })
            .collect();
        (!streams.is_empty()).then_some(Self { streams, limit, tally: Tally::default(), since: 0 })
    }

    /// Takes one observation, a value a score of [`Healthy::scores`] that takes part; see
    /// [`Self::scores`]. An alarm restarts the recursions.
    pub fn record(&mut self, at: Timestamp, value: impl Fn(&'static str) -> Option<f64>) -> Option<Alarm> {
        let mut seen = false;
        for stream in &mut self.streams {
            let Some(value) = value(stream.score.name).filter(|v| v.is_finite()) else { continue };
            seen = true;
            if stream.score.upper {
                stream.upper.step(at, stream.bets.of(stream.ranks.from_top(value)));
            }
            if stream.score.lower {
                stream.lower.step(at, stream.bets.of(stream.ranks.from_bottom(value)));
            }
        }
        self.tally.n += u64::from(seen);
        self.since += u64::from(seen);
        let statistic = self.statistic();
        if statistic < self.limit {
            return None;
        }
        let (score, larger, onset) = self.leading();
        let alarm = Alarm { statistic, n: self.since, onset, score, larger };
        self.tally.alarms += 1;
        self.restart();
        Some(alarm)
    }

    /// Begins anew; counts stay.
    pub fn restart(&mut self) {
        self.since = 0;
        for stream in &mut self.streams {
            stream.upper.restart();
            stream.lower.restart();
        }
    }

    /// The scores that take part.
    pub fn scores(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.streams.iter().map(|s| s.score.name)
    }

    /// The statistic now.
    #[must_use]
    pub fn statistic(&self) -> f64 {
        let sum: f64 = self.streams.iter().map(|s| s.upper.statistic() + s.lower.statistic()).sum();
        let tails: usize = self.streams.iter().map(|s| s.score.tails()).sum();
        sum / tails as f64
    }

    /// The score that contributes most, whether it is larger than in health, and since when.
    #[must_use]
    pub fn leading(&self) -> (&'static str, bool, Option<Timestamp>) {
        let mut best = ("", true, None, -1.0);
        for stream in &self.streams {
            for (tail, larger) in [(&stream.upper, true), (&stream.lower, false)] {
                let (r, onset) = tail.leading();
                if r > best.3 {
                    best = (stream.score.name, larger, onset, r);
                }
            }
        }
        (best.0, best.1, best.2)
    }

    /// Its limit.
    #[must_use]
    pub const fn limit(&self) -> f64 {
        self.limit
    }

    /// Observations and alarms so far.
    #[must_use]
    pub const fn tally(&self) -> Tally {
        self.tally
    }

    /// Healthy observations that the ranks rest on.
    #[must_use]
    pub fn reference_len(&self) -> usize {
        self.streams.iter().map(|s| s.ranks.len()).max().unwrap_or(0)
    }

    /// Bytes of state, shared tables counted once.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let ranks: usize = self.streams.iter().map(|s| s.ranks.len() * size_of::<f64>()).sum();
        let tables: BTreeMap<usize, usize> =
            self.streams.iter().map(|s| (s.bets.n(), s.bets.bytes())).collect();
        size_of::<Self>() + self.streams.len() * size_of::<Stream>() + ranks + tables.values().sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
