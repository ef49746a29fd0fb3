//! The target: what it supports, its patterns, and how regions are prepared.

use crate::built::{Built, Options};
use crate::c_source::VERSION;
use crate::convert::{convert, supports};
use crate::elementwise::{binary, eltwise};
use crate::library::Library;
use crate::runtime::Runtime;
use compiler::cost::NodeForm;
use compiler::external::{ExternalPattern, ExternalTarget, Prepared, Region, TargetOptions};
use compiler::graph::{Function, NodeId, TensorType, ValueId};
use compiler::int::Dim;
use compiler::ops::OpRef;
use compiler::ops::binary::Add;
use compiler::ops::conv::Conv;
use compiler::ops::matmul::{Gemm, MatMul};
use compiler::pattern::{Found, Pattern, Subject, any, any_op, is, op};
use compiler::tensor::{Tensor, TensorMut};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Runs of a region that is measured; one that takes longer than `LONG` runs twice.
const RUNS: usize = 5;
const LONG: Duration = Duration::from_millis(100);

/// Threads of a run, at most.
const MOST_THREADS: i32 = 1024;

/// The target `dnnl`.
pub static TARGET: Dnnl = Dnnl { loaded: Mutex::new(vec![]), measured: Mutex::new(BTreeMap::new()) };

/// How a region becomes calls of the library.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Json,
    C,
}

/// oneDNN, loaded once for each path.
pub struct Dnnl {
    loaded: Mutex<Vec<(String, Arc<Library>)>>,
    /// Nanoseconds of each region that was measured, by what decides them.
    measured: Mutex<BTreeMap<String, f64>>,
}

impl Dnnl {
    fn library(&self, options: &TargetOptions) -> Result<Arc<Library>, String> {
        let path = options.get("library").unwrap_or("");
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, library)) = loaded.iter().find(|l| l.0 == path) {
            return Ok(library.clone());
        }
        let library = Library::open((!path.is_empty()).then_some(path))?;
        loaded.push((path.into(), library.clone()));
        Ok(library)
    }
    fn style(&self, options: &TargetOptions) -> Result<Style, String> {
        match options.get("style") {
            None | Some("json") => Ok(Style::Json),
            Some("c") => Ok(Style::C),
            Some(other) => Err(format!("style={other}: the styles are `json` and `c`")),
        }
    }
    /// Nanoseconds of a run: the least of a few, of inputs that are 0.
    fn time(&self, region: &Region, options: &TargetOptions) -> Result<f64, String> {
        let (graph, constants) = convert(region)?;
        let runtime = Runtime::new(self.library(options)?, &graph, &constants, self.threads(options)?)?;
        let fixed = |t: &TensorType| t.const_shape().ok_or("a size is open");
        let zeros = |t: &TensorType| TensorMut::zeros(t.dtype, fixed(t)?).map_err(|e| e.to_string());
        let input = |t: &TensorType| zeros(t).map(TensorMut::freeze);
        let inputs = region.inputs().iter().map(input).collect::<Result<Vec<Tensor>, String>>()?;
        let mut outputs = region.outputs().iter().map(zeros).collect::<Result<Vec<_>, String>>()?;
        let mut least = Duration::MAX;
        for run in 0..RUNS {
            let started = Instant::now();
            runtime.run(&inputs, &mut outputs)?;
            least = least.min(started.elapsed());
            if run > 0 && least > LONG {
                break;
            }
        }
        Ok(least.as_nanos() as f64)
    }
    fn threads(&self, options: &TargetOptions) -> Result<Option<i32>, String> {
        let Some(text) = options.get("threads") else { return Ok(None) };
        let n = text.parse().ok().filter(|n| (1..=MOST_THREADS).contains(n));
        n.map(Some).ok_or_else(|| format!("threads={text}: a whole number from 1 to {MOST_THREADS}"))
    }
}

impl ExternalTarget for Dnnl {
    fn name(&self) -> &'static str {
        "dnnl"
    }
    fn options(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("compiler", "of the style `c`: the C compiler; `cc` by default"),
            (
                "folder",
                "of the style `c`: a folder, into which the C of each region is written; none is kept by default",
            ),
            ("graphs", "a folder, into which the JSON graph of each region is written"),
            ("library", "path of the shared library; by default libdnnl.so.2, else libdnnl.so.3"),
            ("style", "`json` (default): primitives are made from the JSON graph; `c`: by C, which is compiled"),
            ("threads", "threads of a run; by default as many as the library takes"),
        ]
    }
    fn machine_options(&self) -> &'static [&'static str] {
        &["compiler", "folder", "graphs", "library"]
    }
    fn check_options(&self, options: &TargetOptions) -> Result<(), String> {
        self.threads(options)?;
        self.style(options).map(|_| ())
    }
    fn check(&self, options: &TargetOptions) -> Result<(), String> {
        let library = self.library(options)?;
        if self.style(options)? == Style::C {
            if library.version().0 != VERSION {
                let (major, minor) = library.version();
                return Err(format!("style=c calls version {VERSION} of oneDNN, and the library is {major}.{minor}"));
            }
            c_source::check_compiler(options.get("compiler").unwrap_or("cc"))?;
        }
        Ok(())
    }
    fn supports(&self, node: &NodeForm, _options: &TargetOptions) -> Result<(), String> {
        supports(node)
    }
    fn patterns(&self) -> Vec<ExternalPattern> {
        let mut table = behind(
            [
                "conv_sum_eltwise",
                "conv_binary_eltwise",
                "conv_eltwise_binary",
                "conv_sum",
                "conv_binary",
                "conv_eltwise",
            ],
            is::<Conv>(),
        );
        let names = [
            "matmul_sum_eltwise",
            "matmul_binary_eltwise",
            "matmul_eltwise_binary",
            "matmul_sum",
            "matmul_binary",
            "matmul_eltwise",
        ];
        table.extend(behind(names, is::<MatMul>()));
        let names = [
            "gemm_sum_eltwise",
            "gemm_binary_eltwise",
            "gemm_eltwise_binary",
            "gemm_sum",
            "gemm_binary",
            "gemm_eltwise",
        ];
        table.extend(behind(names, is::<Gemm>()));
        table.push(ExternalPattern::new("binary_eltwise", mapped(combined(any(), any()))).check(fits));
        table
    }
    /// Measured: the least time of a few runs of the library, once for each form of a region in a process.
    fn estimate(&self, region: &Region, options: &TargetOptions) -> Option<f64> {
        let [library, threads] = ["library", "threads"].map(|o| options.get(o).unwrap_or(""));
        let key = format!("{library}:{threads}\n{}", region.form());
        let known = |t: &Self| t.measured.lock().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        if let Some(ns) = known(self) {
            return Some(ns);
        }
        let ns = self.time(region, options).ok()?;
        self.measured.lock().unwrap_or_else(PoisonError::into_inner).insert(key, ns);
        Some(ns)
    }
    fn prepare(&self, region: Region, options: &TargetOptions) -> Result<Box<dyn Prepared>, String> {
        let (graph, constants) = convert(&region)?;
        if let Some(folder) = options.get("graphs") {
            // The name may be one of the network's file, which must not leave the folder.
            let plain = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
            let name: String = region.function().name.as_str().chars().map(plain).collect();
            let path = std::path::Path::new(folder).join(name + ".json");
            let text = serde_json::to_string_pretty(&graph).map_err(|e| e.to_string())?;
            std::fs::write(&path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let (library, threads) = (self.library(options)?, self.threads(options)?);
        let name = region.function().name;
        Ok(match self.style(options)? {
            Style::Json => Box::new(Runtime::new(library, &graph, &constants, threads)?),
            Style::C => {
                let options = Options {
                    compiler: options.get("compiler").unwrap_or("cc"),
                    folder: options.get("folder").map(|f| std::path::Path::new(f).join(name.as_str())),
                    library: options.get("library"),
                    threads,
                };
                Box::new(Built::new(library, &graph, &constants, name.as_str(), &options)?)
            }
        })
    }
}

/// A function of one operand behind a value.
fn mapped(p: Pattern) -> Pattern {
    any_op([p]).when("a function of elements", |s, v| op_of(s, v).is_some_and(|op| eltwise(op).is_some()))
}

/// A function of two operands.
fn combined(a: Pattern, b: Pattern) -> Pattern {
    any_op([a, b]).when("a function of two", |s, v| op_of(s, v).is_some_and(|op| binary(op).is_some()))
}

fn op_of(s: &dyn Subject, v: ValueId) -> Option<&OpRef> {
    s.function().def_node(v).map(|n| &s.function().nodes[n].op)
}

/// Says why what was found does not go to the library.
type Check = fn(&dyn Subject, &Found) -> Result<(), String>;

/// Rows of what a primitive applies to the result of an anchor: a sum, a function of two elements, one of one. Each
/// order of two operands is a row: both may be anchors, of which the primitive takes one.
fn behind(names: [&'static str; 6], anchor: Pattern) -> Vec<ExternalPattern> {
    let sums = || [op::<Add>([anchor.clone(), any()]), op::<Add>([any(), anchor.clone()])];
    let two = |p: Pattern| [combined(p.clone(), any()), combined(any(), p)];
    let rows: [(Vec<Pattern>, Check); 6] = [
        (sums().map(mapped).into(), fits_sum),
        (two(anchor.clone()).map(mapped).into(), fits),
        (two(mapped(anchor.clone())).into(), fits),
        (sums().into(), fits_sum),
        (two(anchor.clone()).into(), fits),
        (vec![mapped(anchor.clone())], fits),
    ];
    let all = names.into_iter().zip(rows);
    all.flat_map(|(name, (orders, check))| orders.into_iter().map(move |p| ExternalPattern::new(name, p).check(check)))
        .collect()
}

/// As [`fits`], and tensors that are added have the result's shape.
fn fits_sum(s: &dyn Subject, found: &Found) -> Result<(), String> {
    let f = s.function();
    fits(s, found)?;
    let anchor = *found.nodes.last().ok_or("no anchor")?;
    let result = f.nodes[anchor].outputs[0];
    let sums = found.nodes.iter().filter(|&&n| n != anchor && f.nodes[n].op.is::<Add>());
    let mut operands = sums.flat_map(|&n| f.nodes[n].inputs.iter().flatten());
    operands.try_for_each(|&v| same_type(f, v, result))
}

/// Every node of a match is one that a primitive computes or applies.
fn fits(s: &dyn Subject, found: &Found) -> Result<(), String> {
    let f = s.function();
    // The pattern's innermost op.
    let anchor = *found.nodes.last().ok_or("no anchor")?;
    supports(&NodeForm::of(f, anchor))?;
    let result = f.nodes[anchor].outputs[0];
    let inside = |v: &ValueId| f.def_node(*v).is_some_and(|n| found.nodes.contains(&n));
    for &n in found.nodes.iter().filter(|&&n| n != anchor) {
        supports(&NodeForm::of(f, n))?;
        same_type(f, f.nodes[n].outputs[0], result)?;
        let operands: Vec<ValueId> = f.nodes[n].inputs.iter().flatten().copied().collect();
        let [a, b] = operands[..] else { continue };
        if a == b {
            return Err("it combines a value with itself".into());
        }
        let (value, other) = if inside(&a) { (a, b) } else { (b, a) };
        if value != a && !f.nodes[n].op.commutes() {
            return Err(format!("the result is the second operand of {}", f.nodes[n].op.name()));
        }
        let summed = f.nodes[n].op.is::<Add>() && f.ty(other) == f.ty(result);
        if !summed && !varies_along_channels(f, anchor, other) {
            return Err(format!("{} is {:?}, not one element for each channel", f.describe_value(other), f.ty(other)));
        }
    }
    Ok(())
}

/// One element, or one for each channel of a convolution's result, each column of a product's.
fn varies_along_channels(f: &Function, anchor: NodeId, v: ValueId) -> bool {
    let result = f.ty(f.nodes[anchor].outputs[0]);
    let channels = if f.nodes[anchor].op.is::<Conv>() { 1 } else { result.rank() - 1 };
    let missing = result.rank() - f.ty(v).rank().min(result.rank());
    let fits = |(i, d): (usize, &Dim)| d.is(1) || i + missing == channels && *d == result.shape[channels];
    f.ty(v).rank() <= result.rank() && f.ty(v).shape.iter().enumerate().all(fits)
}

fn same_type(f: &Function, v: ValueId, result: ValueId) -> Result<(), String> {
    match f.ty(v) == f.ty(result) {
        true => Ok(()),
        false => Err(format!("{} is {:?}, the result {:?}", f.describe_value(v), f.ty(v), f.ty(result))),
    }
}
