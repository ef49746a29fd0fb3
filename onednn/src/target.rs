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
use compiler::pattern::{Found, Pattern, Subject, any, commuted, is, op};
use compiler::profile::DeviceProfile;
use std::sync::{Arc, Mutex, PoisonError};

/// Rows and columns of a product's tile in the registers of AVX2.
const REGISTER_TILE: [u32; 2] = [6, 16];
/// 10^9 operations a second of a core with AVX2, as Weft's own estimate has it.
const GFLOPS_A_CORE: f64 = 80.0;
/// 10^9 bytes a second from memory for each core.
const GB_S_A_CORE: f64 = 12.0;

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
            ("graphs", "a folder, into which the JSON graph of each region is written"),
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
        let relu = |p: Pattern| op::<Relu>([p]);
        let row = |name, pattern| ExternalPattern::new(name, pattern).check(fits);
        let behind = |names: [&'static str; 4], anchor: Pattern| {
            let sum = commuted::<Add>(anchor.clone(), any());
            let patterns = [relu(sum.clone()), sum, relu(anchor.clone()), op::<Clip>([anchor])];
            names.into_iter().zip(patterns).map(|(name, pattern)| row(name, pattern)).collect::<Vec<_>>()
        };
        let mut table = behind(["conv_sum_relu", "conv_sum", "conv_relu", "conv_clip"], is::<Conv>());
        table.extend(behind(["matmul_sum_relu", "matmul_sum", "matmul_relu", "matmul_clip"], is::<MatMul>()));
        table.extend(behind(["gemm_sum_relu", "gemm_sum", "gemm_relu", "gemm_clip"], is::<Gemm>()));
        table.push(row("add_relu", relu(op::<Add>([any(), any()]))));
        table
    }
    /// By the estimate of Weft's own kernels for a processor with AVX2, whose time the library's are near.
    fn estimate(&self, region: &Region, options: &TargetOptions) -> Option<f64> {
        let here = || std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let cores = self.threads(options).ok()?.map_or_else(here, |n| n as u32);
        let rates = DeviceProfile::processor(cores, REGISTER_TILE);
        let (gflops, gb_s) = (f64::from(cores) * GFLOPS_A_CORE, f64::from(cores) * GB_S_A_CORE);
        let costs = EstimatedCost::new(&DeviceProfile { gflops, gb_s, ..rates });
        let f = region.function();
        Some(region.nodes().into_iter().map(|n| costs.node(&NodeForm::of(f, n)) as f64).sum())
    }
    fn prepare(&self, region: Region, options: &TargetOptions) -> Result<Box<dyn Prepared>, String> {
        let (graph, constants) = convert(&region)?;
        if let Some(folder) = options.get("graphs") {
            let path = std::path::Path::new(folder).join(format!("{}.json", region.function().name));
            let text = serde_json::to_string_pretty(&graph).map_err(|e| e.to_string())?;
            std::fs::write(&path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))?;
        }
        let runtime = Runtime::new(self.library(options)?, &graph, &constants, self.threads(options)?)?;
        Ok(Box::new(runtime))
    }
}

/// Every node of a match is one that a primitive computes or applies.
fn fits(s: &dyn Subject, found: &Found) -> Result<(), String> {
    let f = s.function();
    // The pattern's innermost op.
    let anchor = *found.nodes.last().ok_or("no anchor")?;
    supports(&NodeForm::of(f, anchor))?;
    let result = f.nodes[anchor].outputs[0];
    for &n in found.nodes.iter().filter(|&&n| n != anchor) {
        let operands: Vec<ValueId> = f.nodes[n].inputs.iter().flatten().copied().collect();
        if operands.iter().filter(|&&v| v == result).count() > 1 {
            return Err("it adds the result to itself".into());
        }
        operands.into_iter().try_for_each(|v| same_type(f, v, result))?;
    }
    Ok(())
}

fn same_type(f: &Function, v: ValueId, result: ValueId) -> Result<(), String> {
    match f.ty(v) == f.ty(result) {
        true => Ok(()),
        false => Err(format!("{} is {:?}, the result {:?}", f.describe_value(v), f.ty(v), f.ty(result))),
    }
}
