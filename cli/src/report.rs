//! Results as people read them: their statistics, their values where they are few, and the best classes.

use crate::args::RunArgs;
use crate::output::{print_text, show_table, table, write_json};
use crate::range_checks::print_out_of_range;
use compiler::interpreter::NodeOutOfRange;
use compiler::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use workbench::arrays::Named;
use workbench::classes::{classes_of, ranked};
use workbench::device::{DeviceRecord, describe};
use workbench::executor::Device;
use workbench::figures::shape;
use workbench::record::Versioned;
use workbench::{Error, Result};

/// Results of at most so many elements are shown whole.
const FEW: usize = 8;

/// Rows of a batch whose best classes are shown without `-v`.
const ROWS: usize = 8;

/// The results of a run.
#[derive(Serialize, JsonSchema)]
pub struct RunRecord {
    /// As it was given.
    model: String,
    /// The device.
    device: DeviceRecord,
    /// Of random inputs; null where inputs are given.
    seed: Option<u64>,
    /// Each result.
    outputs: Vec<OutputRecord>,
    /// With `--check-indices`: nodes that read an index outside of a dimension or divide an integer by 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    out_of_range: Option<Vec<NodeOutOfRange>>,
}

/// A result.
#[derive(Serialize, JsonSchema)]
struct OutputRecord {
    /// Its name.
    name: String,
    /// Of an element.
    dtype: &'static str,
    /// In elements.
    shape: Vec<usize>,
    /// Null where it is not a number.
    #[schemars(with = "Option<f64>")]
    mean: f64,
    /// The largest.
    #[schemars(with = "Option<f64>")]
    max: f64,
    /// Position of the largest, all dimensions as one.
    argmax: usize,
    /// The smallest.
    #[schemars(with = "Option<f64>")]
    min: f64,
    /// Elements that are no numbers.
    nan: usize,
    /// Elements that are infinite.
    inf: usize,
    /// All of them, where they are few.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<f64>>,
    /// With `--top N`, of a result that holds classes: N for each image.
    #[serde(skip_serializing_if = "Option::is_none")]
    top: Option<Vec<Vec<ClassRecord>>>,
}

/// A class.
#[derive(Serialize, JsonSchema)]
struct ClassRecord {
    /// Its number.
    class: usize,
    /// The result's.
    #[schemars(with = "Option<f64>")]
    value: f64,
    /// The result's own where it is a distribution, else its softmax.
    #[schemars(with = "Option<f64>")]
    probability: f64,
    /// From `--labels`.
    label: Option<String>,
}

/// Prints the results of a run, or their JSON; `random` says that the inputs were, `counted` what is out of range in
/// it.
///
/// # Errors
/// `--top` without a result that holds classes; labels that cannot be read.
pub fn report(
    a: &RunArgs,
    device: &Device,
    outputs: &Named,
    random: bool,
    counted: Option<&[NodeOutOfRange]>,
) -> Result<()> {
    let labels = a.labels.as_deref().map(read_labels).transpose()?;
    let top = a.top.or(labels.as_ref().map(|_| 5)).map(|n| n as usize);
    let mut rows: Vec<OutputRecord> = outputs.iter().map(|(n, t)| statistics(n, t)).collect();
    if let Some(n) = top {
        let mut found = false;
        for (row, (_, t)) in rows.iter_mut().zip(outputs) {
            if let Some(classes) = classes_of(t) {
                found = true;
                row.top = Some(best(t, classes, n, labels.as_deref()));
            }
        }
        if !found {
            let shapes: Vec<String> = outputs.iter().map(|(n, t)| format!("{n} {}", shape(t.shape()))).collect();
            return Err(Error::usage("--top is for results with one value for each class")
                .at(format!("results {}", shapes.join(", "))));
        }
    }
    let seed = random.then_some(a.common.seed);
    let (model, device, out_of_range) = (a.model.clone(), describe(device), counted.map(<[_]>::to_vec));
    let record = RunRecord { model, device, seed, outputs: rows, out_of_range };
    if write_json(&a.common, &Versioned::new(&record))? {
        return Ok(());
    }
    let (ranked, plain): (Vec<_>, Vec<_>) = record.outputs.iter().partition(|r| r.top.is_some());
    if !plain.is_empty() {
        show_statistics(&plain)?;
    }
    for r in ranked {
        show_best(r, labels.is_some(), if a.common.verbose > 0 { usize::MAX } else { ROWS })?;
    }
    if let Some(found) = counted {
        print_out_of_range(found)?;
    }
    match seed {
        Some(s) => print_text(&format!("inputs: random, seed {s}")),
        None => Ok(()),
    }
}

fn statistics(name: &str, t: &Tensor) -> OutputRecord {
    let v = t.to_f64_vec();
    let top = v.iter().enumerate().fold((0, f64::NEG_INFINITY), |b, (i, &x)| if x > b.1 { (i, x) } else { b });
    let low = v.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = v.iter().sum::<f64>() / v.len().max(1) as f64;
    let count = |f: fn(f64) -> bool| v.iter().filter(|&&x| f(x)).count();
    OutputRecord {
        name: name.into(),
        dtype: t.dtype().name(),
        shape: t.shape().to_vec(),
        mean,
        max: top.1,
        argmax: top.0,
        min: low,
        nan: count(f64::is_nan),
        inf: count(f64::is_infinite),
        values: (v.len() <= FEW).then_some(v),
        top: None,
    }
}

/// Four significant digits, as short as they come.
fn short(v: f64) -> String {
    match v {
        v if !v.is_finite() => "-".into(),
        v if v == v.trunc() && v.abs() < 1e7 => format!("{v}"),
        v if (1e-3..1e7).contains(&v.abs()) => {
            let digits = (3 - v.abs().log10().floor() as i32).max(0) as usize;
            format!("{v:.digits$}")
        }
        v => format!("{v:.3e}"),
    }
}

/// `[0, 285]`: a position in a tensor.
fn position(mut flat: usize, shape: &[usize]) -> String {
    let mut out = vec![0; shape.len()];
    for (o, &d) in out.iter_mut().zip(shape).rev() {
        *o = flat % d.max(1);
        flat /= d.max(1);
    }
    format!("{out:?}")
}

fn show_statistics(rows: &[&OutputRecord]) -> Result<()> {
    let odd = rows.iter().any(|r| r.nan != 0 || r.inf != 0);
    let mut header = vec!["output", "dtype", "shape", "min", "mean", "max", "at"];
    if odd {
        header.extend(["nan", "inf"]);
    }
    let few = rows.iter().any(|r| r.values.is_some());
    if few {
        header.push("values");
    }
    let mut t = table(&header);
    for r in rows {
        let mut row = vec![r.name.clone(), r.dtype.to_string(), shape(&r.shape)];
        row.extend([r.min, r.mean, r.max].map(short));
        row.push(position(r.argmax, &r.shape));
        if odd {
            row.extend([r.nan.to_string(), r.inf.to_string()]);
        }
        if few {
            row.push(r.values.iter().flatten().map(|&v| short(v)).collect::<Vec<_>>().join(" "));
        }
        t.add_row(row);
    }
    show_table(&t)
}

/// The `n` largest values of each row, with their share of the row's sum: the row's own where it is a distribution
/// already, else of its softmax.
fn best(t: &Tensor, classes: usize, n: usize, labels: Option<&[String]>) -> Vec<Vec<ClassRecord>> {
    let values = t.to_f64_vec();
    let of_row = |row: &[f64]| {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().sum();
        let distribution = row.iter().all(|v| (0.0..=1.0).contains(v)) && (sum - 1.0).abs() < 1e-2;
        let share = |v: f64| if distribution { v } else { (v - largest).exp() };
        let total: f64 = row.iter().map(|&v| share(v)).sum();
        let one = |&i: &usize| {
            let label = labels.and_then(|l| l.get(i)).cloned();
            ClassRecord { class: i, value: row[i], probability: share(row[i]) / total, label }
        };
        ranked(row).iter().take(n).map(one).collect()
    };
    values.chunks_exact(classes).map(of_row).collect()
}

fn show_best(r: &OutputRecord, labelled: bool, rows: usize) -> Result<()> {
    let all = r.top.as_deref().unwrap_or_default();
    for (i, row) in all.iter().enumerate().take(rows) {
        let mut header = vec!["class", "value", "probability"];
        if labelled {
            header.push("label");
        }
        let image = if all.len() > 1 { format!(", image {i}") } else { String::new() };
        print_text(&format!("{} {}{image}", r.name, shape(&r.shape)))?;
        let mut t = table(&header);
        for e in row {
            let percent = match e.probability.is_finite() {
                true => format!("{:.1}%", 100.0 * e.probability),
                false => "-".into(),
            };
            let mut line = vec![e.class.to_string(), short(e.value), percent];
            if labelled {
                line.push(e.label.clone().unwrap_or("(no label)".into()));
            }
            t.add_row(line);
        }
        show_table(&t)?;
    }
    match all.len() > rows {
        true => print_text(&format!("... {} more images (-v shows them)", all.len() - rows)),
        false => Ok(()),
    }
}

/// Names of classes: one a line; or JSON, a list of names, or an object from class to name or to a list that ends with
/// it.
fn read_labels(path: &Path) -> Result<Vec<String>> {
    let place = path.display().to_string();
    let text = weft::plain_files::read_text(path).map_err(|e| Error::input(format!("cannot read {place}: {e}")))?;
    if !text.trim_start().starts_with(['[', '{']) {
        return Ok(text.lines().map(|l| l.trim().to_string()).collect());
    }
    let bad = |why: String| Error::input(format!("{place} holds no labels: {why}"));
    let form = "a list of labels, or an object from class to label; a label is a text or a list that ends with one";
    let read = serde_json::from_str(&text);
    match read.map_err(|e| bad(if e.is_data() { format!("it is not {form}") } else { e.to_string() }))? {
        Labels::List(list) => Ok(list.into_iter().map(Label::name).collect()),
        Labels::ByClass(map) => {
            let mut out = Vec::new();
            for (class, label) in map {
                let class: usize = class.parse().map_err(|_| bad(format!("`{class}` is no class number")))?;
                if class >= 1 << 20 {
                    return Err(bad(format!("class {class} is beyond any network")));
                }
                out.resize(out.len().max(class + 1), String::new());
                out[class] = label.name();
            }
            Ok(out)
        }
    }
}

/// A file of labels.
#[derive(Deserialize)]
#[serde(untagged)]
enum Labels {
    List(Vec<Label>),
    ByClass(BTreeMap<String, Label>),
}

/// A label: a text, or the text behind the other words of a list.
#[derive(Deserialize)]
#[serde(untagged)]
enum Label {
    Text(String),
    List(Vec<String>),
}

impl Label {
    fn name(self) -> String {
        match self {
            Label::Text(text) => text,
            Label::List(list) => list.into_iter().next_back().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_and_shares() {
        let t = |shape: &[usize], v: Vec<f32>| Tensor::from_vec(shape.to_vec(), v);
        assert_eq!(classes_of(&t(&[2, 3, 1, 1], vec![0.0; 6])), Some(3));
        assert_eq!(classes_of(&t(&[4], vec![0.0; 4])), Some(4));
        assert_eq!(classes_of(&t(&[1, 2, 3], vec![0.0; 6])), None);
        let rows = best(&t(&[1, 3], vec![0.0, 2f32.ln(), 0.0]), 3, 2, None);
        assert_eq!((rows[0][0].class, rows[0][1].class), (1, 0));
        assert!((rows[0][0].probability - 0.5).abs() < 1e-6);
        let rows = best(&t(&[1, 2], vec![0.25, 0.75]), 2, 1, None);
        assert!((rows[0][0].probability - 0.75).abs() < 1e-6, "a distribution stays");
    }

    #[test]
    fn numbers_and_positions() {
        assert_eq!(position(285, &[1, 1000]), "[0, 285]");
        assert_eq!([0.0, 12.0, 0.123456, 1234.5, 1e-9].map(short), ["0", "12", "0.1235", "1234", "1.000e-9"]);
    }

    #[test]
    fn labels_in_every_form() {
        let file = |text: &str| {
            let path = std::env::temp_dir().join(format!("weft-labels-{}-{}", text.len(), std::process::id()));
            std::fs::write(&path, text).expect("writes");
            let labels = read_labels(&path);
            std::fs::remove_file(&path).expect("removes");
            labels.map_err(|e| e.message)
        };
        assert_eq!(file("cat\ndog\n"), Ok(vec!["cat".into(), "dog".into()]));
        assert_eq!(file("[\"cat\", \"dog\"]"), Ok(vec!["cat".into(), "dog".into()]));
        assert_eq!(file("{\"1\": [\"n0\", \"dog\"], \"0\": \"cat\"}"), Ok(vec!["cat".into(), "dog".into()]));
        assert!(file("{\"x\": \"cat\"}").is_err() && file("[1]").is_err());
    }
}
