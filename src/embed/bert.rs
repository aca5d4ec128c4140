//! The forward pass of a BERT encoder, one text at a time.
//!
//! Post-norm transformer of Devlin et al. 2018 with learned absolute positions; RoBERTa differs only in
//! where positions begin. Query, key and value are one product; the scale of attention is folded into
//! the query at loading.

use candle_core::Tensor;
use serde::Deserialize;

use super::EmbedError;
use super::kernels::{Activation, AddBias, AddNorm, BiasActivation, Norm, Softmax};
use super::weights::{RowTable, Weights};

/// `config.json`, as far as the forward pass needs it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Config {
    #[serde(default = "bert")]
    model_type: String,
    vocab_size: usize,
    pub(super) hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default = "layer_norm_epsilon")]
    layer_norm_eps: f32,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default)]
    pad_token_id: usize,
    #[serde(default = "absolute")]
    position_embedding_type: String,
}

fn bert() -> String {
    "bert".to_owned()
}
fn gelu() -> String {
    "gelu".to_owned()
}
fn absolute() -> String {
    "absolute".to_owned()
}
const fn layer_norm_epsilon() -> f32 {
    1e-12
}
const fn two() -> usize {
    2
}

impl Config {
    /// Reads and examines `config.json`; the error is the reason.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let config: Self = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        config.first_position()?;
        config.activation()?;
        if config.position_embedding_type != "absolute" {
            return Err(format!(
                "position_embedding_type {:?} is not supported",
                config.position_embedding_type
            ));
        }
        let sizes = [
            ("vocab_size", config.vocab_size),
            ("hidden_size", config.hidden_size),
            ("num_hidden_layers", config.num_hidden_layers),
            ("num_attention_heads", config.num_attention_heads),
            ("intermediate_size", config.intermediate_size),
            ("type_vocab_size", config.type_vocab_size),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(format!("{name} is 0"));
        }
        if !config.hidden_size.is_multiple_of(config.num_attention_heads) {
            return Err(format!(
                "hidden_size {} is no multiple of num_attention_heads {}",
                config.hidden_size, config.num_attention_heads
            ));
        }
        if config.max_tokens() < 3 {
            return Err(format!(
                "max_position_embeddings {} leaves no room for text",
                config.max_position_embeddings
            ));
        }
        Ok(config)
    }

    fn first_position(&self) -> Result<usize, String> {
        match self.model_type.as_str() {
            "bert" => Ok(0),
            "roberta" | "xlm-roberta" | "camembert" => Ok(self.pad_token_id + 1),
            other => Err(format!(
                "model_type {other:?} is not supported (bert, roberta, xlm-roberta and camembert are)"
            )),
        }
    }

    fn activation(&self) -> Result<Activation, String> {
        match self.hidden_act.as_str() {
            "gelu" => Ok(Activation::Gelu),
            "gelu_new" | "gelu_fast" | "gelu_pytorch_tanh" => Ok(Activation::GeluTanh),
            "relu" => Ok(Activation::Relu),
            other => Err(format!("hidden_act {other:?} is not supported (gelu, gelu_new and relu are)")),
        }
    }

    /// Tokens that the positions have room for.
    pub(super) fn max_tokens(&self) -> usize {
        self.max_position_embeddings.saturating_sub(self.first_position().unwrap_or(0))
    }
}

/// A product with a matrix that is stored transposed, and its bias.
#[derive(Debug)]
struct Linear {
    transposed: Tensor,
    bias: Vec<f32>,
}

#[derive(Debug)]
struct Layer {
    query_key_value: Linear,
    attention_out: Linear,
    attention_norm: Norm,
    up: Linear,
    down: Linear,
    norm: Norm,
}

/// The encoder.
#[derive(Debug)]
pub(super) struct Bert {
    words: RowTable,
    /// Position vectors from the first position on, the token type's vector added.
    positions: Tensor,
    norm: Norm,
    layers: Vec<Layer>,
    heads: usize,
    activation: Activation,
}

impl Bert {
    pub(super) fn load(config: &Config, weights: &Weights<'_>) -> Result<Self, EmbedError> {
        let hidden = config.hidden_size;
        // examined by Config::parse
        let first = config.first_position().unwrap_or(0);
        let activation = config.activation().unwrap_or(Activation::Gelu);
        let words = weights.rows("embeddings.word_embeddings.weight", [config.vocab_size, hidden])?;
        let positions = weights
            .tensor("embeddings.position_embeddings.weight", &[config.max_position_embeddings, hidden])?;
        let types =
            weights.tensor("embeddings.token_type_embeddings.weight", &[config.type_vocab_size, hidden])?;
        let positions =
            positions.narrow(0, first, config.max_tokens())?.broadcast_add(&types.narrow(0, 0, 1)?)?;
        let layers = (0..config.num_hidden_layers)
            .map(|i| Layer::load(config, weights, &format!("encoder.layer.{i}.")))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            words,
            positions,
            norm: norm(config, weights, "embeddings.LayerNorm")?,
            layers,
            heads: config.num_attention_heads,
            activation,
        })
    }

    /// The last layer's vector of each token; at least one token, at most [`Config::max_tokens`].
    pub(super) fn forward(&self, ids: &[u32]) -> candle_core::Result<Tensor> {
        let x = self.words.gather(ids)?;
        let positions = self.positions.narrow(0, 0, ids.len())?;
        x.inplace_op2(&positions, &AddNorm { bias: &[], norm: &self.norm })?;
        self.layers.iter().try_for_each(|layer| layer.forward(&x, self.heads, self.activation))?;
        Ok(x)
    }
}

impl Layer {
    fn load(config: &Config, weights: &Weights<'_>, at: &str) -> Result<Self, EmbedError> {
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let linear = |name: &str, rows: usize, columns: usize| -> Result<(Tensor, Vec<f32>), EmbedError> {
            let matrix = weights.tensor(&format!("{at}{name}.weight"), &[rows, columns])?;
            Ok((matrix, weights.vector(&format!("{at}{name}.bias"), rows)?))
        };
        #[allow(clippy::cast_precision_loss)] // a head has a few dozen columns
        let scale = 1.0 / ((hidden / config.num_attention_heads) as f64).sqrt();
        let (query, query_bias) = linear("attention.self.query", hidden, hidden)?;
        let (key, key_bias) = linear("attention.self.key", hidden, hidden)?;
        let (value, value_bias) = linear("attention.self.value", hidden, hidden)?;
        #[allow(clippy::cast_possible_truncation)] // a bias has 24 bits anyway
        let query_bias = query_bias.iter().map(|b| (f64::from(*b) * scale) as f32);
        let query_key_value = Linear {
            transposed: Tensor::cat(&[&(query * scale)?, &key, &value], 0)?.t()?.contiguous()?,
            bias: query_bias.chain(key_bias).chain(value_bias).collect(),
        };
        let plain = |(matrix, bias): (Tensor, Vec<f32>)| -> Result<Linear, EmbedError> {
            Ok(Linear { transposed: matrix.t()?.contiguous()?, bias })
        };
        Ok(Self {
            query_key_value,
            attention_out: plain(linear("attention.output.dense", hidden, hidden)?)?,
            attention_norm: norm(config, weights, &format!("{at}attention.output.LayerNorm"))?,
            up: plain(linear("intermediate.dense", inner, hidden)?)?,
            down: plain(linear("output.dense", hidden, inner)?)?,
            norm: norm(config, weights, &format!("{at}output.LayerNorm"))?,
        })
    }

    /// Changes `x`, tokens × hidden, in place.
    fn forward(&self, x: &Tensor, heads: usize, activation: Activation) -> candle_core::Result<()> {
        let (tokens, hidden) = x.dims2()?;
        let all = x.matmul(&self.query_key_value.transposed)?;
        all.inplace_op1(&AddBias(&self.query_key_value.bias))?;
        let all = all.reshape((tokens, 3 * heads, hidden / heads))?;
        let part = |i: usize| all.narrow(1, i * heads, heads)?.transpose(0, 1);
        let (query, key, value) = (part(0)?, part(1)?, part(2)?);
        let shares = query.matmul(&key.transpose(1, 2)?)?;
        shares.inplace_op1(&Softmax { width: tokens })?;
        let context = shares.matmul(&value)?.transpose(0, 1)?.reshape((tokens, hidden))?;
        let out = context.matmul(&self.attention_out.transposed)?;
        x.inplace_op2(&out, &AddNorm { bias: &self.attention_out.bias, norm: &self.attention_norm })?;

        let inner = x.matmul(&self.up.transposed)?;
        inner.inplace_op1(&BiasActivation(&self.up.bias, activation))?;
        let out = inner.matmul(&self.down.transposed)?;
        x.inplace_op2(&out, &AddNorm { bias: &self.down.bias, norm: &self.norm })
    }
}

fn norm(config: &Config, weights: &Weights<'_>, name: &str) -> Result<Norm, EmbedError> {
    Ok(Norm {
        weight: weights.vector(&format!("{name}.weight"), config.hidden_size)?,
        bias: weights.vector(&format!("{name}.bias"), config.hidden_size)?,
        epsilon: config.layer_norm_eps,
    })
}
