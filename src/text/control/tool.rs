//! Tool calls printed as text: template markup, or a plain JSON object that names an offered tool.

use std::sync::Arc;

use crate::text::{Prompt, head};

/// Head of the text that is kept to recognise a JSON call, bytes.
const HEAD_BYTES: usize = 512;
/// Offered tools whose names are looked for.
const MOST_TOOLS: usize = 256;

/// Recognises them.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    prompt: Arc<Prompt>,
    head: String,
    /// The head has been judged.
    closed: bool,
    leaked: bool,
}

impl Tool {
    pub(super) const fn new(prompt: Arc<Prompt>) -> Self {
        Self { prompt, head: String::new(), closed: false, leaked: false }
    }

    pub(super) fn push(&mut self, piece: &str) {
        if !self.closed && !self.prompt.tools().is_empty() {
            let fits = head(piece, HEAD_BYTES - self.head.len());
            self.head.push_str(fits);
            if fits.len() < piece.len() || self.head.len() == HEAD_BYTES {
                self.closed = true;
                self.finish();
            }
        }
    }

    /// Markup of a call has been seen.
    pub(super) const fn marker(&mut self) {
        self.leaked = true;
    }

    pub(super) fn finish(&mut self) {
        self.leaked |= self.is_call();
        self.head = String::new();
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.head.capacity()
    }

    pub(super) const fn leaked(&self) -> bool {
        self.leaked
    }

    /// `{"name": "TOOL", "arguments"|"parameters": …`, bare, in a list or in a code block at the start;
    /// or `TOOL({…})`, `functions.TOOL:0`.
    fn is_call(&self) -> bool {
        let mut text = self.head.trim_start();
        if let Some(block) = text.strip_prefix("```") {
            text = block.strip_prefix("json").unwrap_or(block).trim_start();
        }
        text = text.strip_prefix('[').unwrap_or(text).trim_start();
        let packed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let json = packed.starts_with('{')
            && ["\"arguments\":", "\"parameters\":", "\"input\":", "\"args\":"]
                .iter()
                .any(|key| packed.contains(key));
        // A prompt that shows the format asks for it as text; then nothing has leaked.
        let taught = || {
            let prompt = self.prompt.text();
            prompt.contains("\"arguments\"") || prompt.contains("\"parameters\":")
        };
        let called = self.prompt.tools().iter().take(MOST_TOOLS).any(|name| {
            json && ["name", "function", "tool", "tool_name", "action"]
                .iter()
                .any(|key| packed.contains(&format!("\"{key}\":\"{name}\"")))
                || packed.starts_with(&format!("functions.{name}:"))
                || packed.starts_with(&format!("{name}({{"))
        });
        called && !taught()
    }
}
