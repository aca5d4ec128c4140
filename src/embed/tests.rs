use std::fs;
use std::path::Path;

use super::*;
use crate::baseline::sha256_hex;

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn builtin() -> Embedder {
    Embedder::load(&ModelSource::Builtin, 1).expect("loads")
}

fn models() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/models"))
}

#[test]
fn the_written_sum_is_that_of_the_weights() {
    assert_eq!(sha256_hex(model::BUILTIN_WEIGHTS), BUILTIN_SHA256);
}

#[test]
fn meaning_is_nearer_than_words() {
    let embedder = builtin();
    let embed = |text| embedder.embed(text).expect("embeds").vector;
    let (a, b, c) = (
        embed("The doctor treated the sick child."),
        embed("A physician cared for an ill kid."),
        embed("The stock market closed higher today."),
    );
    assert!(cosine(&a, &b) > 0.5 && cosine(&a, &c) < 0.2, "{} {}", cosine(&a, &b), cosine(&a, &c));
    assert_eq!((embedder.dim(), embedder.max_tokens(), embedder.sha256().len()), (384, 256, 64));
}

#[test]
fn every_text_has_a_unit_vector_and_the_same_one_each_time() {
    let embedder = builtin();
    let long = "word ".repeat(200_000);
    for text in
        ["", " \n", "\u{0}", "🙂🙃", "北京", &long, &"x".repeat(100_000), "🙂".repeat(40_000).as_str()]
    {
        let first = embedder.embed(text).expect("embeds");
        assert!((cosine(&first.vector, &first.vector) - 1.0).abs() < 1e-5);
        assert!((2..=256).contains(&first.tokens));
        assert_eq!(first, embedder.embed(text).expect("embeds"));
    }
    assert_eq!(embedder.embed("").expect("embeds").tokens, 2);
    assert_eq!(embedder.embed(&long).expect("embeds").tokens, 256);
}

#[test]
fn a_folder_gives_the_same_vectors_as_the_program_itself() {
    let folder = Embedder::load(&ModelSource::Folder(models().to_owned()), 2).expect("loads");
    assert_eq!(folder.sha256(), BUILTIN_SHA256);
    let text = "A breaker opens when answers turn bad.";
    let (a, b) = (folder.embed(text).expect("embeds"), builtin().embed(text).expect("embeds"));
    assert!(cosine(&a.vector, &b.vector) > 0.999_999);
}

#[test]
fn a_folder_that_cannot_be_used_is_named_with_file_and_reason() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = dir.path();
    let said = |what: &str| {
        let error = Embedder::load(&ModelSource::Folder(place.to_owned()), 1).expect_err(what);
        error.to_string().replace(&place.display().to_string(), "DIR")
    };
    let put = |name: &str, bytes: &[u8]| fs::write(place.join(name), bytes).expect("writes");
    let config = fs::read_to_string(models().join("config.json")).expect("reads");
    let gguf = fs::read(models().join("model.gguf")).expect("reads");

    assert!(said("empty").starts_with("DIR/config.json: No such file"), "{}", said("empty"));
    put("config.json", b"{");
    assert!(said("no tokenizer").starts_with("DIR/tokenizer.json: No such file"));
    put("tokenizer.json", b"{}");
    assert_eq!(said("no weights"), "DIR: neither model.safetensors nor model.gguf in it");
    put("model.gguf", &gguf[..5_000_000]);
    assert!(said("config").starts_with("DIR/config.json: EOF while parsing"));
    let faults = [
        ("\"model_type\": \"bert\"", "\"model_type\": \"t5\"", "model_type \"t5\" is not supported"),
        ("\"gelu\"", "\"swish\"", "hidden_act \"swish\" is not supported"),
        ("\"absolute\"", "\"relative_key\"", "position_embedding_type \"relative_key\""),
        ("\"hidden_size\": 384", "\"hidden_size\": 385", "hidden_size 385 is no multiple"),
        ("\"num_attention_heads\": 12", "\"num_attention_heads\": 0", "num_attention_heads is 0"),
        ("\"hidden_size\": 384,", "", "missing field `hidden_size`"),
    ];
    for (from, to, reason) in faults {
        assert!(config.contains(from));
        put("config.json", config.replace(from, to).as_bytes());
        let text = said(reason);
        assert!(text.starts_with("DIR/config.json: ") && text.contains(reason), "{text}");
    }
    put("config.json", config.as_bytes());
    assert!(said("tokenizer").starts_with("DIR/tokenizer.json: "));
    put("tokenizer.json", &fs::read(models().join("tokenizer.json")).expect("reads"));
    assert!(said("cut").starts_with("DIR/model.gguf: tensor "), "{}", said("cut"));
    put("model.gguf", &gguf[..100]);
    assert!(said("head").starts_with("DIR/model.gguf: "), "{}", said("head"));
    put("model.gguf", b"<html>");
    assert!(said("not weights").starts_with("DIR/model.gguf: "), "{}", said("not weights"));
    put("config.json", config.replace("30522", "30523").as_bytes());
    put("model.gguf", &gguf);
    let text = said("shape");
    assert!(text.contains("has shape [30522, 384], but config.json calls for [30523, 384]"), "{text}");
    let missing = ModelSource::Folder(place.join("none"));
    assert!(Embedder::load(&missing, 1).expect_err("none").to_string().ends_with("none: no such folder"));
}

fn params(text: &str) -> Result<Params, String> {
    toml::from_str(text).map_err(|e| e.message().to_owned())
}

#[test]
fn parameters_are_strict_and_read_back() {
    assert_eq!(params(""), Ok(Params::default()));
    let text = toml::to_string(&Params::default()).expect("writes");
    assert!(text.contains("model = \"builtin\""), "{text}");
    assert_eq!(params(&text), Ok(Params::default()));
    assert_eq!(params("model = \"m\"").map(|p| p.model), Ok(ModelSource::Folder("m".into())));
    for bad in ["max_cpu_share = 1.5", "max_cpu_share = nan", "threads = 0", "queue = 0", "modle = 1"] {
        assert!(params(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn the_queue_is_bounded_and_what_is_skipped_is_counted() {
    let raw = RawParams { queue: 2, max_cpu_share: 1.0, ..RawParams::default() };
    let handle = EmbedHandle::start(&Params::try_from(raw).expect("sound")).expect("starts");
    let long = "an answer of many words ".repeat(100);
    let mut pending: Vec<_> = (0..20).filter_map(|_| handle.try_embed(long.as_str())).collect();
    assert!((2..=19).contains(&pending.len()), "{}", pending.len());
    let golden = handle.try_embed_golden("Paris").expect("has room");
    assert_eq!(golden.await.expect("embeds").tokens, 3);
    assert_eq!(pending.remove(0).await.expect("embeds").tokens, 256);
    let stats = handle.stats();
    assert_eq!(stats.skipped_full as usize, 19 - pending.len());
    assert!(stats.done >= 2 && stats.last_us > 0 && stats.busy_us >= stats.last_us);
}

#[tokio::test]
async fn a_spent_budget_skips_live_texts_and_no_golden_ones() {
    let raw = RawParams { max_cpu_share: 0.0, ..RawParams::default() };
    let handle = EmbedHandle::start(&Params::try_from(raw).expect("sound")).expect("starts");
    assert!(handle.try_embed("live").is_none());
    assert!(handle.try_embed_golden("golden").expect("has room").await.is_ok());
    assert!(handle.embed_now("now").is_ok());
    assert_eq!(handle.stats().skipped_budget, 1);
}
