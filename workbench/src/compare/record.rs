//! The records of comparisons.

use super::nodes::NodeError;
use super::roundings::Rounded;
use super::side::Side;
use crate::device::DeviceRecord;
use crate::match_models::ModelDiff;
use compiler::agreement::Difference;
use compiler::calibrate::{Passed, Point, Stored, StoredRange};
use compiler::interpreter::NodeOutOfRange;
use schemars::JsonSchema;
use serde::Serialize;

/// The part that all comparisons share.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Compared {
    /// As it was given.
    pub model: String,
    /// All results agree.
    pub pass: bool,
    /// The device.
    pub device: DeviceRecord,
    /// The side that computed the results.
    pub result: Side,
    /// The other side.
    pub against: Side,
    /// Each result.
    pub outputs: Vec<DifferenceRecord>,
    /// Nodes whose results the compiled program stores: the last one of each fused group. With the errors before them
    /// where `--cumulative` or `--data` is given.
    pub nodes: Vec<DifferenceRecord>,
    /// The first of `nodes` beyond the tolerance, else `cause.node`.
    pub first_failing: Option<String>,
}

/// The medians of ten runs here and in another runtime.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, JsonSchema)]
pub struct TimesBeside {
    /// Milliseconds of a run here.
    pub own_ms: f64,
    /// Of one in the other runtime.
    pub peer_ms: f64,
}

/// A comparison on one input.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ComparisonRecord {
    /// Both sides and their differences.
    #[serde(flatten)]
    pub compared: Compared,
    /// With mixed precision.
    pub mixed: Option<Stored>,
    /// Where results differ and the network rounds to integers: its parts, each on the reference's integers. If they
    /// agree, `pass` is true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounded: Option<Rounded>,
    /// Where results differ.
    pub cause: Option<CauseRecord>,
    /// Beside another model that differs (with -v, beside any): where they part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<ModelDiff>,
    /// With `--write-keep`.
    pub keep: Option<Keep>,
    /// Results that hold positions which there are not, one sentence each: a kernel did not find an element.
    pub lost_positions: Vec<String>,
    /// With `--check-indices`: nodes that read an index outside of a dimension or divide an integer by 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_range: Option<Vec<NodeOutOfRange>>,
    /// With `--peer`: times of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<TimesBeside>,
}

/// Where `--amp auto` keeps every node in f32 there is nothing to compare.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct NothingToCompare {
    /// As it was given.
    pub model: String,
    /// True.
    pub pass: bool,
    /// The device.
    pub device: DeviceRecord,
    /// Empty.
    pub outputs: Vec<DifferenceRecord>,
    /// Empty.
    pub nodes: Vec<DifferenceRecord>,
    /// None.
    pub first_failing: Option<String>,
    /// True.
    pub all_in_f32: bool,
}

impl NothingToCompare {
    /// Of a model on a device.
    pub fn of(model: &str, device: &DeviceRecord) -> NothingToCompare {
        let (model, device, outputs, nodes) = (model.to_string(), device.clone(), vec![], vec![]);
        NothingToCompare { model, pass: true, device, outputs, nodes, first_failing: None, all_in_f32: true }
    }
}

/// The differences of a result or of a node.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DifferenceRecord {
    /// The result, or the node.
    pub name: String,
    /// Of a node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The figures.
    #[serde(flatten)]
    pub difference: Difference,
    /// The largest share of the tolerance that an element, or the norm, takes.
    #[schemars(with = "Option<f64>")]
    pub tolerance_used: f64,
}

impl DifferenceRecord {
    /// Of a result.
    pub fn of(name: &str, d: &Difference) -> DifferenceRecord {
        DifferenceRecord { name: name.into(), op: None, difference: d.clone(), tolerance_used: d.used }
    }
    /// Of a node.
    pub fn of_node(n: &NodeError) -> DifferenceRecord {
        DifferenceRecord { op: Some(n.op.clone()), ..DifferenceRecord::of(&n.name, &n.difference) }
    }
}

/// Where a failure comes from. All but `node` are of mixed precision, rounded on the interpreter.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CauseRecord {
    /// Where it leads.
    pub node: Option<String>,
    /// The share of the tolerance that the results take.
    pub tolerance_used: Option<f64>,
    /// By f16.
    pub saved_bytes: Option<u64>,
    /// Each node with the errors before it.
    pub along: Option<Vec<Point>>,
    /// Where the tolerance is passed.
    pub passed_at: Option<Passed>,
}

/// A keep list that was found.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Keep {
    /// The comparison passes with it.
    pub passes: bool,
    /// Names of nodes, as `--keep-f32` takes them.
    pub patterns: Vec<String>,
    /// Lists that were measured.
    pub measured: usize,
    /// The text of its file.
    #[serde(skip)]
    pub text: String,
}

/// A comparison over a folder of inputs: `outputs` and `nodes` are of the worst one.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct FolderRecord {
    /// Both sides and their differences.
    #[serde(flatten)]
    pub compared: Compared,
    /// The distribution.
    pub data: DataRecord,
}

/// The distribution of differences over inputs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DataRecord {
    /// As it was given.
    pub folder: String,
    /// How many.
    pub inputs: usize,
    /// Entries of the folder that are no inputs.
    pub skipped: usize,
    /// Inputs within the tolerance.
    pub passed: usize,
    /// Each result.
    pub outputs: Vec<Summary>,
    /// The worst first.
    pub worst: Vec<CaseRecord>,
    /// On the worst input, the first of `nodes` beyond the tolerance.
    pub first_departing: Option<DifferenceRecord>,
    /// With mixed precision, the values that are stored in f16 and their f32 ranges over all inputs, those nearest to
    /// the end of f16 first.
    pub stored_in_f16: Vec<StoredRange>,
}

/// One result over all inputs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Summary {
    /// The result.
    pub name: String,
    /// Inputs within the tolerance.
    pub passed: usize,
    /// Best classes; null for what holds no classes.
    pub top1: Option<Top1>,
    /// As of `outputs`.
    pub rel_l2: Percentiles,
    /// As of `outputs`.
    pub max_abs: Percentiles,
    /// As of `outputs`; 1 is all of the tolerance.
    pub tolerance_used: Percentiles,
}

/// Rows by their best classes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Top1 {
    /// Of all inputs.
    pub rows: usize,
    /// Whose best class is the reference's.
    pub same: usize,
    /// Their share.
    pub agreement: f64,
}

/// By nearest rank: of a hundred values, `p90` is the ninetieth. Null where results are not finite.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Percentiles {
    /// Half of the inputs have no more.
    #[schemars(with = "Option<f64>")]
    pub p50: f64,
    /// 90 % have no more.
    #[schemars(with = "Option<f64>")]
    pub p90: f64,
    /// 99 % have no more.
    #[schemars(with = "Option<f64>")]
    pub p99: f64,
    /// The largest.
    #[schemars(with = "Option<f64>")]
    pub max: f64,
}

/// An input.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct CaseRecord {
    /// The file's name.
    pub input: String,
    /// Within the tolerance.
    pub pass: bool,
    /// The largest of its results.
    #[schemars(with = "Option<f64>")]
    pub tolerance_used: f64,
    /// The largest of its results.
    #[schemars(with = "Option<f64>")]
    pub rel_l2: f64,
    /// The largest of its results.
    #[schemars(with = "Option<f64>")]
    pub max_abs: f64,
    /// Rows whose best class differs; null without classes.
    pub top1_differs: Option<Vec<Miss>>,
}

/// A row whose best class differs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Miss {
    /// Of the batch.
    pub row: usize,
    /// The best class here.
    pub got: usize,
    /// The reference's.
    pub expected: usize,
}

/// The result of a comparison.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Record<T> {
    /// Both sides.
    Compared(Box<T>),
    /// Nothing to compare.
    Nothing(NothingToCompare),
}

/// Results of an open session beside a reference.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResultsRecord {
    /// All agree.
    pub pass: bool,
    /// Each result.
    pub outputs: Vec<ResultRecord>,
}

/// One result beside its reference.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ResultRecord {
    /// The figures.
    #[serde(flatten)]
    pub difference: DifferenceRecord,
    /// Within the tolerance.
    pub pass: bool,
    /// How they differ; empty where they agree.
    pub why: String,
}
