//! Faults put in front of a target on purpose: which one hits a call, and what it does to an answer.
//!
//! Breakers, budgets and tiers are worth what they do on a bad day, so a bad day can be made: transport faults
//! (latency, error status, reset, cut, stall, a storm of 429) and faults of quality under status 200 (empty,
//! looping, high-entropy, shuffled, in another language, broken JSON, logprobs dropped, another model under the
//! same name). The simulated upstream speaks the same language of faults. Nothing here acts: draws are
//! arguments, and bytes go in and come out.

mod fault;
mod spoil;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use fault::{Condition, Fault, FaultError, FaultKind, Faults, Transport};
pub use spoil::{Spoil, rename};

/// `[chaos]`: faults in front of targets; only with `--allow-chaos`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawParams", into = "RawParams")]
pub struct Params {
    seed: u64,
    swap_model: Option<String>,
    faults: BTreeMap<String, Faults>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawParams {
    seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    swap_model: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    faults: BTreeMap<String, String>,
}

/// Why `[chaos]` cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParamsError {
    /// A specification that cannot be read.
    #[error("faults.{0}: {1}")]
    Fault(String, FaultError),
    /// Another model is asked for, and none is named.
    #[error("swap_model: `model_swap` of `{0}` needs the name of the other model")]
    SwapModel(String),
}

impl TryFrom<RawParams> for Params {
    type Error = ParamsError;

    fn try_from(raw: RawParams) -> Result<Self, ParamsError> {
        let mut faults = BTreeMap::new();
        for (target, text) in raw.faults {
            let read: Faults = text.parse().map_err(|e| ParamsError::Fault(target.clone(), e))?;
            let swaps = read.as_slice().iter().any(|f| f.kind == FaultKind::ModelSwap);
            if swaps && raw.swap_model.is_none() {
                return Err(ParamsError::SwapModel(target));
            }
            faults.insert(target, read);
        }
        Ok(Self { seed: raw.seed, swap_model: raw.swap_model, faults })
    }
}

impl From<Params> for RawParams {
    fn from(params: Params) -> Self {
        let faults = params.faults.into_iter().map(|(target, faults)| (target, faults.to_string())).collect();
        Self { seed: params.seed, swap_model: params.swap_model, faults }
    }
}

impl Params {
    /// Whether any fault is put anywhere.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.faults.values().all(|faults| faults.as_slice().is_empty())
    }

    /// Fixes the draws.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// The model that answers in place of the target's own.
    #[must_use]
    pub fn swap_model(&self) -> Option<&str> {
        self.swap_model.as_deref()
    }

    /// What is put in front of this target, if anything.
    #[must_use]
    pub fn of(&self, target: &str) -> Option<&Faults> {
        self.faults.get(target).filter(|faults| !faults.as_slice().is_empty())
    }

    /// The targets named.
    pub fn targets(&self) -> impl Iterator<Item = &str> {
        self.faults.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_by_target_and_nonsense_by_its_place() {
        let params: Params =
            toml::from_str("faults = { large = \"latency=2s:0.5,loop:0.1\" }").expect("reads");
        assert!(!params.is_off());
        assert_eq!(
            params.of("large").map(ToString::to_string).as_deref(),
            Some("latency=2000ms:0.5,loop:0.1")
        );
        assert!(params.of("small").is_none());
        let fault = |text: &str| toml::from_str::<Params>(text).expect_err(text).to_string();
        assert!(fault("faults = { large = \"lop\" }").contains("faults.large: unknown fault `lop`"));
        assert!(fault("faults = { large = \"model_swap\" }").contains("swap_model"));
        assert!(Params::default().is_off());
    }
}
