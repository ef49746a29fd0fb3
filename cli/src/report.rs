//! Results as people read them: their statistics, their values where they are few, and the best classes.

use crate::args::RunArgs;
use crate::output::{print_text, show_table, table, write_json};
use crate::range_checks::print_out_of_range;
use compiler::interpreter::NodeOutOfRange;
use compiler::tensor::Tensor;
use serde_json::{Value, json};
use std::path::Path;
use workbench::arrays::Named;
use workbench::classes::{classes_of, ranked};
use workbench::executor::Device;
use workbench::figures::shape;
use workbench::range_checks::out_of_range_json;
use workbench::{Error, Result};

/// Results of at most so many elements are shown whole.
const FEW: usize = 8;

/// Rows of a batch whose best classes are shown without `-v`.
const ROWS: usize = 8;

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
    let mut rows: Vec<Value> = outputs.iter().map(|(n, t)| statistics(n, t)).collect();
    if let Some(n) = top {
        let mut found = false;
        for (row, (_, t)) in rows.iter_mut().zip(outputs) {
            if let Some(classes) = classes_of(t) {
                found = true;
                row["top"] = best(t, classes, n, labels.as_deref()).into();
            }
        }
        if !found {
            let shapes: Vec<String> = outputs.iter().map(|(n, t)| format!("{n} {}", shape(t.shape()))).collect();
            return Err(Error::usage("--top is for results with one value for each class")
                .at(format!("results {}", shapes.join(", "))));
        }
    }
    let seed = random.then_some(a.common.seed);
    let mut json = json!({ "schema": 1, "model": a.model, "device": workbench::device::describe(device), "seed": seed, "outputs": rows });
    if let Some(found) = counted {
        json["out_of_range"] = out_of_range_json(found);
    }
    if write_json(&a.common, &json)? {
        return Ok(());
    }
    let (ranked, plain): (Vec<&Value>, Vec<&Value>) = rows.iter().partition(|r| r.get("top").is_some());
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

fn statistics(name: &str, t: &Tensor) -> Value {
    let v = t.to_f64_vec();
    let top = v.iter().enumerate().fold((0, f64::NEG_INFINITY), |b, (i, &x)| if x > b.1 { (i, x) } else { b });
    let low = v.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = v.iter().sum::<f64>() / v.len().max(1) as f64;
    let count = |f: fn(f64) -> bool| v.iter().filter(|&&x| f(x)).count();
    let mut row = json!({ "name": name, "dtype": t.dtype().name(), "shape": t.shape(), "mean": mean, "max": top.1, "argmax": top.0,
        "min": low, "nan": count(f64::is_nan), "inf": count(f64::is_infinite) });
    if v.len() <= FEW {
        row["values"] = json!(v);
    }
    row
}

/// Four significant digits, as short as they come.
fn short(v: &Value) -> String {
    match v.as_f64() {
        None => "-".into(),
        Some(v) if v == v.trunc() && v.abs() < 1e7 => format!("{v}"),
        Some(v) if (1e-3..1e7).contains(&v.abs()) => {
            let digits = (3 - v.abs().log10().floor() as i32).max(0) as usize;
            format!("{v:.digits$}")
        }
        Some(v) => format!("{v:.3e}"),
    }
}

fn dims(row: &Value) -> Vec<usize> {
    row["shape"].as_array().into_iter().flatten().filter_map(|d| d.as_u64().map(|d| d as usize)).collect()
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

fn show_statistics(rows: &[&Value]) -> Result<()> {
    let odd = rows.iter().any(|r| r["nan"] != 0 || r["inf"] != 0);
    let mut header = vec!["output", "dtype", "shape", "min", "mean", "max", "at"];
    if odd {
        header.extend(["nan", "inf"]);
    }
    let few = rows.iter().any(|r| r.get("values").is_some());
    if few {
        header.push("values");
    }
    let mut t = table(&header);
    for r in rows {
        let text = |k: &str| r[k].as_str().unwrap_or("").to_string();
        let dims = dims(r);
        let at = position(r["argmax"].as_u64().unwrap_or(0) as usize, &dims);
        let mut row = vec![text("name"), text("dtype"), shape(&dims), short(&r["min"]), short(&r["mean"])];
        row.extend([short(&r["max"]), at]);
        if odd {
            row.extend([r["nan"].to_string(), r["inf"].to_string()]);
        }
        if few {
            let values = r["values"].as_array().map(|v| v.iter().map(short).collect::<Vec<_>>().join(" "));
            row.push(values.unwrap_or_default());
        }
        t.add_row(row);
    }
    show_table(&t)
}

/// The `n` largest values of each row, with their share of the row's sum: the row's own where it is a distribution
/// already, else of its softmax.
fn best(t: &Tensor, classes: usize, n: usize, labels: Option<&[String]>) -> Vec<Value> {
    let values = t.to_f64_vec();
    let of_row = |row: &[f64]| {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().sum();
        let distribution = row.iter().all(|v| (0.0..=1.0).contains(v)) && (sum - 1.0).abs() < 1e-2;
        let share = |v: f64| if distribution { v } else { (v - largest).exp() };
        let total: f64 = row.iter().map(|&v| share(v)).sum();
        let one = |&i: &usize| {
            let label = labels.and_then(|l| l.get(i));
            json!({ "class": i, "value": row[i], "probability": share(row[i]) / total, "label": label })
        };
        Value::from(ranked(row).iter().take(n).map(one).collect::<Vec<_>>())
    };
    values.chunks_exact(classes).map(of_row).collect()
}

fn show_best(r: &Value, labelled: bool, rows: usize) -> Result<()> {
    let all = r["top"].as_array().map_or(&[][..], Vec::as_slice);
    for (i, row) in all.iter().enumerate().take(rows) {
        let mut header = vec!["class", "value", "probability"];
        if labelled {
            header.push("label");
        }
        let image = if all.len() > 1 { format!(", image {i}") } else { String::new() };
        print_text(&format!("{} {}{image}", r["name"].as_str().unwrap_or(""), shape(&dims(r))))?;
        let mut t = table(&header);
        for e in row.as_array().into_iter().flatten() {
            let percent = e["probability"].as_f64().map_or("-".into(), |p| format!("{:.1}%", 100.0 * p));
            let mut line = vec![e["class"].to_string(), short(&e["value"]), percent];
            if labelled {
                line.push(e["label"].as_str().unwrap_or("(no label)").to_string());
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
    let json: Value = serde_json::from_str(&text).map_err(|e| bad(e.to_string()))?;
    let name = |v: &Value| match v {
        Value::Array(list) => list.last().and_then(|v| v.as_str()).map(String::from),
        v => v.as_str().map(String::from),
    };
    let wrong = || bad("a label is neither a text nor a list that ends with one".into());
    match &json {
        Value::Array(list) => list.iter().map(|v| name(v).ok_or_else(wrong)).collect(),
        Value::Object(map) => {
            let mut out = Vec::new();
            for (class, v) in map {
                let class: usize = class.parse().map_err(|_| bad(format!("`{class}` is no class number")))?;
                if class >= 1 << 20 {
                    return Err(bad(format!("class {class} is beyond any network")));
                }
                out.resize(out.len().max(class + 1), String::new());
                out[class] = name(v).ok_or_else(wrong)?;
            }
            Ok(out)
        }
        _ => Err(bad("neither a list nor an object".into())),
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
        assert_eq!((&rows[0][0]["class"], &rows[0][1]["class"]), (&json!(1), &json!(0)));
        assert!((rows[0][0]["probability"].as_f64().expect("a number") - 0.5).abs() < 1e-6);
        let rows = best(&t(&[1, 2], vec![0.25, 0.75]), 2, 1, None);
        assert!((rows[0][0]["probability"].as_f64().expect("a number") - 0.75).abs() < 1e-6, "a distribution stays");
    }

    #[test]
    fn numbers_and_positions() {
        assert_eq!(position(285, &[1, 1000]), "[0, 285]");
        assert_eq!(
            [0.0, 12.0, 0.123456, 1234.5, 1e-9].map(|v| short(&json!(v))),
            ["0", "12", "0.1235", "1234", "1.000e-9"]
        );
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
