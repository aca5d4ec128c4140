use super::*;

#[test]
fn paths_tell_their_wire() {
    let wire = |path| of_path(path).map(Wire::as_str);
    assert_eq!(wire("/v1/chat/completions"), Some("chat"));
    assert_eq!(wire("/openai/deployments/m/chat/completions?api-version=1"), Some("chat"));
    assert_eq!(wire("/v1/completions"), Some("completions"));
    assert_eq!(wire("/completion"), Some("completions"));
    assert_eq!(wire("/v1/messages?beta=true"), Some("messages"));
    assert_eq!(wire("/v1/messages/count_tokens"), None);
    assert_eq!(wire("/v1/threads/t_1/messages"), None);
    assert_eq!(wire("/openai/responses?api-version=preview"), Some("responses"));
    assert_eq!(wire("/v1/responses/resp_1/cancel"), None);
    assert_eq!(wire("/v2/rerank"), Some("rerank"));
    assert_eq!(wire("/v1/embeddings"), Some("embeddings"));
    assert_eq!(wire("/api/embeddings"), Some("ollama_embed"));
    assert_eq!(wire("/v2/models/c/infer"), Some("kserve"));
    assert_eq!(wire("/v2/models/c/versions/1/infer"), Some("kserve"));
    assert_eq!(wire("/v1/models/c:predict"), Some("tfserving"));
    assert_eq!(wire("/v1/models"), None);
}

/// Events of one document, one line each.
pub(super) fn events(wire: Wire, text: &str, whole: bool) -> Vec<String> {
    let form = if whole { Form::Whole } else { Form::Event(b"") };
    all_events(wire, &[(form, text)])
}

/// Events of the documents of one answer.
pub(super) fn all_events(wire: Wire, documents: &[(Form<'_>, &str)]) -> Vec<String> {
    let mut memory = Memory::default();
    documents.iter().flat_map(|(form, text)| lines(wire, *form, text, &mut memory)).collect()
}

fn lines(wire: Wire, form: Form<'_>, text: &str, memory: &mut Memory) -> Vec<String> {
    let mut doc = Doc::default();
    let mut out = Vec::new();
    let (Some(root), _) = doc.parse(text.as_bytes()) else { return out };
    read(wire, root, form, memory, &mut |event| {
        out.push(match event {
            Event::Piece { choice, channel, text } => format!("{choice} {channel:?} {text}"),
            Event::ToolCall { choice, piece } => format!(
                "{choice} tool {:?} {} {} {}",
                piece.index,
                piece.id.unwrap_or("-"),
                piece.name.unwrap_or("-"),
                piece.arguments
            ),
            Event::OtherContent { choice } => format!("{choice} other"),
            Event::Position { choice, position } => {
                let token = |t: logprobs::Token<'_>| String::from_utf8_lossy(&t.to_bytes()).into_owned();
                let mut line = format!("{choice} {:?}={}", token(position.token), position.logprob);
                for a in position.alternatives.iter() {
                    line += &format!(" {:?}={:.4}", token(a.token), a.logprob);
                }
                line
            }
            Event::Finish { choice, reason } => format!("{choice} finish {reason}"),
            Event::Filtered => "filtered".into(),
            Event::Usage(c) => {
                format!("usage {:?} {:?} {:?} {:?}", c.input, c.output, c.reasoning, c.cached_input)
            }
            Event::Model(name) => format!("model {name}"),
            Event::Error(fault) => format!("error {:?} {}", fault.kind, fault.message),
            Event::Vector(v) => format!("vector {:?} {}", v.values, v.finite),
            Event::Score { index, value } => format!("score {index:?} {value}"),
            Event::Items(n) => format!("items {n}"),
            Event::Tensor(t) => format!(
                "tensor {} {:?} {:?} {:?} {:?} {}",
                t.name, t.elements, t.shape, t.values, t.texts, t.finite
            ),
            Event::End => "end".into(),
            Event::Odd(flag) => format!("odd {flag}"),
        });
    });
    out
}
