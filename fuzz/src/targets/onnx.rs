//! ONNX files: protobuf trees changed field by field, operators and attributes exchanged, sizes at the edges.

use super::model;
use crate::corpus::filetests;
use crate::protobuf::{Message, mutate as mutate_message};
use crate::raw::{self, one_in, one_of};
use crate::target::{Outcome, Random, Target};
use bytes::Bytes;
use compiler::graph::choose_shapes;
use compiler::onnx::{ImportOptions, NoExternalData, export_onnx, import_onnx_with, inspect_onnx, onnx_inputs};
use compiler::ops::ONNX_IMPORTS;
use compiler::text::parse_module;

/// The row of the table.
pub const TARGET: Target =
    Target { name: "onnx", help: "ONNX files: inspect, import, print, compile, run", seeds, mutate, run };

/// Names of attributes, which operators do not list.
const ATTRIBUTES: &[&str] = &[
    "axis",
    "axes",
    "perm",
    "kernel_shape",
    "pads",
    "strides",
    "dilations",
    "group",
    "auto_pad",
    "ceil_mode",
    "keepdims",
    "to",
    "mode",
    "epsilon",
    "alpha",
    "beta",
    "transA",
    "transB",
    "value",
    "num_outputs",
    "output_padding",
    "output_shape",
    "count_include_pad",
    "batch_dims",
    "direction",
    "equation",
    "exclusive",
    "reverse",
    "largest",
    "sorted",
    "k",
    "size",
    "blocksize",
    "num_groups",
    "body",
    "then_branch",
    "else_branch",
    "hidden_size",
    "linear_before_reset",
    "then",
    "ai.onnx",
];

fn seeds() -> Vec<Vec<u8>> {
    let modules = filetests().into_iter().filter_map(|t| parse_module(&t).ok());
    modules
        .filter(|m| !m.functions.is_empty())
        .filter_map(|m| export_onnx(&m).ok())
        .filter(|b| b.len() < 1 << 14)
        .collect()
}

fn mutate(random: &mut Random, from: Vec<u8>, others: &[Vec<u8>]) -> Vec<u8> {
    let other = one_of(random, others);
    match (Message::parse(&from), Message::parse(other)) {
        (Some(mut m), Some(other)) if !one_in(random, 20) => {
            let operators = ONNX_IMPORTS.iter().flat_map(|f| f.iter().map(|i| i.op_type));
            let words: Vec<&str> = if one_in(random, 3) { ATTRIBUTES.to_vec() } else { operators.collect() };
            mutate_message(random, &mut m, &words, &other);
            m.to_bytes()
        }
        _ => raw::mutate(random, from, others),
    }
}

fn run(input: &[u8]) -> Outcome {
    let bytes = Bytes::copy_from_slice(input);
    let _ = inspect_onnx(bytes.clone(), &NoExternalData, &ImportOptions::default()).map(|i| serde_json::to_string(&i));
    let Ok(ports) = onnx_inputs(bytes.clone(), &[]) else { return Ok("no model") };
    let names: Vec<_> = ports.iter().map(|p| p.0).collect();
    // As the command decides them: a size that the model leaves open is 1.
    let open: Vec<_> = ports.iter().flat_map(|p| &p.1.shape).flat_map(|d| d.vars()).map(|d| (d, 1)).collect();
    let Ok(types) = choose_shapes(ports, None, &open, &[]) else { return Ok("no shapes") };
    let shapes = types.iter().map(|t| t.const_shape().unwrap_or_default());
    let options = ImportOptions { shapes: names.into_iter().zip(shapes).collect(), ..ImportOptions::default() };
    let Ok(module) = import_onnx_with(bytes, &NoExternalData, &options) else { return Ok("refused") };
    model::check_text(&module)?;
    model::use_module(module)
}
