//! One named tensor of an answer, as the tensor wires have it in common.
//!
//! A tensor may hold millions of numbers; all are looked at, only so many are kept, since one row of a
//! classifier or the first rows of a batch say what there is to say.

use super::Value;

/// Numbers kept of one tensor.
const MAX_VALUES: usize = 64 << 10;
/// Texts kept of one tensor.
const MAX_TEXTS: usize = 4 << 10;
/// Text kept of one tensor, bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Axes kept of a shape; no engine has more.
const MAX_AXES: usize = 16;

/// What the elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// Floating point numbers.
    Real,
    /// Integers and booleans.
    Whole,
    /// Texts or raw bytes.
    Text,
}

/// One output of a model.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Its name; empty where the wire gives none.
    pub name: &'a str,
    /// What the elements are.
    pub elements: Elements,
    /// Sizes of its axes, outermost first; empty for a single number.
    pub shape: &'a [usize],
    /// The numbers in row-major order, capped.
    pub values: &'a [f64],
    /// The texts in row-major order, capped; what is not UTF-8 has U+FFFD in it.
    pub texts: &'a [String],
    /// Whether all numbers are finite, those not kept included.
    pub finite: bool,
}

/// Takes elements one by one.
#[derive(Debug, Default)]
pub(super) struct Gather {
    pub(super) values: Vec<f64>,
    pub(super) texts: Vec<String>,
    pub(super) count: usize,
    text_bytes: usize,
    unfinite: bool,
    has_fraction: bool,
}

impl Gather {
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.texts.clear();
        (self.count, self.text_bytes) = (0, 0);
        (self.unfinite, self.has_fraction) = (false, false);
    }

    pub(super) fn is_finite(&self) -> bool {
        !self.unfinite
    }

    pub(super) fn number(&mut self, value: f64) {
        self.count += 1;
        self.unfinite |= !value.is_finite();
        self.has_fraction |= value.fract() != 0.0;
        if self.values.len() < MAX_VALUES {
            self.values.push(value);
        }
    }

    pub(super) fn text(&mut self, text: &[u8]) {
        self.count += 1;
        self.text_bytes = self.text_bytes.saturating_add(text.len());
        if self.texts.len() < MAX_TEXTS && self.text_bytes <= MAX_TEXT_BYTES {
            self.texts.push(String::from_utf8_lossy(text).into_owned());
        }
    }

    /// Takes what a JSON value holds, nested lists in row-major order. `null` is how encoders write a NaN.
    /// The reader bounds the depth.
    pub(super) fn json(&mut self, value: Value<'_>, elements: Elements) {
        if value.is_array() {
            if value.items().next().is_some() {
                value.items().for_each(|item| self.json(item, elements));
            } else {
                value.numbers().for_each(|n| self.number(n.unwrap_or(f64::NAN)));
            }
        } else if let Some(raw) = value.field("b64") {
            self.text(raw.string().unwrap_or_default().as_bytes());
        } else if let Some(text) = value.string() {
            match text.trim().parse::<f64>() {
                // Some encoders quote what JSON has no number for.
                Ok(number) if elements != Elements::Text && !number.is_finite() => self.number(number),
                _ => self.text(text.as_bytes()),
            }
        } else if let Some(truth) = value.boolean() {
            self.number(f64::from(u8::from(truth)));
        } else {
            self.number(value.number().unwrap_or(f64::NAN));
        }
    }

    /// What the elements look like, where the wire does not say.
    pub(super) fn likeness(&self) -> Elements {
        match () {
            () if self.values.is_empty() && !self.texts.is_empty() => Elements::Text,
            () if self.has_fraction || self.unfinite => Elements::Real,
            () => Elements::Whole,
        }
    }
}

/// Sizes of nested lists, told by the first element of each.
pub(super) fn nested_shape(value: Value<'_>) -> Vec<usize> {
    let mut shape = Vec::new();
    let mut at = value;
    while at.is_array() && shape.len() < MAX_AXES {
        match at.items().next() {
            Some(first) => {
                shape.push(at.items().count());
                at = first;
            }
            None => {
                shape.push(at.numbers().count());
                break;
            }
        }
    }
    shape
}

/// A shape as the wire gives it; `None` if it is none.
pub(super) fn given_shape(value: Value<'_>) -> Option<Vec<usize>> {
    let axis = |n: Option<f64>| n.filter(|n| *n >= 0.0 && n.fract() == 0.0).map(|n| n as usize);
    let shape: Option<Vec<usize>> = value.numbers().take(MAX_AXES).map(axis).collect();
    shape.filter(|_| value.is_array())
}

/// Elements that a shape stands for.
pub(super) fn volume(shape: &[usize]) -> usize {
    shape.iter().fold(1, |n, axis| n.saturating_mul(*axis))
}
