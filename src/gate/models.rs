//! A target that names no model takes what the caller wrote, and one server may hold several models: one that fails
//! must not take the others out of traffic. So each model name seen there has a state of its own, the first that
//! answered that of the target itself, so that with one model all is as if it had been configured.
//!
//! At most 32 are told apart; the rest share one state. Names come from callers, so they are cut to a
//! length that labels can hold.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::Slot;

/// Stands between a target's name and a model's; no target's name holds it.
pub const MODEL_MARK: char = '#';
/// Models told apart at one target.
const MOST_MODELS: usize = 32;
/// Longest name of a model in the name of its state, bytes.
const LONGEST: usize = 64;

/// The name of the target that a published state belongs to.
#[must_use]
pub fn target_of(state: &str) -> &str {
    state.split(MODEL_MARK).next().unwrap_or(state)
}

/// The models seen at one target, each with the name of its state.
#[derive(Debug)]
pub struct Models {
    target: Arc<str>,
    seen: ArcSwap<Vec<(Box<str>, Arc<str>)>>,
    slots: Arc<ArcSwap<HashMap<Arc<str>, Arc<Slot>>>>,
}

impl Models {
    pub(super) fn new(target: Arc<str>, slots: Arc<ArcSwap<HashMap<Arc<str>, Arc<Slot>>>>) -> Self {
        Self { target, seen: ArcSwap::default(), slots }
    }

    /// The name under which the state of `model` is published. Until some model has answered, all have the target's.
    #[must_use]
    pub fn state_of(&self, model: Option<&str>) -> Arc<str> {
        let Some(model) = model else { return Arc::clone(&self.target) };
        let seen = self.seen.load();
        match seen.iter().find(|(name, _)| **name == *model) {
            Some((_, state)) => Arc::clone(state),
            None if seen.is_empty() => Arc::clone(&self.target),
            None => self.add(model),
        }
    }

    /// A model has answered; the first that does has the target's own state from now on.
    pub fn answered(&self, model: &str) {
        if self.seen.load().is_empty() {
            self.seen.rcu(|seen| {
                let mut seen = Vec::clone(seen);
                if seen.is_empty() {
                    seen.push((model.into(), Arc::clone(&self.target)));
                }
                seen
            });
        }
    }

    fn add(&self, model: &str) -> Arc<str> {
        let full = self.seen.load().len() >= MOST_MODELS;
        let shown = if full { "other" } else { &model[..model.floor_char_boundary(LONGEST)] };
        let state: Arc<str> = format!("{}{MODEL_MARK}{shown}", self.target).into();
        if !self.slots.load().contains_key(&state) {
            self.slots.rcu(|slots| {
                let mut slots = HashMap::clone(slots);
                slots.entry(Arc::clone(&state)).or_default();
                slots
            });
        }
        if !full {
            self.seen.rcu(|seen| {
                let mut seen = Vec::clone(seen);
                if !seen.iter().any(|(name, _)| **name == *model) {
                    seen.push((model.into(), Arc::clone(&state)));
                }
                seen
            });
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Gate, Published};
    use super::*;
    use crate::verdict::BreakerState;

    #[test]
    fn the_first_model_that_answers_has_the_targets_state_and_each_other_its_own() {
        let gate = Gate::new([Arc::from("ollama")]);
        let models = gate.models("ollama").expect("known");
        assert_eq!(&*models.state_of(Some("a")), "ollama");
        assert_eq!(&*models.state_of(Some("b")), "ollama", "nobody has answered yet");
        models.answered("b");
        models.answered("a");
        assert_eq!(&*models.state_of(Some("b")), "ollama");
        assert_eq!(&*models.state_of(Some("a")), "ollama#a");
        assert_eq!(&*models.state_of(None), "ollama");
        let mut open = Published::default();
        open.admission.state = BreakerState::Open;
        gate.publish("ollama#a", open);
        assert_eq!(gate.read("ollama#a").admission.state, BreakerState::Open);
        assert_eq!(gate.read("ollama").admission.state, BreakerState::Closed);
        let after = gate.with_targets([Arc::from("ollama"), Arc::from("c")]);
        assert_eq!(after.read("ollama#a").admission.state, BreakerState::Open, "over a reload, too");
        assert_eq!(&*after.models("ollama").expect("known").state_of(Some("b")), "ollama");
        assert_eq!((target_of("ollama#a"), target_of("ollama")), ("ollama", "ollama"));
    }

    #[test]
    fn no_more_than_so_many_are_told_apart_and_names_are_cut() {
        let gate = Gate::new([Arc::from("t")]);
        let models = gate.models("t").expect("known");
        models.answered("first");
        let states: std::collections::BTreeSet<Arc<str>> =
            (0..100).map(|n| models.state_of(Some(&format!("model-{n}")))).collect();
        assert_eq!(
            states.len(),
            MOST_MODELS,
            "the first, {MOST_MODELS} less one of their own, and the rest as one"
        );
        assert!(states.contains("t#other"));
        assert_eq!(&*models.state_of(Some("model-99")), "t#other");
        let gate = Gate::new([Arc::from("t")]);
        let models = gate.models("t").expect("known");
        models.answered("first");
        assert!(models.state_of(Some(&"ü".repeat(400))).len() <= 2 + LONGEST);
    }
}
