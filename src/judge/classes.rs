//! What a tensor says if it is a classifier's: a distribution over classes, independent yes/no scores, or
//! raw scores that become a distribution by softmax.
//!
//! No wire says which of these a tensor is, so its values tell: rows that are nowhere negative and add up
//! to 1 are probabilities, rows between 0 and 1 that do not are independent labels, anything else is raw
//! scores (log-probabilities among them, whose softmax is exact). Names decide where values cannot: an
//! `embedding` is no classifier's output, whatever its values.

use crate::stats::entropy;
use crate::verdict::ClassOutput;
use crate::wire::Tensor;
use crate::wire::tensor::Elements;

/// Rows of a batch that are looked at.
const MAX_ROWS: usize = 256;
/// How far the sum of a row of probabilities may be off: half precision, a thousand classes.
const SUM_TOLERANCE: f64 = 0.01;
/// Classes kept of the first row, the most likely first: as many as canaries ask alternatives for.
const MAX_KEPT: usize = 20;
/// Raw scores of more classes than this are only believed where the name says so.
const MAX_NAMELESS_CLASSES: usize = 4096;

/// Parts of names of a classifier's outputs.
const CLASSIFIERS: [&str; 9] =
    ["prob", "softmax", "score", "logit", "class", "label", "sentiment", "intent", "topic"];
/// Parts of names of what is none.
const OTHERS: [&str; 14] = [
    "embed",
    "hidden",
    "feature",
    "vector",
    "box",
    "mask",
    "coord",
    "landmark",
    "regress",
    "pool",
    "state",
    "anchor",
    "offset",
    "attention",
];

/// A classifier's answer; means over the rows of a batch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Classes {
    pub(super) output: ClassOutput,
    /// H, nats; of independent labels the mean binary entropy.
    pub(super) entropy: f64,
    /// H ÷ its maximum, where the number of classes is known.
    pub(super) ratio: Option<f64>,
    pub(super) confidence: f64,
    pub(super) margin: f64,
    /// How many classes a row has.
    pub(super) count: usize,
    /// Classes of the first row with their probabilities, the most likely first.
    pub(super) first: Vec<(String, f64)>,
}

/// What one row shows.
struct Row {
    entropy: f64,
    ratio: Option<f64>,
    confidence: f64,
    margin: f64,
}

/// What a name says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hint {
    Classifier,
    Other,
    Nothing,
}

fn hint(name: &str) -> Hint {
    let name = name.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    match () {
        () if has(&OTHERS) => Hint::Other,
        () if has(&CLASSIFIERS) => Hint::Classifier,
        () => Hint::Nothing,
    }
}

/// Reads a tensor of numbers; with how much speaks for its being the classifier's output.
pub(super) fn of_numbers(tensor: &Tensor<'_>) -> Option<(u8, Classes)> {
    let hint = hint(tensor.name);
    let (classes, axes) = (*tensor.shape.last()?, tensor.shape.len());
    // A row for each token is a classifier's only where the name says so; images and maps never are.
    let shaped = axes <= 2 || (axes == 3 && hint == Hint::Classifier);
    let usable = tensor.finite && tensor.elements == Elements::Real || is_one_hot(tensor, classes);
    if hint == Hint::Other || !shaped || !usable || classes == 0 || classes > tensor.values.len() {
        return None;
    }
    let rows = || tensor.values.chunks_exact(classes).take(MAX_ROWS);
    let output = rows().map(output_of).reduce(common)?;
    let believed = match output {
        ClassOutput::Probabilities | ClassOutput::Independent => true,
        // One number that is no probability is a measurement; a bare list of them is one for each instance.
        ClassOutput::Logits => {
            hint == Hint::Classifier || (axes == 2 && classes > 1 && classes <= MAX_NAMELESS_CLASSES)
        }
    };
    if !believed {
        return None;
    }
    let read: Vec<_> = rows().filter_map(|row| of_row(row, output)).collect();
    let first = ranked(rows().next()?, output)?;
    let named = if hint == Hint::Classifier { 4 } else { 0 };
    let rank = named + 2 - output as u8;
    Some((rank, mean(&read, output, classes, first)?))
}

/// Integers are ids or measurements, but for rows of zeros and a single one.
fn is_one_hot(tensor: &Tensor<'_>, classes: usize) -> bool {
    let one_hot = |row: &[f64]| {
        row.iter().all(|v| *v == 0.0 || (*v - 1.0).abs() < f64::EPSILON)
            && (row.iter().sum::<f64>() - 1.0).abs() < f64::EPSILON
    };
    tensor.finite
        && tensor.elements == Elements::Whole
        && tensor.shape.len() == 2
        && classes > 1
        && tensor.values.chunks_exact(classes).take(MAX_ROWS).all(one_hot)
}

fn output_of(row: &[f64]) -> ClassOutput {
    let unit = row.iter().all(|p| (0.0..=1.0 + SUM_TOLERANCE).contains(p));
    let whole = (row.iter().sum::<f64>() - 1.0).abs() <= SUM_TOLERANCE;
    match (unit, row.len() > 1 && whole) {
        (false, _) => ClassOutput::Logits,
        (true, true) => ClassOutput::Probabilities,
        (true, false) => ClassOutput::Independent,
    }
}

/// What rows are of which one is this and one that: raw scores may lie between 0 and 1, and independent
/// labels may happen to add up to 1.
fn common(a: ClassOutput, b: ClassOutput) -> ClassOutput {
    match (a, b) {
        _ if a == b => a,
        (ClassOutput::Logits, _) | (_, ClassOutput::Logits) => ClassOutput::Logits,
        _ => ClassOutput::Independent,
    }
}

/// Probabilities of a row; of a single yes/no score both sides.
fn probabilities(row: &[f64], output: ClassOutput) -> Option<Vec<f64>> {
    let clamped = || row.iter().map(|p| p.clamp(0.0, 1.0)).collect::<Vec<_>>();
    match (output, row) {
        (ClassOutput::Logits, [one]) => {
            let yes = 1.0 / (1.0 + (-one).exp());
            Some(vec![1.0 - yes, yes])
        }
        (ClassOutput::Logits, _) => entropy::softmax(row),
        (ClassOutput::Independent, [one]) => Some(vec![1.0 - one.clamp(0.0, 1.0), one.clamp(0.0, 1.0)]),
        _ => Some(clamped()),
    }
}

fn of_row(row: &[f64], output: ClassOutput) -> Option<Row> {
    let p = probabilities(row, output)?;
    if output == ClassOutput::Independent && row.len() > 1 {
        let entropy = entropy::binary_mean(&p)?;
        let (first, second) = top_two(&p);
        let ratio = Some(entropy / std::f64::consts::LN_2);
        return Some(Row { entropy, ratio, confidence: first, margin: first - second });
    }
    let seen = entropy::categorical(&p)?;
    let ratio = (p.len() > 1).then_some(seen.normalised);
    Some(Row { entropy: seen.entropy, ratio, confidence: seen.confidence, margin: seen.margin })
}

fn top_two(p: &[f64]) -> (f64, f64) {
    p.iter().fold(
        (0.0, 0.0),
        |(first, second), p| {
            if *p > first { (*p, first) } else { (first, f64::max(second, *p)) }
        },
    )
}

fn ranked(row: &[f64], output: ClassOutput) -> Option<Vec<(String, f64)>> {
    let mut all: Vec<_> = probabilities(row, output)?.into_iter().enumerate().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    Some(all.into_iter().take(MAX_KEPT).map(|(i, p)| (i.to_string(), p)).collect())
}

#[allow(clippy::cast_precision_loss)] // a few hundred rows
fn mean(rows: &[Row], output: ClassOutput, count: usize, first: Vec<(String, f64)>) -> Option<Classes> {
    let n = rows.len() as f64;
    let over = |of: fn(&Row) -> f64| rows.iter().map(of).sum::<f64>() / n;
    let ratios: Option<f64> = rows.iter().map(|r| r.ratio).sum();
    (!rows.is_empty()).then(|| Classes {
        output,
        entropy: over(|r| r.entropy),
        ratio: ratios.map(|sum| sum / n),
        confidence: over(|r| r.confidence),
        margin: over(|r| r.margin),
        count,
        first,
    })
}

/// One entry of Triton's classification extension.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scored<'a> {
    score: f64,
    index: usize,
    label: Option<&'a str>,
}

/// `score:index` or `score:index:label`; the label itself may hold colons.
fn scored(text: &str) -> Option<Scored<'_>> {
    let mut parts = text.splitn(3, ':');
    let score = parts.next()?.trim().parse().ok()?;
    let index = parts.next()?.trim().parse().ok()?;
    Some(Scored { score, index, label: parts.next().filter(|l| !l.is_empty()) })
}

/// What a tensor of texts says if it is the classification extension's: whether a score is not finite, the
/// top label, and the distribution where the scores tell it.
pub(super) fn of_texts(tensor: &Tensor<'_>) -> Option<(bool, String, Option<Classes>)> {
    let classes = (*tensor.shape.last()?).clamp(1, tensor.texts.len().max(1));
    let all: Vec<_> = tensor.texts.iter().map(|t| scored(t)).collect::<Option<_>>()?;
    let first = all.get(..classes)?;
    let label = |s: &Scored<'_>| s.label.map_or_else(|| s.index.to_string(), str::to_owned);
    let unfinite = all.iter().any(|s| !s.score.is_finite());
    let best = first.iter().max_by(|a, b| a.score.total_cmp(&b.score))?;
    let distribution = if unfinite { None } else { of_scored(&all, classes, label) };
    Some((unfinite, label(best), distribution))
}

/// The few best of all classes: probabilities say what the rest is worth together, raw scores do not.
fn of_scored(all: &[Scored<'_>], classes: usize, label: impl Fn(&Scored<'_>) -> String) -> Option<Classes> {
    let complete = |row: &[Scored<'_>]| {
        let mut seen: Vec<_> = row.iter().map(|s| s.index).collect();
        seen.sort_unstable();
        seen.into_iter().eq(0..row.len())
    };
    let scores = |row: &[Scored<'_>]| row.iter().map(|s| s.score).collect::<Vec<f64>>();
    let rows: Vec<_> = all.chunks_exact(classes).take(MAX_ROWS).collect();
    let is_complete = rows.iter().all(|row| complete(row));
    let within = |row: &&[Scored<'_>]| {
        let p = scores(row);
        p.iter().all(|p| (0.0..=1.0).contains(p)) && p.iter().sum::<f64>() <= 1.0 + SUM_TOLERANCE
    };
    let output = match rows.iter().map(|row| output_of(&scores(row))).reduce(common)? {
        ClassOutput::Independent if rows.iter().all(within) && !is_complete => ClassOutput::Probabilities,
        output => output,
    };
    if output != ClassOutput::Probabilities && !is_complete {
        return None;
    }
    let read = |row: &[Scored<'_>]| {
        if is_complete {
            return of_row(&scores(row), output);
        }
        let mut logprobs: Vec<f64> = row.iter().map(|s| s.score.max(f64::MIN_POSITIVE).ln()).collect();
        logprobs.sort_by(|a, b| b.total_cmp(a));
        let (confidence, second) = top_two(&scores(row));
        let entropy = entropy::position(&logprobs, None)?.lumped;
        Some(Row { entropy, ratio: None, confidence, margin: confidence - second })
    };
    let first_row = rows.first()?;
    let p = if is_complete { probabilities(&scores(first_row), output)? } else { scores(first_row) };
    let mut first: Vec<_> = first_row.iter().map(label).zip(p).collect();
    first.sort_by(|a, b| b.1.total_cmp(&a.1));
    first.truncate(MAX_KEPT);
    mean(&rows.iter().filter_map(|row| read(row)).collect::<Vec<_>>(), output, classes, first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(name: &str, shape: &[usize], values: &[f64]) -> Option<Classes> {
        let tensor = Tensor {
            name,
            elements: Elements::Real,
            shape,
            values,
            texts: &[],
            finite: values.iter().all(|v| v.is_finite()),
        };
        of_numbers(&tensor).map(|(_, classes)| classes)
    }

    fn texts(list: &[&str]) -> Option<(bool, String, Option<Classes>)> {
        let texts: Vec<String> = list.iter().map(|t| (*t).to_owned()).collect();
        let shape = [1, texts.len()];
        of_texts(&Tensor {
            name: "p",
            elements: Elements::Text,
            shape: &shape,
            values: &[],
            texts: &texts,
            finite: true,
        })
    }

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn values_tell_probabilities_labels_and_raw_scores_apart() {
        let output = |values: &[f64]| numbers("y", &[1, values.len()], values).map(|c| c.output);
        assert_eq!(output(&[0.1, 0.9]), Some(ClassOutput::Probabilities));
        assert_eq!(output(&[0.3, 0.9]), Some(ClassOutput::Independent));
        assert_eq!(output(&[0.7]), Some(ClassOutput::Independent));
        assert_eq!(output(&[-1.5, 2.0]), Some(ClassOutput::Logits));
        assert_eq!(output(&[-0.105, -2.303]), Some(ClassOutput::Logits), "log-probabilities");
        assert_eq!(output(&[3.7]), None, "a measurement");
        assert_eq!(output(&[f64::NAN, 1.0]), None);
    }

    #[test]
    fn raw_scores_and_log_probabilities_give_the_distribution_they_stand_for() {
        let p = numbers("y", &[1, 3], &[0.7, 0.2, 0.1]).expect("classes");
        for scores in [[0.7_f64, 0.2, 0.1].map(f64::ln), [0.7_f64, 0.2, 0.1].map(|p| p.ln() + 5.0)] {
            let seen = numbers("y", &[1, 3], &scores).expect("classes");
            assert!(near(seen.entropy, p.entropy) && near(seen.confidence, 0.7) && near(seen.margin, 0.5));
            assert!(near(seen.ratio.expect("known"), p.entropy / 3_f64.ln()));
            assert_eq!(seen.first[0].0, "0");
        }
    }

    #[test]
    fn independent_labels_have_their_mean_binary_entropy() {
        let seen = numbers("y", &[1, 3], &[0.5, 0.9, 0.2]).expect("classes");
        let binary = |p: f64| -p * p.ln() - (1.0 - p) * (1.0 - p).ln();
        assert!(near(seen.entropy, (binary(0.5) + binary(0.9) + binary(0.2)) / 3.0));
        assert!(near(seen.confidence, 0.9) && near(seen.margin, 0.4));
        let one = numbers("y", &[1, 1], &[0.2]).expect("classes");
        assert!(near(one.entropy, binary(0.2)) && near(one.confidence, 0.8) && near(one.margin, 0.6));
        assert_eq!(one.first[0].0, "0");
    }

    #[test]
    fn a_batch_counts_by_its_rows() {
        let seen = numbers("y", &[2, 2], &[1.0, 0.0, 0.5, 0.5]).expect("classes");
        assert!(near(seen.entropy, std::f64::consts::LN_2 / 2.0) && near(seen.confidence, 0.75));
        let mixed = numbers("y", &[2, 2], &[0.5, 0.5, 3.0, -1.0]).expect("classes");
        assert_eq!(mixed.output, ClassOutput::Logits, "one row of raw scores tells of all");
    }

    #[test]
    fn what_is_no_classifier_is_none() {
        assert_eq!(numbers("sentence_embedding", &[1, 3], &[0.2, -0.4, 0.9]), None);
        assert_eq!(numbers("y", &[1, 2, 2], &[0.2, 0.8, 0.5, 0.5]), None, "a row for each token");
        assert!(numbers("token_logits", &[1, 2, 2], &[1.2, 3.8, 2.5, 0.5]).is_some());
        assert_eq!(numbers("y", &[3], &[20.5, 21.0, 19.0]), None, "a measurement for each instance");
        assert_eq!(numbers("y", &[1, 0], &[]), None);
    }

    #[test]
    fn classification_strings_are_split_at_the_first_two_colons() {
        let (_, label, classes) = texts(&["0.860000:1:time: noon", "0.140000:0:other"]).expect("scored");
        let classes = classes.expect("a distribution");
        assert_eq!((label.as_str(), classes.output), ("time: noon", ClassOutput::Probabilities));
        assert!(near(classes.confidence, 0.86) && near(classes.margin, 0.72) && classes.ratio.is_some());
        assert_eq!(texts(&["3.5:7"]).map(|(_, label, classes)| (label, classes)), Some(("7".into(), None)));
        assert_eq!(texts(&["noon"]), None);
        assert_eq!(texts(&["nan:1:a"]).map(|(unfinite, ..)| unfinite), Some(true));
    }

    #[test]
    fn the_best_few_of_many_classes_say_what_the_rest_is_worth() {
        let (_, _, classes) = texts(&["0.6:40:a", "0.3:7:b"]).expect("scored");
        let classes = classes.expect("a distribution");
        let p = [0.6_f64, 0.3, 0.1];
        assert!(near(classes.entropy, -p.iter().map(|p| p * p.ln()).sum::<f64>()));
        assert_eq!((classes.ratio, classes.first.len()), (None, 2));
    }
}
