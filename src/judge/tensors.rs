//! What an answer of tensors holds: whether its numbers are numbers, and what its classifier says.

use super::Verdict;
use super::classes::{self, Classes};
use crate::sample::TopK;
use crate::verdict::{ClassOutput, Flag, FlagSet};
use crate::wire::Tensor;
use crate::wire::tensor::Elements;

/// Longest label kept, bytes.
const MAX_LABEL: usize = 16 << 10;
/// Longest label in a distribution, bytes.
const MAX_TOKEN: usize = 64;
/// Less carries no information; the same floor that logprobs have.
const FLOOR: f64 = -40.0;

/// Running facts over the outputs of one answer.
#[derive(Debug, Default)]
pub(super) struct Tensors {
    seen: usize,
    unfinite: bool,
    dim: Option<usize>,
    norm: Option<f64>,
    items: Option<usize>,
    /// The likeliest classifier's output so far, and how much speaks for it.
    classes: Option<(u8, Classes)>,
    /// Top label of the classification extension.
    scored_label: Option<String>,
    /// The first tensor of other texts and its shape.
    texts: Option<(Vec<usize>, Vec<String>)>,
    /// The first integer of the first tensor of one integer a row.
    class_id: Option<String>,
}

impl Tensors {
    pub(super) fn add(&mut self, tensor: &Tensor<'_>) {
        self.seen += 1;
        self.unfinite |= !tensor.finite;
        self.measure(tensor);
        match tensor.elements {
            Elements::Text => self.texts(tensor),
            elements => {
                let classes = classes::of_numbers(tensor);
                if classes.is_none()
                    && elements == Elements::Whole
                    && tensor.shape.iter().skip(1).all(|n| *n == 1)
                {
                    let id = tensor.values.first().map(f64::to_string);
                    self.class_id = self.class_id.take().or(id);
                }
                self.prefer(classes);
            }
        }
    }

    /// Of equally likely outputs the first counts.
    fn prefer(&mut self, other: Option<(u8, Classes)>) {
        let held = self.classes.as_ref().map(|(rank, _)| *rank);
        if other.as_ref().is_some_and(|(rank, _)| held.is_none_or(|held| *rank > held)) {
            self.classes = other;
        }
    }

    fn texts(&mut self, tensor: &Tensor<'_>) {
        if let Some((unfinite, label, distribution)) = classes::of_texts(tensor) {
            self.unfinite |= unfinite;
            self.scored_label.get_or_insert(label);
            self.prefer(distribution.map(|d| (u8::MAX, d)));
        } else if self.texts.is_none() && !tensor.texts.is_empty() {
            self.texts = Some((tensor.shape.to_vec(), tensor.texts.to_vec()));
        }
    }

    /// Dimension and length of the first row of the first tensor of numbers.
    fn measure(&mut self, tensor: &Tensor<'_>) {
        let (rows, dim) = match *tensor.shape {
            [] => (1, 1),
            [only] => (1, only),
            [rows, .., last] => (rows, last),
        };
        if self.items.is_none() || (self.dim.is_none() && tensor.elements != Elements::Text) {
            self.items = Some(rows);
        }
        if self.dim.is_some() || tensor.elements == Elements::Text {
            return;
        }
        self.dim = Some(dim);
        let row = &tensor.values[..dim.min(tensor.values.len())];
        let norm = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        self.norm = Some(norm).filter(|n| n.is_finite() && row.len() == dim);
    }

    /// Writes flags and signals. `whole`: nothing is missing that was not sent.
    pub(super) fn conclude(self, whole: bool, flags: &mut FlagSet, verdict: &mut Verdict) {
        if self.unfinite {
            flags.insert(Flag::TensorNonfinite);
        }
        if whole && self.seen == 0 {
            flags.insert(Flag::EmptyOutput);
            verdict.empty_cause = Some("no_outputs");
        }
        let signals = &mut verdict.signals;
        signals.dim = self.dim.and_then(|d| u32::try_from(d).ok());
        signals.norm = self.norm;
        signals.items = self.items.and_then(|n| u32::try_from(n).ok());
        let texts =
            self.texts.map(|(shape, texts)| (names_classes(&shape, self.items, &self.classes), texts));
        let mut top = None;
        if let Some((_, classes)) = self.classes {
            signals.class_output = Some(classes.output);
            signals.class_entropy = Some(classes.entropy);
            signals.class_entropy_ratio = classes.ratio;
            signals.confidence = Some(classes.confidence);
            signals.margin = Some(classes.margin);
            (signals.coverage, signals.entropy_unavailable) = (Some(1.0), None);
            let names = texts.as_ref().filter(|(names, _)| *names).map_or(&[][..], |(_, texts)| texts);
            let first = named(classes.first, names);
            top = first.first().map(|(label, _)| label.clone());
            if classes.output != ClassOutput::Independent || classes.count == 1 {
                verdict.first_position = Some(top_k(first));
            }
        }
        let spoken = texts.filter(|(names, _)| !names).and_then(|(_, texts)| texts.into_iter().next());
        let id = self.class_id.filter(|_| top.as_ref().is_none_or(|t| t.parse::<u64>().is_ok()));
        let label = self.scored_label.or(spoken).or(id).or(top);
        let label = label.unwrap_or_default();
        verdict.text = label[..label.floor_char_boundary(MAX_LABEL)].into();
    }
}

/// Whether texts of this shape name the classes, one each, and not the answer of each row.
fn names_classes(shape: &[usize], rows: Option<usize>, classes: &Option<(u8, Classes)>) -> bool {
    let count = classes.as_ref().map_or(0, |(_, classes)| classes.count);
    count > 1 && shape.last() == Some(&count) && (shape.len() > 1 || rows == Some(1))
}

/// Puts the names of classes in place of their numbers.
fn named(classes: Vec<(String, f64)>, names: &[String]) -> Vec<(String, f64)> {
    let name = |index: String| index.parse().ok().and_then(|i: usize| names.get(i).cloned()).unwrap_or(index);
    classes.into_iter().map(|(index, p)| (name(index), p)).collect()
}

/// A distribution over classes as one over tokens: canaries read both alike.
fn top_k(classes: Vec<(String, f64)>) -> TopK {
    let token = |label: &String| label.as_bytes()[..label.len().min(MAX_TOKEN)].to_vec();
    TopK {
        sampled: classes.first().map(|(label, _)| token(label)).unwrap_or_default(),
        alternatives: classes.iter().map(|(label, p)| (token(label), p.ln().clamp(FLOOR, 0.0))).collect(),
    }
}

#[cfg(test)]
mod tests;
