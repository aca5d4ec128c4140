//! The request, as far as judgement of its answer needs it.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, Hash};
use std::sync::Arc;

use super::schema::{Format, Tools};
use crate::text::Prompt;
use crate::verdict::Wire;
use crate::wire::{Scratch, Value};

/// Prompt text kept for the embedder, bytes; the embedder reads the first few hundred tokens.
const MAX_PROMPT: usize = 8 << 10;
/// Conversation text kept so that an answer may use the prompt's own scripts and tokens, bytes.
const MAX_CONTEXT: usize = 24 << 10;
/// Most choices that any API offers.
const MAX_CHOICES: i64 = 128;
/// Estimated bytes of a token; good enough for budgets, and marked as an estimate everywhere.
const BYTES_PER_TOKEN: u64 = 4;

/// What the caller asked for, read once from the request's body. A body that cannot be read leaves
/// everything unknown: the upstream may know better.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Protocol.
    pub wire: Wire,
    /// `model` as the caller wrote it.
    pub model: Option<String>,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// Choices asked for, over all prompts of the request.
    pub choices: u32,
    /// Whether logprobs were asked for.
    pub logprobs: bool,
    /// Alternatives a token asked for.
    pub top_logprobs: Option<u32>,
    /// Whether usage was asked for (`true`) or declined (`false`) in a stream.
    pub include_usage: Option<bool>,
    /// Limit of the answer, tokens.
    pub max_tokens: Option<u64>,
    /// Prompt tokens, estimated as bytes ÷ 4.
    pub input_tokens_estimate: u64,
    /// The last user message or prompt, capped, for the embedder.
    pub prompt_text: Arc<str>,
    /// The conversation's latest text, capped, and the tools: what the answer may echo without being odd.
    pub prompt: Arc<Prompt>,
    /// Characters of each prompt that its answers repeat at their start (`echo`); empty if they do not.
    pub echo_chars: Vec<usize>,
    /// Form of text asked for.
    pub format: Option<Arc<Format>>,
    /// Tools offered.
    pub tools: Arc<Tools>,
    /// Whether embeddings were asked for as base64; `None` if the request does not say.
    pub wants_base64: Option<bool>,
    /// Whether embeddings were asked for in numbers that are no 32-bit floats, which base64 does not tell.
    pub other_numbers: bool,
    /// Dimension of embeddings asked for.
    pub dimensions: Option<u32>,
    /// Inputs to embed, or documents to rank; `None` if the request does not tell.
    pub items: Option<u32>,
    /// Most documents of a ranking that were asked for.
    pub top_n: Option<u32>,
    /// Whether the model was given more to read than stands in the request: earlier turns kept by the
    /// server, images, sound, files, text as token numbers.
    pub hidden_context: bool,
    /// Vocabulary size of the model, if the caller of this type knows it; never in the body.
    pub vocab: Option<u32>,
    /// Hash over the whole body, white space and order of members aside; equal requests are equal.
    pub request_hash: u64,
    /// Whether the body was readable JSON.
    pub readable: bool,
}

impl Ask {
    /// Reads the request's body.
    #[must_use]
    pub fn parse(wire: Wire, body: &[u8]) -> Self {
        let mut doc = Scratch::default();
        let (root, odd) = doc.parse(body);
        let root = root.filter(|r| r.is_object() && !odd.broken && !odd.cut);
        let Some(root) = root else { return Self::unreadable(wire, body) };
        let count = |names: &[&str]| names.iter().find_map(|n| root.field(n)).and_then(|v| v.count());
        let positive = |n: i64| u64::try_from(n).ok();
        let flag = |name: &str| root.field(name).and_then(|v| v.boolean()) == Some(true);

        let texts = texts(root);
        let prompt_text = cap(&texts.prompt, MAX_PROMPT).into();
        let top = count(&["top_logprobs", "n_probs"]).or_else(|| count(&["logprobs"]));
        let tools = Tools::read(root);
        let logprobs = match wire {
            // Here alternatives are only a matter of how many, once logprobs are included.
            Wire::Responses => includes(root, "message.output_text.logprobs"),
            _ => flag("logprobs") || top.is_some_and(|t| t >= 0),
        };
        let prompts = root.field("prompt").filter(|_| wire == Wire::Completions).map_or(1, prompts);
        Self {
            wire,
            model: root.field("model").and_then(|m| m.string()).map(Cow::into_owned),
            stream: match root.field("stream").and_then(|s| s.boolean()) {
                Some(stream) => stream,
                // Ollama streams unless told not to.
                None => matches!(wire, Wire::OllamaChat | Wire::OllamaGenerate),
            },
            choices: count(&["n"])
                .unwrap_or(1)
                .clamp(1, MAX_CHOICES)
                .saturating_mul(prompts)
                .clamp(1, MAX_CHOICES) as u32,
            logprobs,
            top_logprobs: top.and_then(|t| u32::try_from(t).ok()).filter(|t| *t > 0),
            include_usage: root.path(&["stream_options", "include_usage"]).and_then(|v| v.boolean()),
            max_tokens: count(&["max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict"])
                .or_else(|| root.path(&["options", "num_predict"])?.count())
                .and_then(positive),
            input_tokens_estimate: (texts.bytes / BYTES_PER_TOKEN).max(1),
            echo_chars: if flag("echo") { echoes(root) } else { Vec::new() },
            prompt_text,
            prompt: Arc::new(Prompt::new(texts.context, tools.names())),
            format: Format::read(root).map(Arc::new),
            tools: Arc::new(tools),
            wants_base64: root.field("encoding_format").map(|f| f.is_key("base64")),
            other_numbers: other_numbers(root),
            dimensions: count(&["dimensions", "output_dimension"]).and_then(|d| u32::try_from(d).ok()),
            items: items(wire, root),
            top_n: count(&["top_n", "top_k"]).and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0),
            hidden_context: texts.hidden || keeps_turns(root),
            vocab: None,
            request_hash: hash(root),
            readable: true,
        }
    }

    /// Characters of the prompt that the choice of that index repeats first.
    #[must_use]
    pub fn echo_of(&self, choice: u32) -> usize {
        let prompts = self.echo_chars.len().max(1);
        let per_prompt = (self.choices as usize / prompts).max(1);
        self.echo_chars.get(choice as usize / per_prompt).copied().unwrap_or(0)
    }

    fn unreadable(wire: Wire, body: &[u8]) -> Self {
        Self {
            wire,
            model: None,
            stream: false,
            choices: 1,
            logprobs: false,
            top_logprobs: None,
            include_usage: None,
            max_tokens: None,
            input_tokens_estimate: (body.len() as u64 / BYTES_PER_TOKEN).max(1),
            prompt_text: "".into(),
            prompt: Arc::default(),
            echo_chars: Vec::new(),
            format: None,
            tools: Arc::default(),
            wants_base64: None,
            other_numbers: false,
            dimensions: None,
            items: None,
            top_n: None,
            hidden_context: true,
            vocab: None,
            request_hash: hash_of(&body),
            readable: false,
        }
    }
}

/// Prompts of one completions request: a list of texts or of token lists; one list of tokens is one.
fn prompts(prompt: Value<'_>) -> i64 {
    i64::try_from(prompt.items().count()).unwrap_or(MAX_CHOICES).max(1)
}

/// Characters of each prompt; 0 for one given as tokens.
fn echoes(root: Value<'_>) -> Vec<usize> {
    let length = |v: Value<'_>| v.string().map_or(0, |s| s.chars().count());
    let Some(prompt) = root.field("prompt") else { return Vec::new() };
    if prompt.is_array() { prompt.items().map(length).collect() } else { vec![length(prompt)] }
}

/// Whether the `include` list names it.
fn includes(root: Value<'_>, name: &str) -> bool {
    root.field("include").is_some_and(|list| list.items().any(|i| i.is_key(name)))
}

/// Earlier turns that the server keeps, or a prompt that it has in store.
fn keeps_turns(root: Value<'_>) -> bool {
    ["previous_response_id", "conversation"].iter().any(|n| root.field(n).is_some())
        || root.field("prompt").is_some_and(|p| p.is_object())
        || root.field("context").is_some_and(|c| c.numbers().next().is_some())
}

fn other_numbers(root: Value<'_>) -> bool {
    let kinds = ["output_dtype", "embed_dtype", "embedding_types", "endianness"];
    let plain = ["float", "float32", "little", "native"];
    kinds.iter().filter_map(|n| root.field(n)).any(|kind| !plain.iter().any(|p| kind.is_key(p)))
}

/// How many things a call gives, on wires that answer each of them.
fn items(wire: Wire, root: Value<'_>) -> Option<u32> {
    let names: &[&str] = match wire {
        Wire::Embeddings | Wire::OllamaEmbed => &["input"],
        Wire::Rerank => &["documents", "texts"],
        _ => return None,
    };
    let list = names.iter().find_map(|n| root.field(n))?;
    if list.is_string() {
        return Some(1);
    }
    // One list of numbers is one input given as tokens.
    let n = list.items().count();
    if n == 0 && list.numbers().next().is_some() { Some(1) } else { u32::try_from(n).ok() }
}

#[derive(Default)]
struct Texts {
    prompt: String,
    context: String,
    bytes: u64,
    hidden: bool,
}

fn texts(root: Value<'_>) -> Texts {
    let mut out = Texts::default();
    let mut all: Vec<Cow<'_, str>> = Vec::new();
    for name in ["system", "instructions", "suffix"] {
        collect(root.field(name), NESTING, &mut all, &mut out.hidden);
    }
    let before = all.len();
    if let Some(messages) = root.field("messages").or_else(|| root.field("input").filter(|i| has_roles(*i))) {
        for message in messages.items() {
            let start = all.len();
            for name in ["content", "output"] {
                collect(message.field(name), NESTING, &mut all, &mut out.hidden);
            }
            out.hidden |= has_images(message);
            if message.field("role").is_some_and(|r| r.is_key("user")) {
                out.prompt = all[start..].join("\n");
            }
        }
    } else {
        let prompt = ["prompt", "input", "inputs", "query"].iter().find_map(|n| root.field(n));
        out.hidden |= has_images(root) || prompt.is_some_and(is_tokens);
        collect(prompt, NESTING, &mut all, &mut out.hidden);
        out.prompt = all[before..].join("\n");
    }
    out.bytes = all.iter().map(|t| t.len() as u64).sum();
    // The latest text matters most.
    let mut left = MAX_CONTEXT;
    let mut kept = Vec::new();
    for text in all.iter().rev() {
        let text = cap(text, left);
        left -= text.len();
        kept.push(text);
        if left == 0 {
            break;
        }
    }
    out.context = kept.join("\n");
    out
}

/// Levels of parts within parts that are read: a message, its tool results, their parts.
const NESTING: usize = 3;

fn has_roles(input: Value<'_>) -> bool {
    input.items().any(|item| {
        item.field("role").is_some() || item.field("type").is_some_and(|t| t.is_key("function_call_output"))
    })
}

fn has_images(holder: Value<'_>) -> bool {
    holder.field("images").is_some_and(|i| i.items().next().is_some())
}

/// Text given as token numbers, or as lists of them.
fn is_tokens(prompt: Value<'_>) -> bool {
    let numbers = |v: Value<'_>| v.is_array() && v.numbers().next().flatten().is_some();
    numbers(prompt) || prompt.items().next().is_some_and(numbers)
}

/// Text of a string, of parts, or of a list of either; `hidden` is set by a part that holds something else.
fn collect<'a>(value: Option<Value<'a>>, depth: usize, out: &mut Vec<Cow<'a, str>>, hidden: &mut bool) {
    let Some(value) = value else { return };
    if let Some(text) = value.string() {
        return out.push(text);
    }
    if depth == 0 {
        return;
    }
    if value.is_object() {
        let kind = value.field("type").and_then(|t| t.string()).unwrap_or_default();
        *hidden |= ["image", "audio", "file", "document", "video"].iter().any(|k| kind.contains(k));
        let inner = ["text", "content"].iter().find_map(|n| value.field(n));
        return collect(inner, depth - 1, out, hidden);
    }
    value.items().for_each(|part| collect(Some(part), depth - 1, out, hidden));
}

fn cap(text: &str, max: usize) -> &str {
    let end = (0..=max.min(text.len())).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0);
    &text[..end]
}

/// Hash of the document's meaning: members in any order, strings decoded, no white space; and of what
/// follows it as it is (the raw tensors of KServe). Not for secrets: it tells equal requests from others, no more.
fn hash(root: Value<'_>) -> u64 {
    let behind = root.after();
    let behind = if behind.trim_ascii().is_empty() { &[] } else { behind };
    hash_of(&(meaning(root), behind))
}

/// Recursion is bounded by the reader's own depth limit.
fn meaning(value: Value<'_>) -> u64 {
    if value.is_object() {
        let member = |(name, value): (Value<'_>, Value<'_>)| {
            hash_of(&(name.string().unwrap_or_default().as_bytes(), meaning(value)))
        };
        hash_of(&(b'{', value.members().map(member).fold(0, u64::wrapping_add)))
    } else if let Some(text) = value.string() {
        hash_of(&(b'"', text.as_bytes()))
    } else if value.items().next().is_some() {
        value.items().fold(hash_of(b"["), |so_far, item| hash_of(&(so_far, meaning(item))))
    } else {
        let span = value.span();
        if span.iter().any(u8::is_ascii_whitespace) {
            let bare: Vec<u8> = span.iter().copied().filter(|b| !b.is_ascii_whitespace()).collect();
            hash_of(&(b'#', &*bare))
        } else {
            hash_of(&(b'#', span))
        }
    }
}

/// The same in every process.
const SEED: foldhash::quality::FixedState = foldhash::quality::FixedState::with_seed(0x746f_7563);

fn hash_of(value: &impl Hash) -> u64 {
    SEED.hash_one(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ask(text: &str) -> Ask {
        Ask::parse(Wire::Chat, text.as_bytes())
    }

    #[test]
    fn the_last_user_message_is_the_prompt() {
        let ask = ask(
            r#"{"model":"m","stream":true,"n":2,"logprobs":true,"top_logprobs":5,"max_completion_tokens":9,
            "stream_options":{"include_usage":true},"messages":[{"role":"system","content":"be brief"},
            {"role":"user","content":"one"},{"role":"assistant","content":"1"},
            {"role":"user","content":[{"type":"text","text":"two"},{"type":"image_url"}]},{"role":"tool","content":"t"}]}"#,
        );
        assert_eq!((&*ask.prompt_text, ask.model.as_deref()), ("two", Some("m")));
        assert_eq!(ask.prompt.text(), "t\ntwo\n1\none\nbe brief");
        assert_eq!((ask.choices, ask.max_tokens, ask.top_logprobs), (2, Some(9), Some(5)));
        assert!(ask.stream && ask.logprobs && ask.readable && ask.include_usage == Some(true));
    }

    #[test]
    fn completions_count_prompts_and_echo() {
        let ask = Ask::parse(Wire::Completions, br#"{"prompt":["a b","c"],"n":3,"logprobs":0,"echo":true}"#);
        assert_eq!((ask.choices, ask.logprobs, ask.top_logprobs), (6, true, None));
        assert_eq!((ask.echo_of(0), ask.echo_of(2), ask.echo_of(3), ask.echo_of(9)), (3, 3, 1, 0));
        let tokens = Ask::parse(Wire::Completions, br#"{"prompt":[1,2,3],"logprobs":2}"#);
        assert_eq!((tokens.choices, tokens.top_logprobs), (1, Some(2)));
    }

    #[test]
    fn equal_requests_have_equal_hashes() {
        let a = ask(r#"{"model":"m","messages":[{"role":"user","content":"h\u0069"}],"n":1}"#).request_hash;
        let b =
            ask("{ \"n\": 1, \"messages\": [ {\"content\":\"hi\", \"role\":\"user\"} ], \"model\":\"m\" }")
                .request_hash;
        let c = ask(r#"{"model":"m","messages":[{"role":"user","content":"ho"}],"n":1}"#).request_hash;
        assert_eq!(a, b);
        assert_ne!(a, c);
        assert_ne!(ask(r#"{"a":["b"]}"#).request_hash, ask(r#"{"a":"b"}"#).request_hash);
        assert_eq!(ask("{\"a\":[1, 2]} \n").request_hash, ask(r#"{"a":[1,2]}"#).request_hash);
        let raw = |tail: &str| Ask::parse(Wire::KserveInfer, format!("{{\"inputs\":[]}}{tail}").as_bytes());
        assert!(raw("\u{1}").readable);
        assert_ne!(raw("\u{1}").request_hash, raw("\u{2}").request_hash, "raw tensors count");
    }

    #[test]
    fn what_cannot_be_read_is_left_unknown() {
        for text in ["", "x", "[1]", "{\"model\":\"m\"", "\u{0}"] {
            assert!(!ask(text).readable, "{text}");
        }
        let odd = ask(r#"{"model":7,"messages":"x","n":"many","max_tokens":-4,"stream":"yes"}"#);
        assert!(odd.readable && !odd.stream && odd.choices == 1 && odd.max_tokens.is_none());
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Ask::parse(Wire::Chat, &body);
        }
    }
}
