//! Tensors by name from a weights file, whatever its format and habit of naming.

use std::borrow::Cow;
use std::io::Cursor;
use std::ops::Range;

use candle_core::quantized::{GgmlDType, QStorage, QTensor, gguf_file};
use candle_core::safetensors::SliceSafetensors;
use candle_core::{DType, Device, Tensor};

use super::EmbedError;

/// Names of tensors: as Hugging Face writes them, and as llama.cpp's converter does.
const LLAMA_CPP: &[(&str, &str)] = &[
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
    ("encoder.layer.", "blk."),
];

/// An opened weights file.
pub(super) struct Weights<'a> {
    file: String,
    format: Format<'a>,
}

enum Format<'a> {
    Gguf(gguf_file::Content, &'a Cow<'static, [u8]>),
    Safetensors(SliceSafetensors<'a>),
}

/// A matrix of which only rows are wanted, packed as in the file.
#[derive(Debug)]
pub(super) struct RowTable {
    packed: Cow<'static, [u8]>,
    dtype: GgmlDType,
    rows: usize,
    columns: usize,
}

impl<'a> Weights<'a> {
    /// Opens GGUF or safetensors, told by the first bytes. `file` names it in errors.
    #[allow(clippy::ptr_arg)] // whether the bytes live for ever decides whether rows are copied
    pub(super) fn open(file: &str, bytes: &'a Cow<'static, [u8]>) -> Result<Self, EmbedError> {
        let fault = |e: candle_core::Error| model_error(file, e.to_string());
        let format = if bytes.starts_with(b"GGUF") {
            Format::Gguf(gguf_file::Content::read(&mut Cursor::new(&bytes[..])).map_err(fault)?, bytes)
        } else {
            Format::Safetensors(SliceSafetensors::new(bytes).map_err(fault)?)
        };
        Ok(Self { file: file.to_owned(), format })
    }

    /// A whole tensor of this shape as 32-bit floats; every number must be finite.
    pub(super) fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor, EmbedError> {
        let stored = self.find(name)?;
        let fault = |e: candle_core::Error| self.error(format!("tensor {stored}: {e}"));
        let tensor = match &self.format {
            Format::Gguf(content, bytes) => content
                .tensor(&mut Cursor::new(&bytes[..]), &stored, &Device::Cpu)
                .and_then(|q| q.dequantize(&Device::Cpu)),
            Format::Safetensors(file) => {
                file.load(&stored, &Device::Cpu).and_then(|t| t.to_dtype(DType::F32))
            }
        }
        .map_err(fault)?;
        self.expect_shape(&stored, tensor.dims(), shape)?;
        let sum = tensor.abs().and_then(|t| t.sum_all()).and_then(|t| t.to_scalar::<f32>()).map_err(fault)?;
        if !sum.is_finite() {
            return Err(self.error(format!("tensor {stored} holds a number that is not finite")));
        }
        Ok(tensor)
    }

    /// A vector of this length.
    pub(super) fn vector(&self, name: &str, length: usize) -> Result<Vec<f32>, EmbedError> {
        self.tensor(name, &[length])?.to_vec1().map_err(|e| self.error(format!("tensor {name}: {e}")))
    }

    /// A matrix left as it is packed.
    pub(super) fn rows(&self, name: &str, shape: [usize; 2]) -> Result<RowTable, EmbedError> {
        let stored = self.find(name)?;
        let [rows, columns] = shape;
        let (packed, dtype) = match &self.format {
            Format::Gguf(content, bytes) => {
                let info = &content.tensor_infos[&stored];
                self.expect_shape(&stored, info.shape.dims(), &shape)?;
                let dtype = info.ggml_dtype;
                let size = row_bytes(dtype, columns).map(|row| row * rows);
                let begin = content.tensor_data_offset.saturating_add(info.offset);
                let range = size.and_then(|size| within(begin, size, bytes.len()));
                let range = range.ok_or_else(|| self.error(format!("tensor {stored} is cut off")))?;
                let packed = match bytes {
                    Cow::Borrowed(all) => Cow::Borrowed(&all[range]),
                    Cow::Owned(all) => Cow::Owned(all[range].to_vec()),
                };
                (packed, dtype)
            }
            Format::Safetensors(file) => {
                let view = file.get(&stored).map_err(|e| self.error(format!("tensor {stored}: {e}")))?;
                self.expect_shape(&stored, view.shape(), &shape)?;
                let dtype = match DType::try_from(view.dtype()) {
                    Ok(DType::F32) => GgmlDType::F32,
                    Ok(DType::F16) => GgmlDType::F16,
                    Ok(DType::BF16) => GgmlDType::BF16,
                    _ => return Err(self.error(format!("tensor {stored} is of type {:?}", view.dtype()))),
                };
                (Cow::Owned(view.data().to_vec()), dtype)
            }
        };
        Ok(RowTable { packed, dtype, rows, columns })
    }

    fn find(&self, name: &str) -> Result<String, EmbedError> {
        let mut llama = name.to_owned();
        for (hugging_face, short) in LLAMA_CPP {
            llama = llama.replace(hugging_face, short);
        }
        let candidates = [name.to_owned(), format!("bert.{name}"), format!("roberta.{name}"), llama];
        let there = |candidate: &String| match &self.format {
            Format::Gguf(content, _) => content.tensor_infos.contains_key(candidate),
            Format::Safetensors(file) => file.get(candidate).is_ok(),
        };
        candidates.into_iter().find(there).ok_or_else(|| self.error(format!("no tensor {name}")))
    }

    fn expect_shape(&self, name: &str, found: &[usize], wanted: &[usize]) -> Result<(), EmbedError> {
        if found == wanted {
            return Ok(());
        }
        Err(self.error(format!("tensor {name} has shape {found:?}, but config.json calls for {wanted:?}")))
    }

    fn error(&self, reason: String) -> EmbedError {
        model_error(&self.file, reason)
    }
}

pub(super) fn model_error(file: &str, reason: impl Into<String>) -> EmbedError {
    EmbedError::Model { file: file.to_owned(), reason: reason.into() }
}

fn row_bytes(dtype: GgmlDType, columns: usize) -> Option<usize> {
    columns.is_multiple_of(dtype.block_size()).then(|| columns / dtype.block_size() * dtype.type_size())
}

fn within(begin: u64, size: usize, length: usize) -> Option<Range<usize>> {
    let begin = usize::try_from(begin).ok()?;
    let end = begin.checked_add(size)?;
    (end <= length).then_some(begin..end)
}

impl RowTable {
    /// These rows, unpacked, one below the other.
    pub(super) fn gather(&self, ids: &[u32]) -> candle_core::Result<Tensor> {
        let row = self.packed.len() / self.rows;
        let mut packed = Vec::with_capacity(row * ids.len());
        for id in ids {
            let index = usize::try_from(*id).unwrap_or(usize::MAX);
            if index >= self.rows {
                candle_core::bail!("token {id} is outside the vocabulary of {}", self.rows)
            }
            packed.extend_from_slice(&self.packed[index * row..(index + 1) * row]);
        }
        let storage = QStorage::from_data(Cow::Owned(packed), &Device::Cpu, self.dtype)?;
        QTensor::new(storage, (ids.len(), self.columns))?.dequantize(&Device::Cpu)
    }
}
