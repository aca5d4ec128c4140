//! The fitted network: features, standardised and clipped, through one layer of tanh units.
//!
//! It is the mean of several networks fitted from different starting points, written as one wide layer.

use std::sync::LazyLock;

use super::features::FEATURES;

const WEIGHTS: &str = include_str!("network.txt");
/// Standardised features beyond this say no more.
const CLIP: f32 = 4.0;

/// One hidden unit.
struct Unit {
    weights: [f32; FEATURES],
    bias: f32,
    out: f32,
}

pub(super) struct Network {
    mean: [f32; FEATURES],
    scale: [f32; FEATURES],
    units: Vec<Unit>,
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
        let mut units = Vec::new();
        for line in lines {
            match *line.as_slice() {
                [bias] => return Some(Self { mean, scale, units, bias }),
                [ref weights @ .., bias, out] => {
                    units.push(Unit { weights: weights.try_into().ok()?, bias, out });
                }
                [] => return None,
            }
        }
        None
    }

    fn blind() -> Self {
        Self { mean: [0.0; FEATURES], scale: [0.0; FEATURES], units: Vec::new(), bias: -f32::MAX }
    }

    /// Log-odds of damage.
    pub(super) fn odds(&self, features: &[f32; FEATURES]) -> f32 {
        let mut x = *features;
        for ((x, mean), scale) in x.iter_mut().zip(&self.mean).zip(&self.scale) {
            *x = ((*x - mean) * scale).clamp(-CLIP, CLIP);
        }
        self.units.iter().fold(self.bias, |sum, unit| {
            let dot: f32 = unit.weights.iter().zip(&x).map(|(w, x)| w * x).sum();
            unit.out.mul_add((dot + unit.bias).tanh(), sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weights_can_be_read() {
        let network = Network::read(WEIGHTS).expect("well formed");
        assert!(network.units.len() >= 16);
        assert!(network.odds(&[0.0; FEATURES]).is_finite());
    }

    #[test]
    fn a_broken_file_is_noticed() {
        assert!(Network::read("1 2 3").is_none());
        assert!(Network::read(&WEIGHTS[..WEIGHTS.len() / 2]).is_none());
        assert!(Network::blind().odds(&[1.0; FEATURES]) < 0.0);
    }
}
