//! The `weft` command with an op that Weft has no kernel for, and an external target that runs it.
//!
//! ```text
//! cargo run -p weft-command --example own_target -- run net.weft --external acme
//! ```
//!
//! `acme_op` is imported from ONNX's operator `Op` of the domain `acme`; it has no tensor expression. The target `acme`
//! runs it, and relu. `docs/add-a-target.md` says what a target consists of.

use compiler::attr_struct;
use compiler::cost::NodeForm;
use compiler::external::{ExternalTarget, Prepared, Region, TargetOptions};
use compiler::graph::{TensorType, ValueId};
use compiler::onnx::{ImportContext, OnnxImport};
use compiler::ops::unary::{Domain, Relu, infer_map};
use compiler::ops::{InferContext, Op, OpDef, OpResult};
use compiler::tensor::{Tensor, TensorMut};
use std::process::ExitCode;

attr_struct! {
    /// `2 x + 1`, elementwise, by Acme's library alone.
    pub struct AcmeOp("acme_op") {}
}

impl Op for AcmeOp {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        infer_map(cx, Domain::Float)
    }
    fn has_compute(&self) -> bool {
        false
    }
}

const ONNX: &[OnnxImport] = &[OnnxImport { op_type: "Op", domain: "acme", since: 1, import: import_acme }];

fn import_acme(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    Ok(vec![cx.add(AcmeOp {}, &[x])?])
}

/// Acme's library.
struct Acme;

impl ExternalTarget for Acme {
    fn name(&self) -> &'static str {
        "acme"
    }
    fn options(&self) -> &'static [(&'static str, &'static str)] {
        &[("scale", "a factor of every result, to see that comparisons notice it")]
    }
    fn check_options(&self, options: &TargetOptions) -> Result<(), String> {
        options.number("scale").map(|_| ())
    }
    fn supports(&self, node: &NodeForm, _options: &TargetOptions) -> Result<(), String> {
        if node.op.is::<AcmeOp>() || node.op.is::<Relu>() { Ok(()) } else { Err(format!("no {}", node.op.name())) }
    }
    fn prepare(&self, region: Region, options: &TargetOptions) -> Result<Box<dyn Prepared>, String> {
        let f = region.function();
        if region.inputs().len() != 1 || region.outputs().len() != 1 {
            return Err("it runs chains of nodes alone".into());
        }
        let relus = region.nodes().into_iter().map(|n| f.nodes[n].op.is::<Relu>()).collect();
        Ok(Box::new(Chain { relus, scale: options.number("scale")?.unwrap_or(1.0) as f32 }))
    }
}

/// Nodes, one behind the other: each is a relu or `2 x + 1`.
struct Chain {
    relus: Vec<bool>,
    scale: f32,
}

impl Prepared for Chain {
    fn run(&self, inputs: &[Tensor], outputs: &mut [TensorMut]) -> Result<(), String> {
        let node = |x: f32, relu: &bool| if *relu { x.max(0.0) } else { 2.0 * x + 1.0 };
        let value = |x: f32| self.scale * self.relus.iter().fold(x, node);
        let bytes: Vec<u8> = inputs[0].to_f32_vec().into_iter().flat_map(|x| value(x).to_le_bytes()).collect();
        outputs[0].bytes_mut().copy_from_slice(&bytes);
        Ok(())
    }
}

fn main() -> ExitCode {
    let extensions = cli::Extensions {
        ops: vec![(OpDef::of::<AcmeOp>(), ONNX)],
        targets: vec![&Acme],
        ..cli::Extensions::default()
    };
    cli::run(std::env::args_os(), extensions)
}
