//! A small kernel that tests whether a device computes.
//!
//! Some devices accept pipelines and dispatches, but write no results: a driver for hardware that is not present, or a
//! broken driver. So before any result is used, a small matrix product, made from a tensor function like every kernel,
//! is run. Its operands are small whole numbers, so its results are exact on every device, in any order of summation.
//! Commands that only compile do not run it.

use crate::device::Gpu;
use crate::error::GpuError;
use crate::session::{Session, SessionOptions};
use compiler::compile::{CompileOptions, compile};
use compiler::graph::Module;
use compiler::tensor::Tensor;
use std::sync::Arc;

/// Rows of the first operand, and elements of each.
const ROWS: usize = 128;
const DEPTH: usize = 24;

/// Each row of a matrix times a vector: two workgroups, a loop that carries a sum, loads and stores.
fn module() -> Result<Module, GpuError> {
    let text = format!(
        "graph @main(%a: f32[{ROWS},{DEPTH}], %b: f32[{DEPTH}]) -> (y: f32[{ROWS}]) {{
  %y = call_tensor @canary %a, %b : f32[{ROWS}]
  return %y
}}
tensor @canary(%a: f32[{ROWS},{DEPTH}], %b: f32[{DEPTH}], out %y: f32[{ROWS}]) {{
  for i in 0..{ROWS} {{ for k in 0..{DEPTH} {{ block y reduce sum init {{ %y[i] <- %a[i, k] * %b[k] }} }} }}
  schedule {{
    split {{loop=i, factors=[0,64], into=[group,thread]}}
    bind {{loop=group, axis=group_x}}
    bind {{loop=thread, axis=local_x}}
    cut-kernel
  }}
}}
"
    );
    compiler::text::parse_module(&text).map_err(|e| GpuError::Internal(format!("the canary kernel: {e}")))
}

/// Whole numbers from -4 to 4.
fn operand(shape: Vec<usize>, step: usize) -> Tensor {
    let n = shape.iter().product();
    Tensor::from_vec(shape, (0..n).map(|i| ((i * step + i / 7) % 9) as f32 - 4.0).collect())
}

impl Gpu {
    /// Runs a small kernel and checks its results.
    ///
    /// # Errors
    /// [`GpuError::DoesNotCompute`] if its results are wrong; errors of opening a session and running it.
    pub fn check_computes(self: &Arc<Gpu>) -> Result<(), GpuError> {
        let internal = |e: &dyn std::fmt::Display| GpuError::Internal(format!("the canary kernel: {e}"));
        let module = module()?;
        let inputs = [operand(vec![ROWS, DEPTH], 5), operand(vec![DEPTH], 2)];
        let want = compiler::interpreter::run_function(&module, module.entry, &inputs).map_err(|e| internal(&e))?;
        let options = CompileOptions::default();
        let compiled = compile(module, &options, &self.profile, &shaders_gen::Emitter, &mut |_, _, _| ());
        let compiled = compiled.map_err(|e| internal(&e))?;
        let session = Session::open(
            self.clone(),
            &compiled.plan,
            &compiled.module,
            &SessionOptions::default(),
            &mut |_, _, _| (),
        )?;
        let got = session.run(&inputs)?;
        match wrong(&got, &want) {
            None => Ok(()),
            Some(why) => Err(GpuError::DoesNotCompute { device: self.description.name.clone(), why }),
        }
    }
}

/// The first wrong result, if any.
fn wrong(got: &[Tensor], want: &[Tensor]) -> Option<String> {
    let values = |list: &[Tensor]| list.iter().flat_map(|t| t.to_f32_vec()).collect::<Vec<f32>>();
    let (got, want) = (values(got), values(want));
    let differ: Vec<usize> = (0..want.len()).filter(|&i| got.get(i) != Some(&want[i])).collect();
    let &first = differ.first()?;
    let is = got.get(first).map_or("missing".into(), f32::to_string);
    Some(format!(
        "{} of {} results of a small kernel are wrong; the first of them is {is} where {} is right",
        differ.len(),
        want.len(),
        want[first]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_results_are_told() {
        let t = |v: &[f32]| [Tensor::from_vec(vec![v.len()], v.to_vec())];
        assert_eq!(wrong(&t(&[1.0, 2.0]), &t(&[1.0, 2.0])), None);
        let why = wrong(&t(&[1.0, 0.0, f32::NAN]), &t(&[1.0, 2.0, 3.0])).expect("they differ");
        assert_eq!(why, "2 of 3 results of a small kernel are wrong; the first of them is 0 where 2 is right");
        assert!(wrong(&t(&[1.0]), &t(&[1.0, 2.0])).expect("one is missing").contains("missing"));
    }

    /// A device that leaves everything 0 must not pass.
    #[test]
    fn no_right_result_is_zero_everywhere() {
        let m = module().expect("parses");
        let inputs = [operand(vec![ROWS, DEPTH], 5), operand(vec![DEPTH], 2)];
        let want = compiler::interpreter::run_function(&m, m.entry, &inputs).expect("runs").remove(0).to_f32_vec();
        assert!(want.iter().filter(|v| **v != 0.0).count() > ROWS / 2, "{want:?}");
        assert!(want.windows(2).filter(|w| w[0] != w[1]).count() > ROWS / 2, "{want:?}");
    }
}
