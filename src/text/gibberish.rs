//! Text that is no language.

/// Evidence that grows with every implausible word.
#[derive(Clone, Debug, Default)]
pub struct Gibberish {}

impl Gibberish {
    /// With what the caller asked.
    #[must_use]
    pub fn new(prompt: &str) -> Self {
        let _ = prompt;
        Self {}
    }

    /// Takes the next piece.
    pub fn push(&mut self, piece: &str) {
        let _ = (&self, piece);
    }

    /// Takes the word under way.
    pub fn finish(&mut self) {}

    /// Whether the evidence has reached the limit.
    #[must_use]
    pub const fn tripped(&self) -> bool {
        false
    }

    /// The largest evidence so far, as a fraction of the limit.
    #[must_use]
    pub const fn evidence(&self) -> f64 {
        0.0
    }
}
