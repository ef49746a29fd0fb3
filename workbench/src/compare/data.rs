//! One model on a folder of inputs, and the distribution of its differences from the reference.

use super::errors;
use super::nodes::{NodeError, node_errors};
use super::record::{
    CaseRecord, Compared, DataRecord, DifferenceRecord, FolderRecord, Miss, NothingToCompare, Percentiles, Record,
    Summary, Top1,
};
use super::request::Request;
use super::roundings::Parts;
use super::side::{Reference, Side, reference_of, refuse_all_in_f32, refuse_itself, warn_of_lost_nan};
use crate::classes::{best_classes, classes_of};
use crate::device::DeviceRecord;
use crate::error::{Code, Error, Result};
use crate::executor::{Device, execute_with, pipeline_for, profile_on};
use crate::inputs::{Files, in_folder, is_image};
use crate::models::{inputs_for, load};
use crate::parts::recorded;
use crate::precision::on_this_device;
use crate::precision::rounded_as_there;
use crate::progress::{Progress, log};
use crate::record::Versioned;
use crate::settings::Settings;
use compiler::agreement::Difference;
use compiler::calibrate::{Ranges, StoredRange};
use compiler::graph::Module;
use compiler::passes::PipelineOptions;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::trace::{CompileTrace, RangesInF16};
use std::path::{Path, PathBuf};

/// Inputs that the table of the worst ones names.
pub const WORST: usize = 5;

/// The best class of one row of a result: here, and in the reference.
#[derive(Clone, Copy)]
pub struct Row {
    /// Here.
    pub got: usize,
    /// In the reference.
    pub expected: usize,
}

/// One result for one input.
pub struct Output {
    /// Of the whole result.
    pub difference: Difference,
    /// Of a result with one value for each class.
    pub rows: Option<Vec<Row>>,
}

/// The result for one input.
pub struct Case {
    /// The file of the input.
    pub file: PathBuf,
    /// The results.
    pub outputs: Vec<Output>,
}

impl Case {
    /// The name of the file.
    pub fn name(&self) -> String {
        self.file.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned())
    }
    /// All results agree.
    pub fn pass(&self) -> bool {
        self.outputs.iter().all(|o| o.difference.pass)
    }
    /// The largest figure of all results.
    pub fn most(&self, of: fn(&Difference) -> f64) -> f64 {
        self.outputs.iter().map(|o| of(&o.difference)).fold(0.0, f64::max)
    }
    /// The share of the tolerance that the worst output takes.
    pub fn used(&self) -> f64 {
        self.most(|d| d.used)
    }
    /// The rows whose best class differs; none where no output holds classes.
    pub fn misses(&self) -> Option<Vec<Miss>> {
        let mut lists = self.outputs.iter().filter_map(|o| o.rows.as_ref()).peekable();
        lists.peek()?;
        let miss = |(row, r): (usize, &Row)| Miss { row, got: r.got, expected: r.expected };
        let all = lists.flat_map(|list| list.iter().enumerate().map(miss));
        Some(all.filter(|m| m.got != m.expected).collect())
    }
    fn record(&self) -> CaseRecord {
        CaseRecord {
            input: self.name(),
            pass: self.pass(),
            tolerance_used: self.used(),
            rel_l2: self.most(|d| d.rel_l2),
            max_abs: self.most(|d| d.max_abs),
            top1_differs: self.misses(),
        }
    }
}

/// The outcome of a comparison over a folder of inputs.
#[derive(Default)]
pub struct FolderComparison {
    /// Name of the model.
    pub model: String,
    /// The folder.
    pub folder: PathBuf,
    /// The device.
    pub device: DeviceRecord,
    /// The inputs, the worst first; none where there was nothing to compare.
    pub list: Vec<Case>,
    /// The results.
    pub names: Vec<String>,
    /// The result and the reference.
    pub sides: [Side; 2],
    /// Files of the folder that are no inputs.
    pub skipped: usize,
    /// The nodes on the worst input, where they were looked at.
    pub nodes: Option<Vec<NodeError>>,
    /// The values that are stored in f16, those nearest to its end first.
    pub ranges: Vec<StoredRange>,
    /// The trace that was asked for, with the errors on the worst input and the ranges.
    pub trace: Option<Box<CompileTrace>>,
}

/// Compares over all inputs in `folder`.
///
/// # Errors
/// A folder without inputs, inputs that do not fit, and results beyond the tolerance.
pub fn over_folder(a: &Request, folder: &Path) -> Result<FolderComparison> {
    refuse_itself(a)?;
    warn_of_lost_nan(a);
    refuse_results(a)?;
    let (files, skipped) = in_folder(folder, &a.input)?;
    say_skipped(&a.settings, skipped, folder);
    let device = crate::executor::open_device(&a.settings)?;
    let silent = a.settings.silent();
    let reader = Files::new(&a.input, &a.model, &silent);
    say_preparation(a, &files)?;
    let module = load(&a.model, &a.settings, Some(&reader.read(&files[0])?))?;
    let inputs = inputs_of(&module, &reader, a, &files[0])?;
    let profile = profile_on(&a.settings, &device)?;
    let pipeline = pipeline_for(&module, &a.settings, &profile, &inputs)?;
    let (module, rounded) = rounded_as_there(module, &a.settings, &pipeline, &profile)?;
    let read = |file: &Path| inputs_of(&module, &reader, a, file);
    let executor = execute_with(module.clone(), pipeline.clone(), &a.settings, &device, &profile, false)?;
    let mixed = executor.is_mixed();
    let mut cases = FolderComparison {
        model: a.model.clone(),
        folder: folder.to_path_buf(),
        device: crate::device::describe(&device),
        names: executor.output_names(),
        skipped,
        ..FolderComparison::default()
    };
    if refuse_all_in_f32(a, &device, mixed)? {
        return Ok(cases);
    }
    let reference = Reference::open(a, &module, &device, &inputs)?;
    let mut parts = Parts { a, module: &module, device: &device, pipeline: &pipeline, compiled: None };
    let mut progress = Progress::new(&a.settings, &[]);
    for (i, file) in files.iter().enumerate() {
        progress.report("inputs", i, files.len());
        let inputs = read(file)?;
        let (got, place) = executor.run_unchecked(&inputs)?;
        let result = Side::of_run(&device, place, if mixed { &a.settings.amp } else { "off" });
        let (want, against) = reference.run(&silent, &module, &device, &inputs, &result)?;
        cases.sides = [result, against];
        let (rows, _) = parts.judge(&reference, &inputs, (&cases.names, &got), &want, [mixed, rounded])?;
        let mut outputs = Vec::with_capacity(rows.len());
        for ((name, difference), t) in rows.into_iter().zip(&got) {
            outputs.push(Output { difference, rows: rows_of(t, reference_of(&want, &name)?) });
        }
        cases.list.push(Case { file: file.clone(), outputs });
    }
    drop((progress, executor, reference, parts));
    cases.list.sort_by(|x, y| y.used().total_cmp(&x.used()));
    if mixed {
        cases.ranges = ranges_of(&a.settings, &module, (&pipeline, &profile), &files, &read)?;
    }
    // Looking at every node costs a run on the interpreter.
    let along = Request { cumulative: true, ..a.clone() };
    if cases.passed() < cases.list.len() || a.nodes || a.trace {
        cases.nodes = Some(node_errors(&along, &module, &read(&cases.list[0].file)?, &device, &pipeline)?);
    }
    if a.trace {
        let trace = recorded(&a.model, module, &a.settings, &profile, &inputs)?;
        cases.trace = Some(Box::new(cases.measured(trace, &along, &device, mixed)));
    }
    Ok(cases)
}

/// The model's inputs in a file.
fn inputs_of(module: &Module, reader: &Files<'_>, a: &Request, file: &Path) -> Result<Vec<Tensor>> {
    inputs_for(module, Some(&reader.read(file)?), &a.settings).map_err(|e| e.at(file.display().to_string()))
}

/// How many files of a folder are no inputs.
fn say_skipped(settings: &Settings, skipped: usize, folder: &Path) {
    if skipped > 0 {
        let what = if skipped == 1 { "1 entry".to_string() } else { format!("{skipped} entries") };
        log(settings, format!("skipped: {what} of {}, no .npz, .npy, .png or .jpg files", folder.display()));
    }
}

/// Results in a file belong to one input.
fn refuse_results(a: &Request) -> Result<()> {
    match a.against.against.as_str() {
        "reference" | "fp32" => Ok(()),
        _ if a.against.is_model() => Ok(()),
        file => Err(Error::usage(format!("--against {file}: over many inputs, it needs reference, fp32 or a model"))),
    }
}

/// How images are prepared is said once, of the first.
fn say_preparation(a: &Request, files: &[PathBuf]) -> Result<()> {
    let Some(image) = files.iter().find(|f| is_image(f)) else { return Ok(()) };
    let said = Files::new(&a.input, &a.model, &a.settings).read(image);
    said.map(drop).map_err(|e| e.at(image.display().to_string()))
}

/// The ranges of the values that are stored in f16, over the inputs in these files.
fn ranges_of(
    settings: &Settings,
    module: &Module,
    (pipeline, profile): (&PipelineOptions, &DeviceProfile),
    files: &[PathBuf],
    read: &dyn Fn(&Path) -> Result<Vec<Tensor>>,
) -> Result<Vec<StoredRange>> {
    let stores = on_this_device(settings, pipeline);
    let mut ranges = Ranges::new(module, &stores, profile).map_err(|e| Error::input(e.to_string()))?;
    let mut progress = Progress::new(settings, &[]);
    for (i, file) in files.iter().enumerate() {
        progress.report("ranges", i, files.len());
        ranges.add(&read(file)?).map_err(|e| Error::input(e.to_string()).at(file.display().to_string()))?;
    }
    Ok(ranges.sorted())
}

/// The best class of each row of `got` and of `want`, where they hold one value for each class.
fn rows_of(got: &Tensor, want: &Tensor) -> Option<Vec<Row>> {
    let classes = classes_of(want).filter(|&c| c > 1 && got.shape() == want.shape() && want.dtype().is_float())?;
    let pairs = best_classes(got, classes).into_iter().zip(best_classes(want, classes));
    Some(pairs.map(|(got, expected)| Row { got, expected }).collect())
}

/// Percentiles by nearest rank: of a hundred values, `p90` is the ninetieth.
fn percentiles(mut values: Vec<f64>) -> Percentiles {
    values.sort_by(f64::total_cmp);
    let at = |p: usize| values[(values.len() * p).div_ceil(100).max(1) - 1];
    Percentiles { p50: at(50), p90: at(90), p99: at(99), max: at(100) }
}

/// One output over all inputs.
fn summary(name: &str, i: usize, cases: &[Case]) -> Summary {
    let of = || cases.iter().map(|c| &c.outputs[i]);
    let rows: Vec<Row> = of().flat_map(|o| o.rows.iter().flatten().copied()).collect();
    let same = rows.iter().filter(|r| r.got == r.expected).count();
    let top1 = Top1 { rows: rows.len(), same, agreement: same as f64 / rows.len() as f64 };
    let figure = |which: fn(&Difference) -> f64| percentiles(of().map(|o| which(&o.difference)).collect());
    Summary {
        name: name.into(),
        passed: of().filter(|o| o.difference.pass).count(),
        top1: (!rows.is_empty()).then_some(top1),
        rel_l2: figure(|d| d.rel_l2),
        max_abs: figure(|d| d.max_abs),
        tolerance_used: figure(|d| d.used),
    }
}

impl FolderComparison {
    /// Inputs whose results agree.
    pub fn passed(&self) -> usize {
        self.list.iter().filter(|c| c.pass()).count()
    }
    /// The distribution of each result's differences.
    pub fn summaries(&self) -> Vec<Summary> {
        self.names.iter().enumerate().map(|(i, n)| summary(n, i, &self.list)).collect()
    }
    /// The trace with the errors on the worst input, and with the ranges over all inputs.
    fn measured(&self, mut trace: CompileTrace, along: &Request, device: &Device, mixed: bool) -> CompileTrace {
        let worst = self.list[0].outputs.iter().map(|o| o.difference.clone());
        let worst: Vec<_> = self.names.iter().cloned().zip(worst).collect();
        trace.errors = Some(errors(along, device, mixed, self.nodes.as_deref().unwrap_or_default(), &worst));
        trace.ranges = mixed.then(|| RangesInF16 { inputs: self.list.len(), values: self.ranges.clone() });
        trace
    }
    fn departs(&self) -> Option<&NodeError> {
        self.nodes.iter().flatten().find(|n| !n.difference.pass)
    }
    /// Where the errors begin to leave the tolerance; none where the nodes were not looked at.
    pub fn departure(&self) -> Option<String> {
        let input = self.list.first().filter(|_| self.nodes.is_some())?.name();
        Some(match self.departs() {
            Some(n) => {
                format!("on {input}, the first node that departs is {} ({}): {}", n.name, n.op, n.difference.why)
            }
            None => format!("on {input}, no node departs beyond the tolerance"),
        })
    }
    /// As `--json` has it.
    pub fn record(&self) -> Versioned<Record<FolderRecord>> {
        let (list, [result, against]) = (&self.list, self.sides.clone());
        let Some(worst) = list.first() else {
            return Versioned::new(Record::Nothing(NothingToCompare::of(&self.model, &self.device)));
        };
        let (passed, departs) = (self.passed(), self.departs());
        let pass = passed == list.len();
        let outputs = self.names.iter().zip(&worst.outputs);
        let compared = Compared {
            model: self.model.clone(),
            pass,
            device: self.device.clone(),
            result,
            against,
            outputs: outputs.map(|(n, o)| DifferenceRecord::of(n, &o.difference)).collect(),
            nodes: self.nodes.iter().flatten().map(DifferenceRecord::of_node).collect(),
            first_failing: departs.filter(|_| !pass).map(|n| n.name.clone()),
        };
        let data = DataRecord {
            folder: self.folder.display().to_string(),
            inputs: list.len(),
            skipped: self.skipped,
            passed,
            outputs: self.summaries(),
            worst: list.iter().take(WORST).map(Case::record).collect(),
            first_departing: departs.map(DifferenceRecord::of_node),
            stored_in_f16: self.ranges.clone(),
        };
        Versioned::new(Record::Compared(Box::new(FolderRecord { compared, data })))
    }
    /// The error of a comparison that does not pass.
    pub fn failure(&self) -> Option<Error> {
        let worst = self.list.first().filter(|w| !w.pass())?;
        let why = worst.outputs.iter().find(|o| !o.difference.pass).map_or("", |o| o.difference.why.as_str());
        let (all, passed) = (self.list.len(), self.passed());
        let text = format!("results differ on {} of {all} inputs; worst {}: {why}", all - passed, worst.name());
        Some(Error::new(Code::Check, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::agreement::{Tolerance, agree};

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let p = percentiles((1..=200).rev().map(f64::from).collect());
        assert_eq!(p, Percentiles { p50: 100.0, p90: 180.0, p99: 198.0, max: 200.0 });
        assert_eq!(percentiles(vec![3.0]), Percentiles { p50: 3.0, p90: 3.0, p99: 3.0, max: 3.0 });
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
        assert_eq!(s.top1, Some(Top1 { rows: 2, same: 1, agreement: 0.5 }));
        assert_eq!((s.passed, s.max_abs.p50), (2, 0.0), "{s:?}");
        assert_eq!(cases[1].record().top1_differs, Some(vec![Miss { row: 0, got: 1, expected: 0 }]));
        assert_eq!(cases[0].record().top1_differs, Some(vec![]));
        let map = Tensor::from_vec(vec![1, 2, 2], vec![0f32; 4]);
        assert!(rows_of(&map, &map).is_none(), "a map has no classes");
    }
}
