//! Ranges of the values that a compiled module stores in f16, over any number of inputs.

use super::storage::Graph;
use super::{CalibrationError, before_mixed_precision, names_of};
use crate::arena::Id;
use crate::graph::{Module, ValueDef, ValueId};
use crate::interpreter::{ExecError, Interpreter};
use crate::name::Name;
use crate::ops::control::Const;
use crate::passes::mixed_precision::F16_MAX;
use crate::passes::{PassError, PipelineOptions};
use crate::profile::DeviceProfile;
use crate::tensor::Tensor;
use half::f16;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The elements of one value in f16, over all inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StoredRange {
    /// A name of the model for the node that gives it; the name of an input or of a constant.
    #[schemars(with = "String")]
    pub name: Name,
    /// The node's op: `const` for a constant, `input` for an input.
    pub op: String,
    /// The largest finite magnitude.
    pub largest: f64,
    /// The largest magnitude beside f16's, 65504: from 1 on it overflows.
    pub of_f16: f64,
    /// Elements over all inputs; of a constant, its own.
    pub elements: u64,
    /// Finite ones that f16 makes infinite.
    pub overflowing: u64,
    /// Those other than 0 that f16 makes 0.
    pub zeroed: u64,
    /// Those that f16 makes subnormal, which keeps fewer digits.
    pub subnormal: u64,
}

impl StoredRange {
    /// The share of its elements that `count` of them are.
    pub fn share(&self, count: u64) -> f64 {
        count as f64 / self.elements.max(1) as f64
    }
    fn see(&mut self, values: &[f32]) {
        self.elements += values.len() as u64;
        for x in values.iter().map(|x| x.abs()).filter(|x| x.is_finite()) {
            self.largest = self.largest.max(f64::from(x));
            // Only the ends of f16 need a conversion.
            if !(1e-4..=6e4).contains(&x) {
                let half = f16::from_f32(x);
                self.overflowing += u64::from(half.is_infinite());
                self.zeroed += u64::from(x > 0.0 && half == f16::ZERO);
                self.subnormal += u64::from(half > f16::ZERO && half < f16::MIN_POSITIVE);
            }
        }
        self.of_f16 = self.largest / F16_MAX;
    }
}

/// Collects the ranges.
pub struct Ranges {
    /// The f32 graph right before the pass `mixed-precision`.
    module: Module,
    values: IndexMap<ValueId, StoredRange>,
}

impl Ranges {
    /// The values that `module` stores in f16 when it is compiled with `pipeline`; constants are looked at now.
    ///
    /// # Errors
    /// An error of a pass.
    pub fn new(module: &Module, pipeline: &PipelineOptions, profile: &DeviceProfile) -> Result<Ranges, PassError> {
        let m = before_mixed_precision(module, pipeline, profile)?;
        let kernels = Graph::new(&m, pipeline, profile).storage(pipeline.amp, &[])?.kernels;
        let (f, known) = (m.main(), names_of(module));
        let mut values = IndexMap::new();
        for v in kernels.into_iter().flat_map(|k| k.values) {
            let (name, op) = match f.values[v].def {
                ValueDef::Arg(..) => (f.values[v].name.unwrap_or(f.name), "input"),
                ValueDef::Result(n, _) => {
                    let node = &f.nodes[n];
                    let mut all = [node.name].into_iter().chain(node.origins.names().iter().copied());
                    (all.find(|n| known.contains(n)).unwrap_or(node.name), node.op.name())
                }
            };
            let (op, zero) = (op.to_string(), 0);
            let empty = StoredRange {
                name,
                op,
                largest: 0.0,
                of_f16: 0.0,
                elements: zero,
                overflowing: zero,
                zeroed: zero,
                subnormal: zero,
            };
            values.entry(v).or_insert(empty);
        }
        for (v, range) in &mut values {
            let constant = f.def_op::<Const>(*v).and_then(|(_, c)| m.constants.get(&c.name));
            if let Some(t) = constant.and_then(|c| c.load().ok()) {
                range.see(&t.to_f32_vec());
            }
        }
        Ok(Ranges { module: m, values })
    }

    /// Runs the f32 graph on the host and adds what it gives.
    ///
    /// # Errors
    /// An error of the interpreter.
    pub fn add(&mut self, inputs: &[Tensor]) -> Result<(), CalibrationError> {
        let (f, values) = (self.module.main(), &mut self.values);
        for (v, t) in f.params().iter().zip(inputs) {
            if let Some(range) = values.get_mut(v) {
                range.see(&t.to_f32_vec());
            }
        }
        let mut interpreter = Interpreter::new(&self.module).observe(|g, n, results| {
            if g.name != f.name || f.nodes[n].op.is::<Const>() {
                return;
            }
            for (v, t) in f.nodes[n].outputs.iter().zip(results) {
                if let Some(range) = values.get_mut(v) {
                    range.see(&t.to_f32_vec());
                }
            }
        });
        interpreter.run(f.name, inputs).map(drop).map_err(|e: ExecError| e.into())
    }

    /// The ranges, those nearest to the end of f16 first; equal ones in the order of execution.
    pub fn sorted(self) -> Vec<StoredRange> {
        let mut all: Vec<(ValueId, StoredRange)> = self.values.into_iter().collect();
        all.sort_by(|a, b| b.1.largest.total_cmp(&a.1.largest).then(a.0.index().cmp(&b.0.index())));
        all.into_iter().map(|r| r.1).collect()
    }
}
