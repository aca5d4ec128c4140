//! A loaded model: tokenizer, encoder and pooling, from the program itself or from a folder.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;
use tokenizers::{Tokenizer, TruncationParams};

use super::bert::{Bert, Config};
use super::weights::{Weights, model_error};
use super::{EmbedError, Embedding, ModelSource};
use crate::baseline::sha256_hex;

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const WEIGHTS: [&str; 2] = ["model.safetensors", "model.gguf"];

/// sha256 of the weights that the program carries; written down because hashing them at each start
/// would bring all of them into memory.
pub const BUILTIN_SHA256: &str = "3e533c3dfd24dbfae2ff646ceaacfcfba86a894e3c39614ca72ed6443b61ed83";
const BUILTIN_CONFIG: &[u8] = include_bytes!("../../models/config.json");
const BUILTIN_TOKENIZER: &[u8] = include_bytes!("../../models/tokenizer.json");
pub(super) const BUILTIN_WEIGHTS: &[u8] = include_bytes!("../../models/model.gguf");

/// What a text is cut to before it is tokenised: no tokenizer here makes fewer than one token of 256
/// bytes of ordinary text, and a caller's megabyte must not stop the queue.
const MAX_BYTES_A_TOKEN: usize = 256;

/// How token vectors become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pooling {
    Mean,
    First,
}

/// A sentence embedder. Its forward passes run on threads of its own, however many are asked for, and
/// callers on several threads may share it.
pub struct Embedder {
    tokenizer: Tokenizer,
    bert: Bert,
    pooling: Pooling,
    threads: rayon::ThreadPool,
    sha256: String,
    dim: usize,
    max_tokens: usize,
}

impl std::fmt::Debug for Embedder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Embedder")
            .field("sha256", &self.sha256)
            .field("dim", &self.dim)
            .finish_non_exhaustive()
    }
}

impl Embedder {
    /// Loads the model; forward passes will use `threads` threads.
    ///
    /// # Errors
    /// A file of the folder is missing, broken, or of a kind that is not supported; the error names it.
    pub fn load(source: &ModelSource, threads: usize) -> Result<Self, EmbedError> {
        match source {
            ModelSource::Builtin => Self::build(
                &|name| format!("built-in {name}"),
                BUILTIN_CONFIG,
                BUILTIN_TOKENIZER,
                Pooling::Mean,
                None,
                ("model.gguf", &Cow::Borrowed(BUILTIN_WEIGHTS), BUILTIN_SHA256.to_owned()),
                threads,
            ),
            ModelSource::Folder(dir) => Self::from_folder(dir, threads),
        }
    }

    fn from_folder(dir: &Path, threads: usize) -> Result<Self, EmbedError> {
        let named = |name: &str| dir.join(name).display().to_string();
        if !dir.is_dir() {
            return Err(model_error(&dir.display().to_string(), "no such folder"));
        }
        let config = read(dir, CONFIG)?;
        let tokenizer = read(dir, TOKENIZER)?;
        let Some(file) = WEIGHTS.into_iter().find(|name| dir.join(name).exists()) else {
            let reason = format!("neither {} nor {} in it", WEIGHTS[0], WEIGHTS[1]);
            return Err(model_error(&dir.display().to_string(), reason));
        };
        let weights = read(dir, file)?;
        let sha256 = sha256_hex(&weights);
        let (pooling, limit) = (pooling(dir)?, sentence_limit(dir)?);
        let weights = (file, &Cow::Owned(weights), sha256);
        Self::build(&named, &config, &tokenizer, pooling, limit, weights, threads)
    }

    fn build(
        named: &dyn Fn(&str) -> String,
        config: &[u8],
        tokenizer: &[u8],
        pooling: Pooling,
        limit: Option<usize>,
        (file, weights, sha256): (&str, &Cow<'static, [u8]>, String),
        threads: usize,
    ) -> Result<Self, EmbedError> {
        let config = Config::parse(config).map_err(|reason| model_error(&named(CONFIG), reason))?;
        let fault = |e: tokenizers::Error| model_error(&named(TOKENIZER), e.to_string());
        let mut tokenizer = Tokenizer::from_bytes(tokenizer).map_err(fault)?;
        let own = tokenizer.get_truncation().map(|t| t.max_length);
        let max_tokens = limit.or(own).unwrap_or(usize::MAX).min(config.max_tokens());
        if max_tokens < 3 {
            return Err(model_error(&named(TOKENIZER), format!("cuts texts to {max_tokens} tokens")));
        }
        tokenizer.with_padding(None);
        let cut = TruncationParams { max_length: max_tokens, ..TruncationParams::default() };
        tokenizer.with_truncation(Some(cut)).map_err(fault)?;
        let bert = Bert::load(&config, &Weights::open(&named(file), weights)?)?;
        if threads <= 1 {
            // candle has each product cut into a piece a core, which costs 40 % when one thread does them all
            gemm::set_threading_threshold(usize::MAX);
        }
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|i| format!("embed-{i}"))
            .build()
            .map_err(|e| EmbedError::Thread(e.to_string()))?;
        let dim = config.hidden_size;
        Ok(Self { tokenizer, bert, pooling, threads, sha256, dim, max_tokens })
    }

    /// sha256 of the weights file, hexadecimal: part of a baseline's fingerprint.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// Length of a vector.
    #[must_use]
    pub const fn dim(&self) -> usize {
        self.dim
    }

    /// Tokens after which a text is cut, special ones included.
    #[must_use]
    pub const fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// The text's unit vector; the empty text has one too. Takes milliseconds: not for an async worker.
    ///
    /// # Errors
    /// The tokenizer finds nothing, or the weights lead nowhere.
    pub fn embed(&self, text: &str) -> Result<Embedding, EmbedError> {
        let mut end = text.len().min(self.max_tokens * MAX_BYTES_A_TOKEN);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let encoding = self
            .tokenizer
            .encode_fast(&text[..end], true)
            .map_err(|e| EmbedError::Tokenise(e.to_string()))?;
        let ids = encoding.get_ids();
        if ids.is_empty() {
            return Err(EmbedError::Tokenise("no token".to_owned()));
        }
        let pooled = self.threads.install(|| {
            let tokens = self.bert.forward(ids)?;
            match self.pooling {
                Pooling::Mean => tokens.mean(0)?.to_vec1::<f32>(),
                Pooling::First => tokens.get(0)?.to_vec1::<f32>(),
            }
        })?;
        Ok(Embedding { tokens: ids.len(), vector: unit(pooled)? })
    }
}

fn unit(mut vector: Vec<f32>) -> Result<Vec<f32>, EmbedError> {
    let norm = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if !norm.is_finite() || norm < 1e-12 {
        return Err(EmbedError::NoDirection);
    }
    #[allow(clippy::cast_possible_truncation)] // back to the width it came in
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    Ok(vector)
}

fn read(dir: &Path, name: &str) -> Result<Vec<u8>, EmbedError> {
    let path = dir.join(name);
    std::fs::read(&path).map_err(|e| model_error(&path.display().to_string(), e.to_string()))
}

/// Reads one of sentence-transformers' small files, which a folder may lack.
fn optional<T: serde::de::DeserializeOwned>(dir: &Path, name: &str) -> Result<Option<T>, EmbedError> {
    if !dir.join(name).exists() {
        return Ok(None);
    }
    let fault = |e: serde_json::Error| model_error(&dir.join(name).display().to_string(), e.to_string());
    serde_json::from_slice(&read(dir, name)?).map(Some).map_err(fault)
}

fn sentence_limit(dir: &Path) -> Result<Option<usize>, EmbedError> {
    #[derive(Deserialize)]
    struct Sentence {
        max_seq_length: Option<usize>,
    }
    Ok(optional::<Sentence>(dir, "sentence_bert_config.json")?.and_then(|s| s.max_seq_length))
}

fn pooling(dir: &Path) -> Result<Pooling, EmbedError> {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Modes {
        pooling_mode_cls_token: bool,
        pooling_mode_mean_tokens: bool,
    }
    const FILE: &str = "1_Pooling/config.json";
    match optional::<Modes>(dir, FILE)? {
        None | Some(Modes { pooling_mode_mean_tokens: true, pooling_mode_cls_token: false }) => {
            Ok(Pooling::Mean)
        }
        Some(Modes { pooling_mode_mean_tokens: false, pooling_mode_cls_token: true }) => Ok(Pooling::First),
        Some(_) => {
            let reason = "pooling is neither by the mean nor by the first token";
            Err(model_error(&dir.join(FILE).display().to_string(), reason))
        }
    }
}
