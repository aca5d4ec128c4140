//! Embeddings and rankings of the simulated upstream.
//!
//! Random indexing (M. Sahlgren, "An introduction to random indexing", 2005): each word has a sparse
//! vector of ±1 drawn from its own hash, a text is the sum of its words' vectors at length 1. So texts
//! that share words point the same way, and damage, which redraws a share of the words, turns them.

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use serde_json::{Value, json};

use super::fault::Condition;
use super::logits::{hash_text, unit};
use super::retrieve::stems;
use super::serve::{json_response, trained};

/// Dimension where the request names none.
const DIM: usize = 384;
/// Most inputs of one request.
const MAX_INPUTS: usize = 2048;
/// Places of a word's vector that are not 0.
const PLACES: u64 = 12;

/// Which question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Embeddings,
    OllamaEmbed,
    /// The older path: one prompt, one vector.
    OllamaEmbeddings,
    Rerank,
}

/// Answers, or says what is wrong with the request.
pub(super) fn answer(
    kind: Kind,
    model: &str,
    condition: Condition,
    seed: u64,
    body: &Bytes,
) -> Result<Response, String> {
    let body: Value =
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let embedder = Embedder { condition, seed, dim: dimensions(&body)? };
    let value = match kind {
        Kind::Embeddings => embeddings(&embedder, model, &body)?,
        Kind::OllamaEmbed => {
            let texts = texts(&body, "input")?;
            let all: Vec<Vec<f32>> = texts.iter().map(|t| embedder.embed(t)).collect();
            json!({ "model": model, "embeddings": all, "total_duration": 1, "load_duration": 1, "prompt_eval_count": tokens(&texts) })
        }
        Kind::OllamaEmbeddings => {
            let prompt = body["prompt"].as_str().ok_or("prompt must be a string")?;
            json!({ "embedding": embedder.embed(prompt) })
        }
        Kind::Rerank => rerank(&embedder, model, &body)?,
    };
    Ok(json_response(StatusCode::OK, &value))
}

fn dimensions(body: &Value) -> Result<usize, String> {
    match body.get("dimensions").filter(|d| !d.is_null()) {
        None => Ok(DIM),
        Some(given) => given
            .as_u64()
            .and_then(|d| usize::try_from(d).ok())
            .filter(|d| (1..=DIM).contains(d))
            .ok_or_else(|| format!("dimensions must be a whole number from 1 to {DIM}, not {given}")),
    }
}

fn texts(body: &Value, name: &str) -> Result<Vec<String>, String> {
    let text = |v: &Value| v.as_str().or_else(|| v["text"].as_str()).map(str::to_owned);
    let read = match body.get(name) {
        Some(Value::Array(list)) if (1..=MAX_INPUTS).contains(&list.len()) => list.iter().map(text).collect(),
        Some(one) => text(one).map(|one| vec![one]),
        None => None,
    };
    read.ok_or_else(|| format!("{name} must be a text or a list of 1 to {MAX_INPUTS} texts"))
}

fn tokens(texts: &[String]) -> usize {
    texts.iter().map(|t| trained().vocab.encode(t).len()).sum()
}

fn embeddings(embedder: &Embedder, model: &str, body: &Value) -> Result<Value, String> {
    let texts = texts(body, "input")?;
    let encoded = body["encoding_format"] == "base64";
    let data: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            let vector = embedder.embed(text);
            let embedding = if encoded {
                let bytes: Vec<u8> = vector.iter().flat_map(|x| x.to_le_bytes()).collect();
                base64::engine::general_purpose::STANDARD.encode(bytes).into()
            } else {
                json!(vector)
            };
            json!({ "object": "embedding", "index": index, "embedding": embedding })
        })
        .collect();
    let n = tokens(&texts);
    Ok(
        json!({ "object": "list", "data": data, "model": model, "usage": { "prompt_tokens": n, "total_tokens": n } }),
    )
}

fn rerank(embedder: &Embedder, model: &str, body: &Value) -> Result<Value, String> {
    let query = body["query"].as_str().ok_or("query must be a text")?;
    let documents = texts(body, "documents")?;
    let asked = embedder.embed(query);
    let cosine = |text: &str| embedder.embed(text).iter().zip(&asked).map(|(a, b)| a * b).sum::<f32>();
    // As a cross-encoder has it: a probability, sure at both ends.
    let score = |cosine: f32| 1.0 / (1.0 + (-12.0 * (cosine - 0.25)).exp());
    let mut ranked: Vec<(usize, f32)> = documents.iter().map(|d| score(cosine(d))).enumerate().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
    if embedder.condition.empty {
        ranked.clear();
    }
    let top = body["top_n"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let results: Vec<Value> = ranked
        .iter()
        .take(top)
        .map(|(index, score)| json!({ "index": index, "relevance_score": score, "document": { "text": documents[*index] } }))
        .collect();
    let n = tokens(&documents) + tokens(&[query.to_owned()]);
    Ok(json!({ "id": "rerank-sim", "model": model, "results": results, "usage": { "total_tokens": n } }))
}

struct Embedder {
    condition: Condition,
    seed: u64,
    dim: usize,
}

impl Embedder {
    fn embed(&self, text: &str) -> Vec<f32> {
        if self.condition.empty {
            return Vec::new();
        }
        let mut sum = vec![0.0_f32; DIM];
        for word in stems(text) {
            let own = hash_text(&word);
            let moved = self.condition.swapped
                || self.condition.gibberish
                || unit(mix(own ^ self.seed)) < self.condition.damage;
            let from = if moved { mix(own ^ mix(self.seed)) } else { own };
            for place in 0..PLACES {
                let drawn = mix(from.wrapping_add(place.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
                let at = usize::try_from(drawn >> 1).unwrap_or(0) % DIM;
                sum[at] += if drawn & 1 == 0 { 1.0 } else { -1.0 };
            }
        }
        if self.condition.looping {
            sum.fill(0.0);
        }
        sum.truncate(self.dim);
        let length = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
        if length > 0.0 {
            sum.iter_mut().for_each(|x| *x /= length);
        }
        sum
    }
}

/// Spreads the bits of a hash (the finaliser of SplitMix64, G. Steele et al. 2014).
const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &[f32], b: &[f32]) -> f32 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    #[test]
    fn texts_that_share_words_point_the_same_way_until_words_are_damaged() {
        let sound = Embedder { condition: Condition::default(), seed: 7, dim: DIM };
        let bees = sound.embed("How do bees make honey?");
        assert!((cosine(&bees, &bees) - 1.0).abs() < 1e-5);
        let near = cosine(&bees, &sound.embed("Bees make honey from nectar."));
        let far = cosine(&bees, &sound.embed("The parliament passed a law on taxes."));
        assert!(near > 0.5 && far.abs() < 0.3, "{near} {far}");
        let damaged = Embedder { condition: Condition { damage: 1.0, ..Condition::default() }, ..sound };
        assert!(cosine(&bees, &damaged.embed("How do bees make honey?")).abs() < 0.5);
    }
}
