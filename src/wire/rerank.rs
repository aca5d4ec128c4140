//! `/v1/rerank`: a score for each document.
//!
//! The list stands in `results` (Jina, Cohere, vLLM, llama.cpp), `data` (Voyage) or is the body itself
//! (TEI); an entry has the document's `index` and a `relevance_score` or `score`, which may be a
//! probability or a raw logit. A plain list of `scores` is in the order of the documents.

use super::{Counts, Emit, Event, Fault, Value};

/// Scores of one answer that are looked at.
const MAX_SCORES: usize = 16 << 10;

/// Turns one document into events.
pub fn read(root: Value<'_>, emit: &mut Emit<'_>) {
    if let Some(name) = root.field("model").and_then(|m| m.string()).filter(|m| !m.is_empty()) {
        emit(Event::Model(&name));
    }
    let named = ["results", "data", "rankings", "scores"].iter().find_map(|n| root.field(n));
    let list = named.filter(|l| l.is_array()).or_else(|| root.is_array().then_some(root));
    if let Some(fault) = Fault::find(root, list.is_some()) {
        emit(Event::Error(&fault));
    }
    if let Some(list) = list {
        scores(list, emit);
    }
    let usage = ["usage", "meta"].iter().find_map(|n| root.field(n));
    let inner = usage.and_then(|u| u.field("tokens").or_else(|| u.field("billed_units"))).or(usage);
    if let Some(mut counts) = inner.and_then(Counts::read) {
        // All of it is input here.
        counts.input = counts.input.or(counts.total);
        emit(Event::Usage(counts));
    }
}

fn scores(list: Value<'_>, emit: &mut Emit<'_>) {
    let mut count = 0;
    for (place, number) in list.numbers().enumerate() {
        // Of a list of objects all are no numbers.
        count = place + 1;
        if let Some(value) = number.filter(|_| place < MAX_SCORES) {
            emit(Event::Score { index: i64::try_from(place).ok(), value });
        }
    }
    for (place, entry) in list.items().enumerate() {
        count = count.max(place + 1);
        if place >= MAX_SCORES || entry.number().is_some() {
            continue;
        }
        let score = ["relevance_score", "score", "relevance", "logit"].iter().find_map(|n| entry.get(n));
        let value = score.and_then(number).unwrap_or(f64::NAN);
        let index = ["index", "document_index"].iter().find_map(|n| entry.field(n)).and_then(|i| i.count());
        emit(Event::Score { index, value });
    }
    emit(Event::Items(count));
}

/// A number, also one written as text.
fn number(value: Value<'_>) -> Option<f64> {
    value.number().or_else(|| value.string()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use crate::verdict::Wire;

    fn of(text: &str) -> Vec<String> {
        events(Wire::Rerank, text, true)
    }

    #[test]
    fn the_list_is_found_under_all_its_names() {
        for text in [
            r#"{"results":[{"index":1,"document":{"text":"b"},"relevance_score":0.9},{"index":0,"relevance_score":-1.5}]}"#,
            r#"{"object":"list","data":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":-1.5}]}"#,
            r#"[{"index":1,"score":0.9},{"index":0,"score":"-1.5"}]"#,
        ] {
            assert_eq!(of(text), ["score Some(1) 0.9", "score Some(0) -1.5", "items 2"], "{text}");
        }
        assert_eq!(of(r#"{"scores":[0.5,1]}"#), ["score Some(0) 0.5", "score Some(1) 1", "items 2"]);
    }

    #[test]
    fn a_score_that_is_none_is_no_number() {
        let text = r#"{"results":[{"index":0,"relevance_score":null},{"index":1,"relevance_score":NaN},{"relevance_score":1}]}"#;
        assert_eq!(of(text), ["score Some(0) NaN", "score Some(1) NaN", "score None 1", "items 3"]);
        assert_eq!(of(r#"{"results":[]}"#), ["items 0"]);
    }

    #[test]
    fn usage_is_all_input() {
        let both = "usage Some(9) None None None";
        assert_eq!(of(r#"{"usage":{"total_tokens":9}}"#), [both]);
        assert_eq!(of(r#"{"meta":{"tokens":{"input_tokens":9}}}"#), [both]);
    }

    #[test]
    fn errors_and_nonsense() {
        assert_eq!(of(r#"{"detail":"Not Found"}"#), ["error Client Not Found"]);
        assert_eq!(of(r#"{"error":{"message":"boom","type":"server_error"}}"#), ["error Server boom"]);
        for text in ["{}", "null", "3", r#"{"results":{}}"#] {
            assert_eq!(of(text), Vec::<String>::new(), "{text}");
        }
    }
}
