//! The dimension that a model's embeddings have, remembered from answer to answer.
//!
//! A vector of another length than yesterday's fits no index that was built from them, so a change is a
//! fault at once and not a matter of statistics. What the first sound answer had is what counts, until
//! the target is configured anew.

use super::{Ask, Verdict};
use crate::verdict::{FaultClass, Flag, Substance};

/// Most models remembered of one target.
const MAX_MODELS: usize = 64;

/// Dimensions of the models of one target.
#[derive(Debug, Default)]
pub struct Dimensions(Vec<Known>);

#[derive(Debug)]
struct Known {
    model: Option<String>,
    /// Part of the question: some models give the length that was asked for.
    asked: Option<u32>,
    dim: u32,
}

impl Dimensions {
    /// What vectors of this question have been long, if any were seen.
    #[must_use]
    pub fn known(&self, ask: &Ask) -> Option<u32> {
        self.0.iter().find(|k| k.model == ask.model && k.asked == ask.dimensions).map(|k| k.dim)
    }

    /// Holds an answer against the earlier ones; raises the flag, and the class where it was no fault
    /// before. Does nothing to an answer without vectors.
    pub fn hold(&mut self, ask: &Ask, verdict: &mut Verdict) {
        let vectors = ask.wire.substance() == Substance::Vectors;
        let Some(dim) = verdict.signals.dim.filter(|_| vectors) else { return };
        let known = self.0.iter().find(|k| k.model == ask.model && k.asked == ask.dimensions);
        match known {
            Some(known) if known.dim == dim => {}
            Some(_) => {
                verdict.flags.insert(Flag::EmbeddingDimMismatch);
                if matches!(verdict.class, None | Some(FaultClass::Info | FaultClass::QualitySoft)) {
                    verdict.class = Some(FaultClass::QualityHard);
                }
            }
            None if verdict.class.is_none() && self.0.len() < MAX_MODELS => {
                self.0.push(Known { model: ask.model.clone(), asked: ask.dimensions, dim });
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Wire;

    fn hold(known: &mut Dimensions, request: &str, dim: u32, class: Option<FaultClass>) -> Verdict {
        let mut verdict = Verdict { class, ..Verdict::default() };
        verdict.signals.dim = Some(dim);
        known.hold(&Ask::parse(Wire::Embeddings, request.as_bytes()), &mut verdict);
        verdict
    }

    #[test]
    fn a_change_for_one_model_is_a_fault_at_once() {
        let mut known = Dimensions::default();
        let mut mismatch = |request: &str, dim| {
            let verdict = hold(&mut known, request, dim, None);
            assert_eq!(verdict.class.is_some(), verdict.flags.contains(Flag::EmbeddingDimMismatch));
            verdict.class.is_some()
        };
        assert!(!mismatch(r#"{"model":"e"}"#, 4) && !mismatch(r#"{"model":"e"}"#, 4));
        assert!(mismatch(r#"{"model":"e"}"#, 8) && !mismatch(r#"{"model":"e"}"#, 4));
        assert!(!mismatch(r#"{"model":"f"}"#, 8) && !mismatch(r#"{"model":"e","dimensions":2}"#, 2));
    }

    #[test]
    fn only_a_sound_answer_is_learned_from() {
        let mut known = Dimensions::default();
        hold(&mut known, "{}", 8, Some(FaultClass::QualityHard));
        assert_eq!(hold(&mut known, "{}", 4, None).class, None);
        let failed = hold(&mut known, "{}", 8, Some(FaultClass::Upstream));
        assert_eq!(failed.class, Some(FaultClass::Upstream), "a worse class stays");
    }
}
