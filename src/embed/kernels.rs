//! The element-wise steps of the forward pass, fused and in place.
//!
//! Composed of candle's general operations they would cost more than the matrix products on short texts.
//! `exp` is a polynomial that the compiler can turn into vector instructions of any processor (relative
//! error below 1e-7·(3 + |x|)); `erf` is formula 7.1.26 of Abramowitz & Stegun (absolute error below 1.5e-7). Both are
//! far below what 8-bit weights lose.

use candle_core::{CpuStorage, InplaceOp1, InplaceOp2, Layout, Result, bail};

/// 1.5 × 2²³: adding it rounds a small number to a whole one in the lowest bits.
const ROUND: f32 = 12_582_912.0;

/// eˣ; x is held within the range of finite, normal results.
#[inline]
#[allow(clippy::cast_possible_wrap)] // the bits of a float near ROUND, far from the sign
pub(super) fn exp(x: f32) -> f32 {
    let t = x.clamp(-87.0, 88.0) * std::f32::consts::LOG2_E;
    let shifted = t + ROUND;
    let rest = t - (shifted - ROUND);
    // 2^rest for |rest| ≤ 0.5: Taylor in rest·ln 2
    let p = 1.535_336_6e-4_f32;
    let p = p * rest + 1.333_373_6e-3;
    let p = p * rest + 9.618_123e-3;
    let p = p * rest + 5.550_332_5e-2;
    let p = p * rest + 2.402_265e-1;
    let p = p * rest + 6.931_472e-1;
    let p = p * rest + 1.0;
    let whole = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    f32::from_bits(((whole + 127) as u32) << 23) * p
}

#[inline]
fn erf(x: f32) -> f32 {
    let a = x.abs();
    let t = 1.0 / (0.327_591_1 * a + 1.0);
    let p = 1.061_405_4_f32;
    let p = p * t - 1.453_152;
    let p = p * t + 1.421_413_7;
    let p = p * t - 0.284_496_74;
    let p = p * t + 0.254_829_6;
    (1.0 - p * t * exp(-a * a)).copysign(x)
}

/// The activation between the two halves of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    /// x·Φ(x).
    Gelu,
    /// Its approximation by a hyperbolic tangent.
    GeluTanh,
    /// max(x, 0).
    Relu,
}

impl Activation {
    #[inline]
    fn apply(self, x: f32) -> f32 {
        match self {
            Self::Gelu => 0.5 * x * (1.0 + erf(x * std::f32::consts::FRAC_1_SQRT_2)),
            Self::GeluTanh => {
                let inner = 0.797_884_6 * (x + 0.044_715 * x * x * x);
                x / (1.0 + exp(-2.0 * inner))
            }
            Self::Relu => x.max(0.0),
        }
    }
}

fn values<'a>(storage: &'a mut CpuStorage, layout: &Layout, op: &'static str) -> Result<&'a mut [f32]> {
    let Some((begin, end)) = layout.contiguous_offsets() else { bail!("{op}: not contiguous") };
    match storage {
        CpuStorage::F32(all) => Ok(&mut all[begin..end]),
        _ => bail!("{op}: not 32-bit floats"),
    }
}

/// x ← x + bias, row by row.
pub(super) struct AddBias<'a>(pub(super) &'a [f32]);

impl InplaceOp1 for AddBias<'_> {
    fn name(&self) -> &'static str {
        "add-bias"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        for row in values(storage, layout, self.name())?.chunks_exact_mut(self.0.len()) {
            row.iter_mut().zip(self.0).for_each(|(x, b)| *x += b);
        }
        Ok(())
    }
}

/// x ← activation(x + bias), row by row.
pub(super) struct BiasActivation<'a>(pub(super) &'a [f32], pub(super) Activation);

impl InplaceOp1 for BiasActivation<'_> {
    fn name(&self) -> &'static str {
        "bias-activation"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        for row in values(storage, layout, self.name())?.chunks_exact_mut(self.0.len()) {
            // the match stands outside the loop, so that each loop is straight and vectorises
            match self.1 {
                Activation::Gelu => activate(row, self.0, |x| Activation::Gelu.apply(x)),
                Activation::GeluTanh => activate(row, self.0, |x| Activation::GeluTanh.apply(x)),
                Activation::Relu => activate(row, self.0, |x| Activation::Relu.apply(x)),
            }
        }
        Ok(())
    }
}

#[inline]
fn activate(row: &mut [f32], bias: &[f32], f: impl Fn(f32) -> f32) {
    row.iter_mut().zip(bias).for_each(|(x, b)| *x = f(*x + b));
}

/// Rows of `width` become shares that sum to 1.
pub(super) struct Softmax {
    /// Length of a row.
    pub(super) width: usize,
}

impl InplaceOp1 for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        for row in values(storage, layout, self.name())?.chunks_exact_mut(self.width) {
            let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            row.iter_mut().for_each(|x| *x = exp(*x - top));
            let scale = 1.0 / sum(row);
            row.iter_mut().for_each(|x| *x *= scale);
        }
        Ok(())
    }
}

/// Scale and shift of a layer norm.
#[derive(Debug)]
pub(super) struct Norm {
    /// Per column.
    pub(super) weight: Vec<f32>,
    /// Per column.
    pub(super) bias: Vec<f32>,
    /// Added to the variance.
    pub(super) epsilon: f32,
}

/// x ← norm(x + y + bias), row by row.
pub(super) struct AddNorm<'a> {
    /// Added to each row; may be empty.
    pub(super) bias: &'a [f32],
    /// The norm.
    pub(super) norm: &'a Norm,
}

impl InplaceOp2 for AddNorm<'_> {
    fn name(&self) -> &'static str {
        "add-norm"
    }

    fn cpu_fwd(&self, s1: &mut CpuStorage, l1: &Layout, s2: &CpuStorage, l2: &Layout) -> Result<()> {
        let width = self.norm.weight.len();
        let (CpuStorage::F32(other), Some((begin, end))) = (s2, l2.contiguous_offsets()) else {
            bail!("{}: not contiguous 32-bit floats", self.name())
        };
        let xs = values(s1, l1, self.name())?;
        for (x, y) in xs.chunks_exact_mut(width).zip(other[begin..end].chunks_exact(width)) {
            x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
            x.iter_mut().zip(self.bias).for_each(|(x, b)| *x += b);
            normalise(x, self.norm);
        }
        Ok(())
    }
}

#[allow(clippy::cast_precision_loss)] // a row has a few thousand columns
fn normalise(row: &mut [f32], norm: &Norm) {
    let n = row.len() as f32;
    let mean = sum(row) / n;
    row.iter_mut().for_each(|x| *x -= mean);
    let variance = sum_squares(row) / n;
    let scale = 1.0 / (variance + norm.epsilon).sqrt();
    for ((x, w), b) in row.iter_mut().zip(&norm.weight).zip(&norm.bias) {
        *x = *x * scale * w + b;
    }
}

/// Eight partial sums: additions in a chain would not vectorise.
fn folded(row: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut parts = [0.0_f32; 8];
    let chunks = row.chunks_exact(8);
    let rest: f32 = chunks.remainder().iter().map(|x| f(*x)).sum();
    for chunk in chunks {
        parts.iter_mut().zip(chunk).for_each(|(p, x)| *p += f(*x));
    }
    parts.iter().sum::<f32>() + rest
}

fn sum(row: &[f32]) -> f32 {
    folded(row, |x| x)
}

fn sum_squares(row: &[f32]) -> f32 {
    folded(row, |x| x * x)
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Tensor};

    use super::*;

    #[test]
    fn exp_is_near_the_library_over_its_range_and_finite_beyond() {
        for i in -8_600..8_700_i16 {
            let x = f32::from(i) / 100.0;
            let bound = 1e-7 * (3.0 + f64::from(x.abs()));
            let ratio = f64::from(exp(x)) / f64::from(x).exp();
            assert!((ratio - 1.0).abs() < bound, "{x}: {ratio}");
        }
        assert!(exp(1e9).is_finite() && exp(-1e9) >= 0.0 && exp(-1e9) < 1e-37);
    }

    #[test]
    fn activations_meet_published_values() {
        let table = [(0.0, 0.0), (1.0, 0.841_344_7), (-1.0, -0.158_655_26), (3.0, 2.995_950_3)];
        for (x, y) in table {
            assert!((Activation::Gelu.apply(x) - y).abs() < 1e-6);
            assert!((Activation::GeluTanh.apply(x) - y).abs() < 1e-3);
        }
        assert!(Activation::Relu.apply(-2.0).abs() < f32::EPSILON);
    }

    #[test]
    fn softmax_and_norm_hold_their_laws() -> Result<()> {
        let x = Tensor::new(&[[1.0_f32, 2.0, 3.0], [1000.0, 0.0, -1000.0]], &Device::Cpu)?;
        x.inplace_op1(&Softmax { width: 3 })?;
        let rows = x.to_vec2::<f32>()?;
        assert!((rows[0][2] - 0.665_240_94).abs() < 1e-6);
        assert!(rows.iter().all(|r| (r.iter().sum::<f32>() - 1.0).abs() < 1e-6));

        let norm = Norm { weight: vec![1.0; 4], bias: vec![0.5; 4], epsilon: 1e-12 };
        let (x, y) = (
            Tensor::new(&[[1.0_f32, 2.0, 3.0, 4.0]], &Device::Cpu)?,
            Tensor::ones((1, 4), candle_core::DType::F32, &Device::Cpu)?,
        );
        x.inplace_op2(&y, &AddNorm { bias: &[1.0, 0.0, 0.0, -1.0], norm: &norm })?;
        let row = x.to_vec2::<f32>()?.remove(0);
        assert!((row.iter().sum::<f32>() - 2.0).abs() < 1e-5, "mean 0 and the bias: {row:?}");
        Ok(())
    }
}
