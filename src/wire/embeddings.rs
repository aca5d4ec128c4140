//! `/v1/embeddings`, and Ollama's `/api/embed` and `/api/embeddings`.
//!
//! Vectors come as numbers or as base64 of little-endian 32-bit floats, in `data[].embedding`,
//! `embeddings[]` or `embedding`. All components are looked at; only so many vectors are.

use base64::Engine as _;

use super::{Counts, Emit, Event, Fault, Value, Vector};
use crate::verdict::Flag;

/// Vectors of one answer that are looked at; a batch of thousands differs in nothing from its beginning.
const MAX_VECTORS: usize = 256;
/// Components of one vector that are read.
const MAX_DIM: usize = 32 << 10;

/// Turns one document into events.
pub fn read(root: Value<'_>, emit: &mut Emit<'_>) {
    if let Some(name) = root.field("model").and_then(|m| m.string()).filter(|m| !m.is_empty()) {
        emit(Event::Model(&name));
    }
    let list =
        ["data", "embeddings"].iter().find_map(|n| root.field(n)).or_else(|| root.is_array().then_some(root));
    let single = root.field("embedding");
    let answered = list.is_some() || single.is_some();
    if let Some(fault) = Fault::find(root, answered) {
        emit(Event::Error(&fault));
    }
    let mut values = Vec::new();
    if let Some(single) = single {
        vector(single, &mut values, emit);
    }
    if let Some(list) = list {
        let count = list.items().count();
        let mut seen = vec![false; count.min(MAX_VECTORS)];
        for entry in list.items().take(MAX_VECTORS) {
            if let Some(index) = entry.field("index") {
                indexed(index, count, &mut seen, emit);
            }
            let inner =
                entry.get("embedding").or_else(|| entry.path(&["embeddings", "float"])).unwrap_or(entry);
            // Several vectors of one input: a vector for each token, or a list around the only one.
            let nested = inner.items().next().filter(|first| first.is_array());
            vector(nested.unwrap_or(inner), &mut values, emit);
        }
        emit(Event::Items(count));
    }
    if let Some(counts) = root.field("usage").and_then(Counts::read).or_else(|| Counts::read(root)) {
        emit(Event::Usage(counts));
    }
}

/// An index must be one of the list's, and come once.
fn indexed(index: Value<'_>, count: usize, seen: &mut [bool], emit: &mut Emit<'_>) {
    let given = index.count().and_then(|i| usize::try_from(i).ok()).filter(|i| *i < count);
    let again = given.and_then(|i| seen.get_mut(i)).is_some_and(|seen| std::mem::replace(seen, true));
    if given.is_none() || again {
        emit(Event::Odd(Flag::IndexAnomaly));
    }
}

fn vector(value: Value<'_>, values: &mut Vec<f32>, emit: &mut Emit<'_>) {
    values.clear();
    let mut finite = true;
    let encoded = value.string();
    let mut readable = true;
    if let Some(text) = &encoded {
        match base64::engine::general_purpose::STANDARD.decode(text.trim()) {
            Ok(bytes) if bytes.len() % 4 == 0 => {
                let floats = bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                values.extend(floats.take(MAX_DIM));
            }
            _ => readable = false,
        }
        finite = values.iter().all(|v| v.is_finite());
    } else {
        for number in value.numbers().take(MAX_DIM) {
            let number = number.unwrap_or(f64::NAN) as f32;
            finite &= number.is_finite();
            values.push(number);
        }
    }
    emit(Event::Vector(Vector { values, finite, encoded: encoded.is_some(), readable }));
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use crate::verdict::Wire;

    #[test]
    fn vectors_are_found_in_every_place_and_form() {
        for text in
            [r#"{"data":[{"index":0,"embedding":[1,2]}]}"#, r#"{"embeddings":[[1.0,2.0]]}"#, r#"[[1,2]]"#]
        {
            assert_eq!(events(Wire::Embeddings, text, true), ["vector [1.0, 2.0] true", "items 1"], "{text}");
        }
        assert_eq!(events(Wire::OllamaEmbed, r#"{"embedding":[]}"#, true), ["vector [] true"]);
        assert_eq!(
            events(
                Wire::Embeddings,
                r#"{"data":[{"embedding":"AACAPwAAAEA="}],"usage":{"prompt_tokens":4}}"#,
                true
            ),
            ["vector [1.0, 2.0] true", "items 1", "usage Some(4) None None None"]
        );
        assert_eq!(
            events(Wire::Embeddings, r#"{"data":[{"embedding":[1,NaN,null]}]}"#, true)[0],
            "vector [1.0, NaN, NaN] false"
        );
        assert_eq!(events(Wire::Embeddings, r#"{"data":[{"embedding":null}]}"#, true)[0], "vector [] true");
    }

    #[test]
    fn a_vector_of_each_token_is_no_vector_of_nothing() {
        for text in [r#"[{"index":0,"embedding":[[1,2],[3,4]]}]"#, r#"{"data":[{"embedding":[[1,2]]}]}"#] {
            assert_eq!(events(Wire::Embeddings, text, true), ["vector [1.0, 2.0] true", "items 1"], "{text}");
        }
    }

    #[test]
    fn indexes_are_of_the_list_and_come_once() {
        let odd = |a: &str, b: &str| {
            let text =
                format!(r#"{{"data":[{{"index":{a},"embedding":[1]}},{{"index":{b},"embedding":[1]}}]}}"#);
            events(Wire::Embeddings, &text, true).iter().filter(|e| *e == "odd index_anomaly").count()
        };
        assert_eq!(odd("0", "1") + odd("1", "0") + odd("null", "null"), 0);
        assert_eq!((odd("0", "0"), odd("0", "2"), odd("-1", "1"), odd("\"x\"", "1")), (1, 1, 1, 1));
    }
}
