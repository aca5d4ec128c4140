//! The fitted network: features, standardised and clipped, through one layer of tanh units.
//!
//! It is the mean of several networks fitted from different starting points, written as one wide layer.

use std::sync::LazyLock;

use super::features::FEATURES;

const WEIGHTS: &str = include_str!("network.txt");
/// Standardised features beyond this say no more.
const CLIP: f32 = 4.0;

/// Hidden units that are made room for.
const MOST_UNITS: usize = 64;

pub(super) struct Network {
    mean: [f32; FEATURES],
    scale: [f32; FEATURES],
    units: usize,
    /// Weights of a feature in all units, side by side: the sums of the units grow together, in the vector units.
    weights: Vec<[f32; MOST_UNITS]>,
    biases: [f32; MOST_UNITS],
    outs: [f32; MOST_UNITS],
    bias: f32,
}

/// The network, read once. A file that cannot be read gives one that finds everything sound; a test
/// holds that it can.
pub(super) fn fitted() -> &'static Network {
    static NETWORK: LazyLock<Network> =
        LazyLock::new(|| Network::read(WEIGHTS).unwrap_or_else(Network::blind));
    &NETWORK
}

impl Network {
    /// Reads means, scales, one unit a line (weights, bias, output weight), bias.
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(|line| {
            line.split_whitespace().map(str::parse).collect::<Result<Vec<f32>, _>>().unwrap_or_default()
        });
        let mean = lines.next()?.try_into().ok()?;
        let scale = lines.next()?.try_into().ok()?;
        let mut this = Self { mean, scale, weights: vec![[0.0; MOST_UNITS]; FEATURES], ..Self::blind() };
        for line in lines {
            match *line.as_slice() {
                [bias] => return Some(Self { bias, ..this }),
                [ref weights @ .., bias, out] if weights.len() == FEATURES && this.units < MOST_UNITS => {
                    let unit = this.units;
                    this.weights.iter_mut().zip(weights).for_each(|(all, weight)| all[unit] = *weight);
                    (this.biases[unit], this.outs[unit]) = (bias, out);
                    this.units += 1;
                }
                _ => return None,
            }
        }
        None
    }

    const fn blind() -> Self {
        Self {
            mean: [0.0; FEATURES],
            scale: [0.0; FEATURES],
            units: 0,
            weights: Vec::new(),
            biases: [0.0; MOST_UNITS],
            outs: [0.0; MOST_UNITS],
            bias: -f32::MAX,
        }
    }

    /// Log-odds of damage.
    pub(super) fn odds(&self, features: &[f32; FEATURES]) -> f32 {
        let mut x = *features;
        for ((x, mean), scale) in x.iter_mut().zip(&self.mean).zip(&self.scale) {
            *x = ((*x - mean) * scale).clamp(-CLIP, CLIP);
        }
        let mut sums = [0.0; MOST_UNITS];
        for (weights, x) in self.weights.iter().zip(&x) {
            sums.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += weight * x);
        }
        let units = sums.iter().zip(&self.biases).zip(&self.outs).take(self.units);
        units.fold(self.bias, |odds, ((sum, bias), out)| out.mul_add((sum + bias).tanh(), odds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_can_be_read() {
        let network = Network::read(WEIGHTS).expect("well formed");
        assert!(network.units >= 16);
        assert!(network.odds(&[0.0; FEATURES]).is_finite());
    }

    #[test]
    fn a_broken_file_is_noticed() {
        assert!(Network::read("1 2 3").is_none());
        assert!(Network::read(&WEIGHTS[..WEIGHTS.len() / 2]).is_none());
        assert!(Network::blind().odds(&[1.0; FEATURES]) < 0.0);
    }
}
