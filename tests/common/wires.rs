//! The answers of tests/fixtures/wires.

use std::path::PathBuf;

use serde_json::Value;
use touchstone::verdict::Wire;

use super::upstream::{Act, chunk, end};

pub(crate) struct WireAnswer {
    pub(crate) name: String,
    pub(crate) wire: Wire,
    pub(crate) json: Value,
}

/// All of them, in order of their names.
pub(crate) fn all() -> Vec<WireAnswer> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/wires");
    let mut all: Vec<WireAnswer> = std::fs::read_dir(folder)
        .expect("fixtures")
        .map(|entry| entry.expect("entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .map(|path| {
            let json: Value = serde_json::from_slice(&std::fs::read(&path).expect("a file")).expect("json");
            let wire = json["wire"].as_str().and_then(Wire::parse).expect("a wire");
            WireAnswer { name: path.file_stem().expect("a name").to_string_lossy().into_owned(), wire, json }
        })
        .collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(all.len() > 50, "only {} answers", all.len());
    all
}

impl WireAnswer {
    pub(crate) fn pieces(&self) -> Vec<String> {
        let pieces = self.json["body"].as_array().expect("pieces");
        pieces.iter().map(|p| p.as_str().expect("text").to_owned()).collect()
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        self.pieces().concat().into_bytes()
    }

    pub(crate) fn status(&self) -> u16 {
        self.json["status"].as_u64().expect("a status") as u16
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.json["ends"] == "broken"
    }

    /// Whether nothing at all is odd about it.
    pub(crate) fn is_sound(&self) -> bool {
        self.json["expect"]["flags"].as_array().is_some_and(Vec::is_empty) && self.status() == 200
    }

    /// The path that it answers.
    pub(crate) fn path(&self) -> &'static str {
        match self.wire {
            Wire::Chat => "/v1/chat/completions",
            Wire::Completions => "/v1/completions",
            Wire::Embeddings => "/v1/embeddings",
            Wire::Responses => "/v1/responses",
            Wire::Messages => "/v1/messages",
            Wire::Rerank => "/v1/rerank",
            Wire::OllamaChat => "/api/chat",
            Wire::OllamaGenerate => "/api/generate",
            Wire::OllamaEmbed => "/api/embed",
            Wire::KserveInfer | Wire::TfPredict => panic!("no answers of tensors here"),
        }
    }

    /// What an upstream does to give it, a chunk for each piece.
    pub(crate) fn acts(&self) -> Vec<Act> {
        self.acts_as(self.json["content_type"].as_str().expect("a type"))
    }

    /// Likewise, under this content type.
    pub(crate) fn acts_as(&self, kind: &str) -> Vec<Act> {
        let head = format!(
            "HTTP/1.1 {} X\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n",
            self.status()
        );
        let mut acts = vec![Act::Send(head.into_bytes())];
        acts.extend(self.pieces().iter().map(|piece| chunk(piece)));
        acts.extend(if self.is_cut() { vec![Act::Wait(20), Act::Reset] } else { vec![end()] });
        acts
    }
}
