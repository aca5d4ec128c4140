//! The step left out: an answer that changes nothing, where no model can give one.
//!
//! A ranking keeps the documents in the order given, with scores that descend and say nothing. Embeddings come
//! from the sentence model inside, where its vectors are as long as those asked for or seen before: a vector
//! of another length would be worse than none. Other protocols have no answer that changes nothing.

use base64::Engine as _;
use bytes::Bytes;
use serde_json::{Value, json};

use super::inference::Inquiry;
use super::ledger::Ledger;
use crate::embed::EmbedHandle;
use crate::verdict::Wire;

/// Documents beyond this are no request that anyone means.
const MOST: usize = 10_000;
/// Texts that are embedded here; more would keep a core busy for seconds.
const MOST_TEXTS: usize = 64;
/// The first score; the others descend from it to nothing.
const NEUTRAL: f64 = 0.5;

/// The answer that leaves the step out, if this protocol has one.
pub(super) async fn answer(ledger: &Ledger, inquiry: &Inquiry) -> Option<Bytes> {
    let request: Value = serde_json::from_slice(&inquiry.body).ok()?;
    let made = match ledger.wire {
        Wire::Rerank => ranking(&request)?,
        Wire::Embeddings | Wire::OllamaEmbed => embeddings(ledger, &request).await?,
        _ => return None,
    };
    Some(made.to_string().into())
}

/// Documents as they came.
fn ranking(request: &Value) -> Option<Value> {
    let documents = request.get("documents")?.as_array()?;
    if documents.len() > MOST {
        return None;
    }
    let most = ["top_n", "top_k"].iter().find_map(|key| request.get(*key)?.as_u64());
    let most = usize::try_from(most.unwrap_or(u64::MAX)).unwrap_or(usize::MAX).min(documents.len());
    let returned = request.get("return_documents").and_then(Value::as_bool).unwrap_or(false);
    let result = |(index, document): (usize, &Value)| {
        let score = NEUTRAL * (documents.len() - index) as f64 / documents.len() as f64;
        let mut result = json!({ "index": index, "relevance_score": score });
        if returned {
            let text = document.get("text").unwrap_or(document);
            result["document"] = json!({ "text": text });
        }
        result
    };
    let results: Vec<Value> = documents.iter().enumerate().take(most).map(result).collect();
    Some(json!({ "model": request.get("model"), "results": results, "usage": { "total_tokens": 0 } }))
}

async fn embeddings(ledger: &Ledger, request: &Value) -> Option<Value> {
    let ask = ledger.ask.as_deref()?;
    let embedder = ledger.proxy.embedder.clone()?;
    let texts: Vec<String> = match request.get("input")? {
        Value::String(text) => vec![text.clone()],
        Value::Array(list) => list.iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<_>>()?,
        _ => return None,
    };
    if texts.is_empty() || texts.len() > MOST_TEXTS {
        return None;
    }
    let seen = ledger.route().first_target().and_then(|member| {
        let known = ledger.target(member.index).dimensions.lock().ok()?;
        known.known(ask)
    });
    let wanted = ask.dimensions.or(seen);
    let made = tokio::task::spawn_blocking(move || embed(&embedder, &texts, wanted)).await.ok()??;
    let (tokens, vectors) = made;
    let model = request.get("model");
    if ledger.wire == Wire::OllamaEmbed {
        return Some(json!({ "model": model, "embeddings": vectors, "prompt_eval_count": tokens }));
    }
    let encoded = ask.wants_base64 == Some(true);
    let vector = |vector: &Vec<f32>| {
        if !encoded {
            return json!(vector);
        }
        let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
        json!(base64::engine::general_purpose::STANDARD.encode(bytes))
    };
    let data: Vec<Value> = vectors
        .iter()
        .enumerate()
        .map(|(index, v)| json!({ "object": "embedding", "index": index, "embedding": vector(v) }))
        .collect();
    let usage = json!({ "prompt_tokens": tokens, "total_tokens": tokens });
    Some(json!({ "object": "list", "data": data, "model": model, "usage": usage }))
}

/// Tokens read and vectors; `None` where their length is not the one wanted.
fn embed(embedder: &EmbedHandle, texts: &[String], wanted: Option<u32>) -> Option<(usize, Vec<Vec<f32>>)> {
    let mut tokens = 0;
    let mut vectors = Vec::with_capacity(texts.len());
    for text in texts {
        let made = embedder.embed_now(text).ok()?;
        if wanted.is_some_and(|wanted| wanted as usize != made.vector.len()) {
            return None;
        }
        tokens += made.tokens;
        vectors.push(made.vector);
    }
    Some((tokens, vectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ranking_left_out_keeps_the_order_and_top_n() {
        let request = json!({ "model": "rr", "query": "q", "documents": ["a", {"text": "b"}, "c"], "top_n": 2, "return_documents": true });
        let made = ranking(&request).expect("a ranking");
        let results = made["results"].as_array().expect("a list");
        let indexes: Vec<_> = results.iter().map(|r| r["index"].as_u64()).collect();
        assert_eq!(indexes, [Some(0), Some(1)]);
        assert_eq!(results[1]["document"]["text"], "b");
        let scores: Vec<f64> = results.iter().filter_map(|r| r["relevance_score"].as_f64()).collect();
        assert!(scores[0] <= 0.5 && scores[0] > scores[1] && scores[1] > 0.0, "{scores:?}");
        assert_eq!(made["model"], "rr");
        assert_eq!(ranking(&json!({ "documents": [] })).expect("none")["results"], json!([]));
        assert!(ranking(&json!({ "query": "q" })).is_none());
    }
}
