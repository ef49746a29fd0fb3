//! `weft compare --data DIR`: runs one model on a folder of inputs, and reports the distribution of its differences
//! from the reference.

use super::side::{Reference, Side, differences, judge_all_in_f32, reference_of};
use super::with_name;
use crate::args::{Common, CompareArgs};
use crate::error::{CliError, CliResult, Code};
use crate::executor::{Device, execute_with, pipeline_for, profile_on};
use crate::inputs::{Files, in_folder};
use crate::models::{inputs_for, load};
use crate::node_errors::{NodeError, node_errors};
use crate::output::{Progress, log, print_text, show_table, table, verdict, write_json};
use crate::report::{best_classes, classes_of};
use comfy_table::Cell;
use compiler::agreement::Difference;
use compiler::tensor::Tensor;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Inputs that the table of the worst ones names.
const WORST: usize = 5;

/// The best class of one row of a result: here, and in the reference.
#[derive(Clone, Copy)]
struct Row {
    got: usize,
    expected: usize,
}

/// One result for one input.
struct Output {
    difference: Difference,
    /// Of a result with one value for each class.
    rows: Option<Vec<Row>>,
}

/// The result for one input.
struct Case {
    file: PathBuf,
    outputs: Vec<Output>,
}

impl Case {
    fn name(&self) -> String {
        self.file.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
    }
    fn pass(&self) -> bool {
        self.outputs.iter().all(|o| o.difference.pass)
    }
    fn most(&self, of: fn(&Difference) -> f64) -> f64 {
        self.outputs.iter().map(|o| of(&o.difference)).fold(0.0, f64::max)
    }
    /// The share of the tolerance that the worst output takes.
    fn used(&self) -> f64 {
        self.most(|d| d.used)
    }
    /// The rows whose best class differs, with their position; none where no output holds classes.
    fn misses(&self) -> Option<Vec<(usize, Row)>> {
        let mut lists = self.outputs.iter().filter_map(|o| o.rows.as_ref()).peekable();
        lists.peek()?;
        let differ = |list: &Vec<Row>| -> Vec<(usize, Row)> {
            list.iter().copied().enumerate().filter(|(_, r)| r.got != r.expected).collect()
        };
        Some(lists.flat_map(differ).collect())
    }
    fn to_json(&self) -> Value {
        let misses = self.misses().map(|list| {
            let one = |&(i, r): &(usize, Row)| json!({ "row": i, "got": r.got, "expected": r.expected });
            list.iter().map(one).collect::<Vec<_>>()
        });
        json!({ "input": self.name(), "pass": self.pass(), "tolerance_used": self.used(), "rel_l2": self.most(|d| d.rel_l2),
            "max_abs": self.most(|d| d.max_abs), "top1_differs": misses })
    }
}

/// Everything that was compared.
struct Cases {
    /// The worst first.
    list: Vec<Case>,
    names: Vec<String>,
    sides: [Side; 2],
    /// Files of the folder that are no inputs.
    skipped: usize,
}

/// Compares over all inputs in `folder`.
///
/// # Errors
/// A folder without inputs, inputs that do not fit, and results beyond the tolerance.
pub fn execute(a: &CompareArgs, folder: &Path) -> CliResult<()> {
    if !["reference", "fp32"].contains(&a.against.as_str()) {
        return Err(CliError::usage(format!("--against {}: over many inputs, it needs cpu or fp32", a.against)));
    }
    let (files, skipped) = in_folder(folder, &a.input)?;
    if skipped > 0 {
        let what = if skipped == 1 { "1 entry".to_string() } else { format!("{skipped} entries") };
        log(&a.common, format!("skipped: {what} of {}, no .npz, .npy, .png or .jpg files", folder.display()));
    }
    let device = crate::executor::open_device(&a.common)?;
    let first = Files::new(&a.input, &a.model, &a.common).read(&files[0])?;
    let module = load(&a.model, &a.common, Some(&first))?;
    // How images are prepared is said once.
    let silent = Common { quiet: true, ..a.common.clone() };
    let reader = Files::new(&a.input, &a.model, &silent);
    let read = |file: &Path| -> CliResult<Vec<Tensor>> {
        inputs_for(&module, Some(&reader.read(file)?), &a.common).map_err(|e| e.at(file.display().to_string()))
    };
    let inputs = read(&files[0])?;
    let profile = profile_on(&a.common, &device)?;
    let pipeline = pipeline_for(&module, &a.common, &profile, &inputs)?;
    let executor = execute_with(module.clone(), pipeline.clone(), &a.common, &device, &profile, false)?;
    let mixed = executor.is_mixed();
    if judge_all_in_f32(a, &device, mixed)? {
        return Ok(());
    }
    let reference = Reference::open(a, &module, &device, &inputs)?;
    let mut cases = Cases { list: vec![], names: executor.output_names(), sides: Default::default(), skipped };
    let mut progress = Progress::new(&a.common, &[]);
    for (i, file) in files.iter().enumerate() {
        progress.report("inputs", i, files.len());
        let inputs = read(file)?;
        let (got, place) = executor.run_unchecked(&inputs)?;
        let result = Side::of_run(&device, place, if mixed { &a.common.amp } else { "off" });
        let (want, against) = reference.run(&silent, &module, &device, &inputs, &result)?;
        cases.sides = [result, against];
        let rows = differences(a, &cases.names, &got, &want, mixed)?;
        let mut outputs = Vec::with_capacity(rows.len());
        for ((name, difference), t) in rows.into_iter().zip(&got) {
            outputs.push(Output { difference, rows: rows_of(t, reference_of(&want, &name)?) });
        }
        cases.list.push(Case { file: file.clone(), outputs });
    }
    drop((progress, executor, reference));
    cases.list.sort_by(|x, y| y.used().total_cmp(&x.used()));
    let passed = cases.list.iter().filter(|c| c.pass()).count();
    // Looking at every node costs a run on the interpreter.
    let look = passed < cases.list.len() || a.common.verbose > 0 || a.common.json.is_some();
    let nodes = match look {
        true => {
            let along = CompareArgs { cumulative: true, ..a.clone() };
            node_errors(&along, &module, &read(&cases.list[0].file)?, &device, &pipeline)?
        }
        false => vec![],
    };
    report(a, folder, &device, &cases, look.then_some(&nodes))
}

/// The best class of each row of `got` and of `want`, where they hold one value for each class.
fn rows_of(got: &Tensor, want: &Tensor) -> Option<Vec<Row>> {
    let classes = classes_of(want).filter(|&c| c > 1 && got.shape() == want.shape() && want.dtype().is_float())?;
    let pairs = best_classes(got, classes).into_iter().zip(best_classes(want, classes));
    Some(pairs.map(|(got, expected)| Row { got, expected }).collect())
}

/// Percentiles by nearest rank: of a hundred values, `p90` is the ninetieth.
fn percentiles(mut values: Vec<f64>) -> Value {
    values.sort_by(f64::total_cmp);
    let at = |p: usize| values[(values.len() * p).div_ceil(100).max(1) - 1];
    json!({ "p50": at(50), "p90": at(90), "p99": at(99), "max": at(100) })
}

/// The figures of a difference whose distribution is shown: their names, for people too.
const FIGURES: [(&str, &str, fn(&Difference) -> f64); 3] = [
    ("rel_l2", "rel l2", |d| d.rel_l2),
    ("max_abs", "max abs", |d| d.max_abs),
    ("tolerance_used", "of the tolerance", |d| d.used),
];

/// One output over all inputs.
fn summary(name: &str, i: usize, cases: &[Case]) -> Value {
    let of = || cases.iter().map(|c| &c.outputs[i]);
    let rows: Vec<Row> = of().flat_map(|o| o.rows.iter().flatten().copied()).collect();
    let same = rows.iter().filter(|r| r.got == r.expected).count();
    let top1 = (!rows.is_empty())
        .then(|| json!({ "rows": rows.len(), "same": same, "agreement": same as f64 / rows.len() as f64 }));
    let mut out = json!({ "name": name, "passed": of().filter(|o| o.difference.pass).count(), "top1": top1 });
    for (key, _, which) in FIGURES {
        out[key] = percentiles(of().map(|o| which(&o.difference)).collect());
    }
    out
}

fn report(
    a: &CompareArgs,
    folder: &Path,
    device: &Device,
    cases: &Cases,
    nodes: Option<&Vec<NodeError>>,
) -> CliResult<()> {
    let (list, [result, against]) = (&cases.list, &cases.sides);
    let summaries: Vec<Value> = cases.names.iter().enumerate().map(|(i, n)| summary(n, i, list)).collect();
    let (passed, worst) = (list.iter().filter(|c| c.pass()).count(), &list[0]);
    let pass = passed == list.len();
    let departs = nodes.into_iter().flatten().find(|n| !n.difference.pass);
    let named = |n: &NodeError| with_name(&n.name, Some(&n.op), &n.difference);
    let outputs = cases.names.iter().zip(&worst.outputs);
    let json = json!({
        "schema": 1, "model": a.model, "pass": pass, "device": crate::device::describe(device), "result": result, "against": against,
        "outputs": outputs.map(|(n, o)| with_name(n, None, &o.difference)).collect::<Vec<_>>(),
        "nodes": nodes.into_iter().flatten().map(named).collect::<Vec<_>>(),
        "first_failing": departs.filter(|_| !pass).map(|n| n.name.clone()),
        "data": {
            "folder": folder.display().to_string(), "inputs": list.len(), "skipped": cases.skipped, "passed": passed,
            "outputs": summaries, "worst": list.iter().take(WORST).map(Case::to_json).collect::<Vec<_>>(),
            "first_departing": departs.map(named),
        },
    });
    if !write_json(&a.common, &json)? {
        print_text(&format!("{} against {}", result.name(), against.name()))?;
        print_text(&format!("{passed} of {} inputs agree within the tolerance", list.len()))?;
        print_distribution(&summaries, list.len())?;
        print_worst(list)?;
        if let Some(text) = nodes.map(|_| departure(&worst.name(), departs)) {
            print_text(&text)?;
        }
    }
    if pass {
        return Ok(());
    }
    let why = worst.outputs.iter().find(|o| !o.difference.pass).map_or("", |o| o.difference.why.as_str());
    let text =
        format!("results differ on {} of {} inputs; worst {}: {why}", list.len() - passed, list.len(), worst.name());
    Err(CliError::new(Code::Check, text))
}

/// Where the errors begin to leave the tolerance.
fn departure(input: &str, node: Option<&NodeError>) -> String {
    match node {
        Some(n) => format!("on {input}, the first node that departs is {} ({}): {}", n.name, n.op, n.difference.why),
        None => format!("on {input}, no node departs beyond the tolerance"),
    }
}

fn print_distribution(summaries: &[Value], inputs: usize) -> CliResult<()> {
    let number = |v: &Value| v.as_f64().map_or_else(|| "inf".into(), |x| format!("{x:.2e}"));
    let mut t = table(&["", "output", "agree", "top 1", "error", "p50", "p90", "p99", "max"]);
    for s in summaries {
        let top = &s["top1"];
        let passed = s["passed"].as_u64().unwrap_or(0) as usize;
        for (i, (key, label, _)) in FIGURES.iter().enumerate() {
            let mut row = match i {
                0 => vec![
                    verdict(passed == inputs),
                    s["name"].as_str().unwrap_or_default().into(),
                    format!("{passed} of {inputs}").into(),
                    if top.is_null() { "-".into() } else { format!("{} of {}", top["same"], top["rows"]).into() },
                ],
                _ => vec![Cell::new(""); 4],
            };
            row.push((*label).into());
            row.extend(["p50", "p90", "p99", "max"].map(|p| number(&s[key][p]).into()));
            t.add_row(row);
        }
    }
    show_table(&t)
}

fn print_worst(cases: &[Case]) -> CliResult<()> {
    let mut t = table(&["", "worst inputs", "of the tolerance", "rel l2", "max abs", "top 1"]);
    for c in cases.iter().take(WORST) {
        let top = c.misses().map(|list| match list.as_slice() {
            [] => "same".to_string(),
            list => {
                list.iter().map(|(_, r)| format!("{}, expected {}", r.got, r.expected)).collect::<Vec<_>>().join("; ")
            }
        });
        t.add_row([
            verdict(c.pass()),
            c.name().into(),
            format!("{:.2}", c.used()).into(),
            format!("{:.2e}", c.most(|d| d.rel_l2)).into(),
            format!("{:.2e}", c.most(|d| d.max_abs)).into(),
            top.unwrap_or_else(|| "-".into()).into(),
        ]);
    }
    show_table(&t)
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::agreement::{Tolerance, agree};

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let p = percentiles((1..=200).rev().map(f64::from).collect());
        assert_eq!(p, json!({ "p50": 100.0, "p90": 180.0, "p99": 198.0, "max": 200.0 }));
        assert_eq!(percentiles(vec![3.0]), json!({ "p50": 3.0, "p90": 3.0, "p99": 3.0, "max": 3.0 }));
    }

    fn case(file: &str, got: &[f32], want: &[f32]) -> Case {
        let t = |v: &[f32]| Tensor::from_vec(vec![1, v.len()], v.to_vec());
        let difference = agree(&t(got), &t(want), &Tolerance::uniform(0.1));
        Case { file: file.into(), outputs: vec![Output { difference, rows: rows_of(&t(got), &t(want)) }] }
    }

    #[test]
    fn classes_are_compared_row_by_row() {
        let cases = [case("d/a.npy", &[1.0, 2.0], &[1.0, 2.0]), case("d/b.npy", &[1.0, 1.01], &[1.01, 1.0])];
        let s = summary("y", 0, &cases);
        assert_eq!(s["top1"], json!({ "rows": 2, "same": 1, "agreement": 0.5 }));
        assert_eq!((&s["passed"], &s["max_abs"]["p50"]), (&json!(2), &json!(0.0)), "{s}");
        assert_eq!(cases[1].to_json()["top1_differs"], json!([{ "row": 0, "got": 1, "expected": 0 }]));
        assert_eq!(cases[0].to_json()["top1_differs"], json!([]));
        let map = Tensor::from_vec(vec![1, 2, 2], vec![0f32; 4]);
        assert!(rows_of(&map, &map).is_none(), "a map has no classes");
    }
}
