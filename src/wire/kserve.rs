//! `/v2/models/{model}/infer`: the Open Inference Protocol (KServe V2) and Triton's extensions of it.
//!
//! Tensors come as JSON lists in `outputs[].data`, or raw behind the JSON document, one after another, each
//! as long as its `binary_data_size` says (the binary tensor data extension); the header
//! `Inference-Header-Content-Length` then tells where the document ends. The classification extension
//! turns a tensor of scores into texts `score:index:label`.
//!
//! Sources: Open Inference Protocol, "REST"; Triton "Binary Tensor Data Extension" and "Classification
//! Extension".

use super::tensor::{Elements, Gather, Tensor, given_shape, nested_shape, volume};
use super::{Emit, Event, Fault, Value};
use crate::verdict::Flag;

/// Outputs of one answer that are looked at.
const MAX_OUTPUTS: usize = 256;

/// What stands behind the JSON document.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tail<'a> {
    /// The raw tensors.
    pub bytes: &'a [u8],
    /// Whether it may be held against what the document says of it: nothing is missing because a limit
    /// of the analysis was reached or the answer was broken off.
    pub whole: bool,
}

/// How elements are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Datatype {
    Bool,
    Uint(usize),
    Int(usize),
    Fp16,
    Bf16,
    Fp32,
    Fp64,
    Bytes,
}

impl Datatype {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "BOOL" => Self::Bool,
            "UINT8" => Self::Uint(1),
            "UINT16" => Self::Uint(2),
            "UINT32" => Self::Uint(4),
            "UINT64" => Self::Uint(8),
            "INT8" => Self::Int(1),
            "INT16" => Self::Int(2),
            "INT32" => Self::Int(4),
            "INT64" => Self::Int(8),
            "FP16" => Self::Fp16,
            "BF16" => Self::Bf16,
            "FP32" => Self::Fp32,
            "FP64" => Self::Fp64,
            "BYTES" => Self::Bytes,
            _ => return None,
        })
    }

    /// Bytes of one element; `None` where each tells its own.
    const fn size(self) -> Option<usize> {
        match self {
            Self::Bool => Some(1),
            Self::Uint(size) | Self::Int(size) => Some(size),
            Self::Fp16 | Self::Bf16 => Some(2),
            Self::Fp32 => Some(4),
            Self::Fp64 => Some(8),
            Self::Bytes => None,
        }
    }

    const fn elements(self) -> Elements {
        match self {
            Self::Bool | Self::Uint(_) | Self::Int(_) => Elements::Whole,
            Self::Fp16 | Self::Bf16 | Self::Fp32 | Self::Fp64 => Elements::Real,
            Self::Bytes => Elements::Text,
        }
    }

    /// Takes raw little-endian elements; false if the bytes do not come out even.
    fn decode(self, bytes: &[u8], gather: &mut Gather) -> bool {
        let Some(size) = self.size() else { return texts(bytes, gather) };
        for element in bytes.chunks_exact(size) {
            let mut wide = [0_u8; 8];
            wide[..size].copy_from_slice(element);
            let bits = u64::from_le_bytes(wide);
            gather.number(match self {
                Self::Bool => f64::from(u8::from(bits != 0)),
                Self::Fp16 => f64::from(half::f16::from_bits(bits as u16)),
                Self::Bf16 => f64::from(half::bf16::from_bits(bits as u16)),
                Self::Fp32 => f64::from(f32::from_bits(bits as u32)),
                Self::Fp64 => f64::from_bits(bits),
                Self::Int(size) => {
                    let unused = 64 - 8 * size as u32;
                    ((bits << unused) as i64 >> unused) as f64
                }
                Self::Uint(_) | Self::Bytes => bits as f64,
            });
        }
        bytes.len().is_multiple_of(size)
    }
}

/// Texts of the binary extension: each behind its length, four bytes.
fn texts(mut bytes: &[u8], gather: &mut Gather) -> bool {
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let length = u32::from_le_bytes(*length) as usize;
        let Some(text) = rest.get(..length) else { return false };
        gather.text(text);
        bytes = &rest[length..];
    }
    bytes.is_empty()
}

/// Turns one answer into events.
pub fn read(root: Value<'_>, tail: Tail<'_>, emit: &mut Emit<'_>) {
    if let Some(name) = root.field("model_name").and_then(|m| m.string()).filter(|m| !m.is_empty()) {
        emit(Event::Model(&name));
    }
    let outputs = root.field("outputs").filter(|o| o.is_array());
    if let Some(fault) = Fault::find(root, outputs.is_some()) {
        emit(Event::Error(&fault));
    }
    let Some(outputs) = outputs else { return };
    let mut rest = tail.bytes;
    let mut gather = Gather::default();
    let mut odd = None;
    for output in outputs.items().take(MAX_OUTPUTS) {
        gather.clear();
        let name = output.field("name").and_then(|n| n.string()).unwrap_or_default();
        let word = output.field("datatype").and_then(|d| d.string()).unwrap_or_default();
        let datatype = Datatype::of(&word.to_ascii_uppercase());
        let size = output.path(&["parameters", "binary_data_size"]).map(|s| s.count());
        let data = output.field("data");
        let mut even = true;
        if let Some(size) = size {
            let Some(size) = size.and_then(|s| usize::try_from(s).ok()) else {
                odd.get_or_insert(Flag::MalformedJson);
                continue;
            };
            let (own, further) = rest.split_at(size.min(rest.len()));
            rest = further;
            let missing = own.len() < size;
            if missing {
                odd.get_or_insert(Flag::BodyTruncated);
            }
            even = datatype.is_none_or(|d| d.decode(own, &mut gather)) || missing;
        } else if let Some(data) = data {
            gather.json(data, datatype.map_or(Elements::Real, Datatype::elements));
        } else {
            continue; // it lies in shared memory
        }
        let shape = output.field("shape").and_then(given_shape);
        let fits = shape.as_ref().is_none_or(|s| volume(s) == gather.count);
        if datatype.is_some() && !(even && fits) {
            odd.get_or_insert(Flag::MalformedJson);
        }
        let shape =
            shape.filter(|_| fits).or_else(|| data.map(nested_shape)).unwrap_or_else(|| vec![gather.count]);
        emit(Event::Tensor(Tensor {
            name: &name,
            elements: datatype.map_or_else(|| gather.likeness(), Datatype::elements),
            shape: &shape,
            values: &gather.values,
            texts: &gather.texts,
            finite: gather.is_finite(),
        }));
    }
    if !rest.is_empty() && outputs.items().nth(MAX_OUTPUTS).is_none() {
        odd.get_or_insert(Flag::MalformedJson); // more came than the document tells of
    }
    if let Some(flag) = odd.filter(|_| tail.whole) {
        emit(Event::Odd(flag));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Doc;

    /// Events of one answer, one line each.
    fn events(head: &str, tail: &[u8]) -> Vec<String> {
        let mut doc = Doc::default();
        let mut out = Vec::new();
        let root = doc.parse(head.as_bytes()).0.expect("json");
        read(root, Tail { bytes: tail, whole: true }, &mut |event| {
            out.push(match event {
                Event::Tensor(t) => format!(
                    "{} {:?} {:?} {:?} {:?} {}",
                    t.name, t.elements, t.shape, t.values, t.texts, t.finite
                ),
                Event::Model(name) => format!("model {name}"),
                Event::Error(fault) => format!("error {:?}", fault.kind),
                Event::Odd(flag) => format!("odd {flag}"),
                other => format!("{other:?}"),
            });
        });
        out
    }

    fn binary(datatype: &str, shape: &str, bytes: &[u8]) -> Vec<String> {
        let size = bytes.len();
        let head = format!(
            r#"{{"outputs":[{{"name":"y","datatype":"{datatype}","shape":{shape},"parameters":{{"binary_data_size":{size}}}}}]}}"#
        );
        events(&head, bytes)
    }

    #[test]
    fn every_datatype_is_read_from_raw_bytes() {
        let all: [(&str, &[u8], &str); 13] = [
            ("BOOL", &[0, 1], "Whole [2] [0.0, 1.0]"),
            ("UINT8", &[1, 255], "Whole [2] [1.0, 255.0]"),
            ("UINT16", &[1, 0, 255, 255], "Whole [2] [1.0, 65535.0]"),
            ("UINT32", &[1, 0, 0, 0, 0, 0, 0, 128], "Whole [2] [1.0, 2147483648.0]"),
            ("UINT64", &[2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0], "Whole [2] [2.0, 3.0]"),
            ("INT8", &[1, 255], "Whole [2] [1.0, -1.0]"),
            ("INT16", &[1, 0, 254, 255], "Whole [2] [1.0, -2.0]"),
            ("INT32", &[1, 0, 0, 0, 255, 255, 255, 255], "Whole [2] [1.0, -1.0]"),
            (
                "INT64",
                &[1, 0, 0, 0, 0, 0, 0, 0, 253, 255, 255, 255, 255, 255, 255, 255],
                "Whole [2] [1.0, -3.0]",
            ),
            ("FP16", &[0x00, 0x3c, 0x00, 0xb8], "Real [2] [1.0, -0.5]"),
            ("BF16", &[0x80, 0x3f, 0x00, 0xbf], "Real [2] [1.0, -0.5]"),
            ("FP32", &[0, 0, 128, 63, 0, 0, 0, 191], "Real [2] [1.0, -0.5]"),
            ("FP64", &[0, 0, 0, 0, 0, 0, 240, 63, 0, 0, 0, 0, 0, 0, 224, 191], "Real [2] [1.0, -0.5]"),
        ];
        for (datatype, bytes, wanted) in all {
            assert_eq!(binary(datatype, "[2]", bytes), [format!("y {wanted} [] true")], "{datatype}");
        }
        let texts = [3, 0, 0, 0, b'a', b':', b'b', 0, 0, 0, 0];
        assert_eq!(binary("BYTES", "[2]", &texts), [r#"y Text [2] [] ["a:b", ""] true"#]);
        assert_eq!(binary("FP8", "[2]", &[1, 2]), ["y Whole [0] [] [] true"], "an unknown type is no fault");
    }

    #[test]
    fn what_is_not_finite_is_seen_in_every_float_and_form() {
        for (datatype, bytes) in [
            ("FP16", &[0x00, 0x7e][..]),
            ("BF16", &[0x80, 0xff]),
            ("FP32", &[0, 0, 192, 127]),
            ("FP64", &[0, 0, 0, 0, 0, 0, 240, 127]),
        ] {
            assert!(binary(datatype, "[1]", bytes)[0].ends_with("false"), "{datatype}");
        }
        for data in ["[1,NaN]", "[[1],[null]]", r#"[0.5,"Infinity"]"#, "[1e999,1]", "[-Infinity,2]"] {
            let seen =
                events(&format!(r#"{{"outputs":[{{"name":"y","datatype":"FP32","data":{data}}}]}}"#), b"");
            assert!(seen[0].ends_with("false"), "{data}: {seen:?}");
        }
    }

    #[test]
    fn json_and_raw_tensors_stand_side_by_side() {
        let head = r#"{"model_name":"c","outputs":[
            {"name":"a","datatype":"FP32","shape":[1,2],"data":[[0.25,0.75]]},
            {"name":"b","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2}},
            {"name":"s","datatype":"FP32","shape":[9],"parameters":{"shared_memory_region":"r"}},
            {"name":"c","datatype":"INT8","shape":[1],"parameters":{"binary_data_size":1}}]}"#;
        assert_eq!(
            events(head, &[7, 8, 9]),
            [
                "model c",
                "a Real [1, 2] [0.25, 0.75] [] true",
                "b Whole [2] [7.0, 8.0] [] true",
                "c Whole [1] [9.0] [] true"
            ]
        );
    }

    #[test]
    fn a_document_and_its_tail_that_contradict_each_other_are_told() {
        let last = |events: Vec<String>| events.last().cloned().unwrap_or_default();
        let head = |size: i64, shape: &str| {
            format!(
                r#"{{"outputs":[{{"name":"y","datatype":"FP32","shape":{shape},"parameters":{{"binary_data_size":{size}}}}}]}}"#
            )
        };
        assert_eq!(last(events(&head(8, "[2]"), &[0; 4])), "odd body_truncated");
        assert_eq!(last(events(&head(4, "[1]"), &[0; 8])), "odd malformed_json");
        assert_eq!(last(events(&head(4, "[3]"), &[0; 4])), "odd malformed_json");
        assert_eq!(last(events(&head(6, "[1]"), &[0; 6])), "odd malformed_json");
        assert_eq!(last(events(&head(-1, "[1]"), &[])), "odd malformed_json");
        let json = r#"{"outputs":[{"name":"y","datatype":"FP32","shape":[2],"data":[1.5]}]}"#;
        assert_eq!(last(events(json, b"")), "odd malformed_json");
        let text = r#"{"outputs":[{"name":"y","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":6}}]}"#;
        assert_eq!(last(events(text, &[9, 0, 0, 0, b'a', b'b'])), "odd malformed_json");
    }

    #[test]
    fn an_error_is_one_and_an_answer_without_outputs_gives_no_tensor() {
        assert_eq!(events(r#"{"error":"failed to load"}"#, b""), ["error Server"]);
        assert_eq!(events(r#"{"model_name":"m","outputs":[]}"#, b""), ["model m"]);
    }
}
