//! The target: what it supports, its patterns, and how regions are prepared.

use crate::convert::{convert, supports};
use crate::library::Library;
use crate::runtime::Runtime;
use compiler::cost::{CostModel, EstimatedCost, NodeForm};
use compiler::external::{ExternalPattern, ExternalTarget, Prepared, Region, TargetOptions};
use compiler::graph::{Function, ValueId};
use compiler::ops::binary::Add;
use compiler::ops::clip::Clip;
use compiler::ops::conv::Conv;
use compiler::ops::matmul::{Gemm, MatMul};
use compiler::ops::unary::Relu;
use compiler::pattern::{Found, Pattern, Subject, any, commuted, either, is, op};
use compiler::profile::DeviceProfile;
use std::sync::{Arc, Mutex, PoisonError};

/// The target `dnnl`.
pub static TARGET: Dnnl = Dnnl { loaded: Mutex::new(vec![]) };

/// oneDNN, loaded once for each path.
pub struct Dnnl {
    loaded: Mutex<Vec<(String, Arc<Library>)>>,
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
    fn threads(&self, options: &TargetOptions) -> Result<Option<i32>, String> {
        match options.number("threads")? {
            Some(n) if n < 1.0 || n.fract() != 0.0 || n > 1024.0 => Err(format!("threads={n}: 1 to 1024")),
            n => Ok(n.map(|n| n as i32)),
        }
    }
}

impl ExternalTarget for Dnnl {
    fn name(&self) -> &'static str {
        "dnnl"
    }
    fn options(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("library", "path of the shared library; by default libdnnl.so.2, else libdnnl.so.3"),
            ("threads", "threads of a run; by default those of the library"),
        ]
    }
    fn check(&self, options: &TargetOptions) -> Result<(), String> {
        self.threads(options)?;
        self.library(options).map(drop)
    }
    fn supports(&self, node: &NodeForm, _options: &TargetOptions) -> Result<(), String> {
        supports(node)
    }
    fn patterns(&self) -> Vec<ExternalPattern> {
        let anchor = || either([is::<Conv>(), is::<MatMul>(), is::<Gemm>()]);
        let sum = || commuted::<Add>(anchor(), any());
        let relu = |p: Pattern| op::<Relu>([p]);
        let row = |name, pattern| ExternalPattern::new(name, pattern).check(fits);
        vec![
            row("sum_relu", relu(sum())),
            row("sum", sum()),
            row("relu", relu(anchor())),
            row("clip", op::<Clip>([anchor()])),
        ]
    }
    /// By the estimate of Weft's own kernels for processors, whose time the library's are near.
    fn estimate(&self, region: &Region, _options: &TargetOptions) -> Option<f64> {
        let costs = EstimatedCost::new(&DeviceProfile::named("cpu")?);
        let f = region.function();
        Some(region.nodes().into_iter().map(|n| costs.node(&NodeForm::of(f, n)) as f64).sum())
    }
    fn prepare(&self, region: Region, options: &TargetOptions) -> Result<Box<dyn Prepared>, String> {
        let (graph, constants) = convert(&region)?;
        let runtime = Runtime::new(self.library(options)?, &graph, &constants, self.threads(options)?)?;
        Ok(Box::new(runtime))
    }
}

/// Every node of a match is one that a primitive computes or applies.
fn fits(s: &dyn Subject, found: &Found) -> Result<(), String> {
    let f = s.function();
    let anchor = found.nodes.iter().find(|&&n| is_anchor(f, n)).ok_or("no anchor")?;
    supports(&NodeForm::of(f, *anchor))?;
    let result = f.nodes[*anchor].outputs[0];
    if found
        .nodes
        .iter()
        .any(|&n| n != *anchor && f.nodes[n].inputs.iter().flatten().filter(|&&v| v == result).count() > 1)
    {
        return Err("it adds the result to itself".into());
    }
    let others = found.nodes.iter().filter(|&n| n != anchor);
    others.flat_map(|&n| f.nodes[n].inputs.iter().flatten()).try_for_each(|&v| same_type(f, v, result))
}

fn is_anchor(f: &Function, n: compiler::graph::NodeId) -> bool {
    let op = &f.nodes[n].op;
    op.is::<Conv>() || op.is::<MatMul>() || op.is::<Gemm>()
}

fn same_type(f: &Function, v: ValueId, result: ValueId) -> Result<(), String> {
    match f.ty(v) == f.ty(result) {
        true => Ok(()),
        false => Err(format!("{} is {:?}, the result {:?}", f.describe_value(v), f.ty(v), f.ty(result))),
    }
}
