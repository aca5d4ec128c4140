//! What the answers of each wire consist of.

use super::Wire;

/// What the answers of a wire consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Substance {
    /// Text, in choices.
    Text,
    /// Vectors.
    Vectors,
    /// Tensors.
    Tensors,
    /// A score for each document.
    Scores,
}

impl Wire {
    /// What the answers of this wire consist of.
    #[must_use]
    pub const fn substance(self) -> Substance {
        match self {
            Self::Chat
            | Self::Completions
            | Self::Messages
            | Self::Responses
            | Self::OllamaChat
            | Self::OllamaGenerate => Substance::Text,
            Self::Embeddings | Self::OllamaEmbed => Substance::Vectors,
            Self::KserveInfer | Self::TfPredict => Substance::Tensors,
            Self::Rerank => Substance::Scores,
        }
    }
}
