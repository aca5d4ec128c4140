//! What an embeddings answer holds, as far as one answer alone can tell.
//!
//! Whether a vector points where it used to needs a baseline and is judged elsewhere.

use super::Verdict;
use super::ask::Ask;
use crate::verdict::{Flag, FlagSet};
use crate::wire::Vector;

/// Components of the first vector that are kept for the drift of golden inputs.
const MAX_KEPT: usize = 8 << 10;

/// Running facts over the vectors of one answer.
#[derive(Debug, Default)]
pub(super) struct Vectors {
    flags: FlagSet,
    seen: usize,
    dim: Option<usize>,
    norm: Option<f64>,
    /// Vectors in the answer, those not looked at included.
    pub(super) items: usize,
    /// The first vector.
    pub(super) first: Option<Vec<f32>>,
}

impl Vectors {
    pub(super) fn add(&mut self, vector: &Vector<'_>, ask: &Ask) {
        self.seen += 1;
        if (!vector.readable && !ask.other_numbers)
            || ask.wants_base64.is_some_and(|wanted| wanted != vector.encoded)
        {
            self.flags.insert(Flag::EmbeddingEncodingMismatch);
        }
        if !vector.readable || (vector.encoded && ask.other_numbers) {
            return;
        }
        let dim = vector.values.len();
        if dim == 0 {
            return self.flags.insert(Flag::EmbeddingEmpty);
        }
        let asked = ask.dimensions.is_some_and(|d| d as usize != dim);
        if asked || self.dim.is_some_and(|first| first != dim) {
            self.flags.insert(Flag::EmbeddingDimMismatch);
        }
        if !vector.finite {
            self.flags.insert(Flag::EmbeddingNonfinite);
        } else if vector.values.iter().all(|v| v.abs() <= 0.0) {
            self.flags.insert(Flag::EmbeddingZero);
        }
        if self.dim.is_none() {
            self.dim = Some(dim);
            let norm = vector.values.iter().map(|v| f64::from(*v) * f64::from(*v)).sum::<f64>().sqrt();
            self.norm = norm.is_finite().then_some(norm);
            self.first = (dim <= MAX_KEPT && vector.finite).then(|| vector.values.to_vec());
        }
    }

    /// Writes flags and signals.
    pub(super) fn conclude(&self, ask: &Ask, whole: bool, flags: &mut FlagSet, verdict: &mut Verdict) {
        *flags = flags.union(self.flags);
        if whole && self.seen == 0 {
            flags.insert(Flag::EmbeddingEmpty);
        }
        let count = self.items.max(self.seen);
        if whole && self.seen > 0 && ask.items.is_some_and(|asked| asked as usize != count) {
            flags.insert(Flag::IndexAnomaly);
        }
        verdict.signals.dim = self.dim.and_then(|d| u32::try_from(d).ok());
        verdict.signals.norm = self.norm;
        verdict.signals.items = u32::try_from(count).ok();
    }
}
