//! `/v1/models/{model}:predict`: TensorFlow Serving's REST prediction API.
//!
//! In row format `predictions` holds one entry an instance: a number, nested lists, or an object of named
//! outputs. In column format `outputs` holds the whole batch of the only output, or of each by name. Raw
//! bytes are objects with the single member `b64`. A failure is `{"error": "…"}`.
//!
//! Source: TensorFlow Serving, "RESTful API", Predict API.

use super::tensor::{Elements, Gather, Tensor, nested_shape};
use super::{Emit, Event, Fault, Value};

/// Named outputs that are looked at.
const MAX_OUTPUTS: usize = 256;

/// Turns one answer into events.
pub fn read(root: Value<'_>, emit: &mut Emit<'_>) {
    let rows = root.field("predictions");
    let columns = root.field("outputs");
    if let Some(fault) = Fault::find(root, rows.is_some() || columns.is_some()) {
        emit(Event::Error(&fault));
    }
    let mut gather = Gather::default();
    if let Some(rows) = rows {
        match rows.items().next().filter(is_named) {
            Some(first) => {
                for (name, value) in first.members().take(MAX_OUTPUTS) {
                    let name = name.string().unwrap_or_default();
                    gather.clear();
                    rows.items()
                        .filter_map(|row| row.get(&name))
                        .for_each(|v| gather.json(v, Elements::Real));
                    let mut shape = vec![rows.items().count()];
                    shape.extend(nested_shape(value));
                    give(&name, shape, &gather, emit);
                }
            }
            None => {
                gather.json(rows, Elements::Real);
                give("", nested_shape(rows), &gather, emit);
            }
        }
    }
    if let Some(columns) = columns {
        if is_named(&columns) {
            for (name, value) in columns.members().take(MAX_OUTPUTS) {
                gather.clear();
                gather.json(value, Elements::Real);
                give(&name.string().unwrap_or_default(), nested_shape(value), &gather, emit);
            }
        } else {
            gather.clear();
            gather.json(columns, Elements::Real);
            give("", nested_shape(columns), &gather, emit);
        }
    }
}

/// Whether it is an object of named outputs, and not raw bytes.
fn is_named(value: &Value<'_>) -> bool {
    value.is_object() && !(value.field("b64").is_some() && value.members().nth(1).is_none())
}

/// The outermost axis is the batch: one number an instance is a column of one.
fn give(name: &str, mut shape: Vec<usize>, gather: &Gather, emit: &mut Emit<'_>) {
    if shape.len() == 1 {
        shape.push(1);
    }
    emit(Event::Tensor(Tensor {
        name,
        elements: gather.likeness(),
        shape: &shape,
        values: &gather.values,
        texts: &gather.texts,
        finite: gather.is_finite(),
    }));
}

#[cfg(test)]
mod tests {
    use super::super::tests::events;
    use crate::verdict::Wire;

    fn of(text: &str) -> Vec<String> {
        events(Wire::TfPredict, text, true)
    }

    #[test]
    fn rows_and_columns_say_the_same() {
        let wanted = ["tensor  Real [2, 2] [0.1, 0.9, 0.8, 0.2] [] true"];
        assert_eq!(of(r#"{"predictions":[[0.1,0.9],[0.8,0.2]]}"#), wanted);
        assert_eq!(of(r#"{"outputs":[[0.1,0.9],[0.8,0.2]]}"#), wanted);
        let named = ["tensor p Real [2, 1] [0.1, 0.8] [] true", r#"tensor c Text [2, 1] [] ["x", "y"] true"#];
        assert_eq!(of(r#"{"predictions":[{"p":0.1,"c":"x"},{"p":0.8,"c":"y"}]}"#), named);
        assert_eq!(of(r#"{"outputs":{"p":[0.1,0.8],"c":["x","y"]}}"#), named);
    }

    #[test]
    fn one_number_an_instance_is_a_column() {
        assert_eq!(of(r#"{"predictions":[2.5,3.0]}"#), ["tensor  Real [2, 1] [2.5, 3.0] [] true"]);
        assert_eq!(of(r#"{"predictions":[4,5]}"#), ["tensor  Whole [2, 1] [4.0, 5.0] [] true"]);
        assert_eq!(of(r#"{"predictions":[{"b64":"AAE="}]}"#), [r#"tensor  Text [1, 1] [] ["AAE="] true"#]);
    }

    #[test]
    fn what_is_not_finite_is_seen() {
        for text in [
            r#"{"predictions":[[1.0,NaN]]}"#,
            r#"{"outputs":{"p":[null]}}"#,
            r#"{"predictions":[[1],[Infinity]]}"#,
        ] {
            assert!(of(text)[0].ends_with("false"), "{text}");
        }
    }

    #[test]
    fn an_error_is_one() {
        assert_eq!(
            of(r#"{"error":"Malformed request: POST /v1/models/m:predict"}"#),
            ["error Server Malformed request: POST /v1/models/m:predict"]
        );
    }
}
