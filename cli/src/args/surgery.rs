//! Arguments of `weft extract` and `weft bisect`.

use super::paths::path_of;
use super::tabled::FromTable;
use super::{Common, InputArgs};
use clap::Args;
use std::path::PathBuf;
use workbench::bisect::Right;

/// `weft extract`
#[derive(Args, Debug)]
pub struct ExtractArgs {
    /// Model: a path or a zoo name
    pub model: String,
    /// Where the part begins: tensors, which become its inputs; or nodes, which are its first ones [default: the
    /// model's inputs]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', required_unless_present = "to")]
    pub from: Vec<String>,
    /// Where it ends: tensors or nodes, whose results are its results [default: the model's results]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub to: Vec<String>,
    /// Where to write the part
    #[arg(short, long, value_name = "part.onnx", value_parser = path_of("onnx"))]
    pub output: PathBuf,
    /// Write the values at the beginning of the part, from a run of the whole model on the interpreter
    #[arg(long, value_name = "in.npz", value_parser = path_of("npz"))]
    pub with_inputs: Option<PathBuf>,
    /// Write the values at its end from the same run: what `weft compare part.onnx -i in.npz --against` takes
    #[arg(long, value_name = "out.npz", value_parser = path_of("npz"))]
    pub with_outputs: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft bisect`
#[derive(Args, Debug, Clone)]
pub struct BisectArgs {
    /// Model: a path or a zoo name
    pub model: String,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub right: FromTable<Right>,
    /// Folder of the reproducer: a part of the model, its inputs, the right results, and the command [default:
    /// MODEL-bisect]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}
