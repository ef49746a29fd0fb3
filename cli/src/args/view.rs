//! Options of `weft view` and `weft report`.

use super::paths::{path_of, png_or_svg};
use super::{Common, InputArgs};
use clap::Args;
use std::path::PathBuf;

/// `weft view`
#[derive(Args, Debug)]
#[command(group(clap::ArgGroup::new("picture").args(["screenshot", "output", "steps"])))]
pub struct ViewArgs {
    /// Model: a path or a zoo name, which is compiled; or a compile trace
    pub model: String,
    /// Open no window: write what it would show as a picture
    #[arg(long, value_name = "F.png", value_parser = path_of("png"))]
    pub screenshot: Option<PathBuf>,
    /// Open no window: write a picture of the graph alone, or of the box of --select, opened
    #[arg(short, long, value_name = "F.png|F.svg", value_parser = png_or_svg())]
    pub output: Option<PathBuf>,
    /// In the picture of -o, the box of --select is as it is, and not opened
    #[arg(long, requires = "output", requires = "select")]
    pub closed: bool,
    /// Open no window: drive it with the steps of a file, one a line, as `click Why?`, and print them with seconds
    #[arg(long, value_name = "FILE")]
    pub steps: Option<PathBuf>,
    /// Show the graph after this pass, by its name or its number; `source` is the model as it came
    #[arg(long)]
    pub pass: Option<String>,
    /// Select a node, by its name, by its source node's name, or by a part of one
    #[arg(long, value_name = "NODE")]
    pub select: Option<String>,
    /// View to show: graph, whole, nodes, hulls, compare, node, kernel, kernels, text, groups, time, timeline,
    /// roofline, memory, precision, wrong, slow, left, remarks, difference
    #[arg(long)]
    pub view: Option<String>,
    /// Search the graph, as in the field at the top: `op:softmax`, `time>0.1ms fused:no`
    #[arg(long, value_name = "QUERY")]
    pub search: Option<String>,
    /// Meaning of colours: work, group, dtype, layout, time, error, accumulated, range, overlay, difference
    #[arg(long, value_name = "WORD")]
    pub colour: Option<String>,
    /// Values of nodes to colour boxes by: {"NODE": number or text}, NODE,VALUE lines, or a profile of ONNX Runtime
    #[arg(long, value_name = "F.json|F.csv")]
    pub overlay: Option<PathBuf>,
    /// Another compilation at the right of this one, matched by its nodes; of another model by what these compute
    #[arg(long, value_name = "F.trace|MODEL")]
    pub beside: Option<PathBuf>,
    /// Width and height of the window in points
    #[arg(long, value_name = "WxH", default_value = "1400x900", value_parser = window_size)]
    pub size: [f32; 2],
    /// Pixels of the picture a point, from 0.5 to 4
    #[arg(long, value_name = "N", default_value = "1", value_parser = pixel_density, requires = "picture")]
    pub pixels: f32,
    /// Light on dark
    #[arg(long)]
    pub dark: bool,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// `weft report`
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Model: a path or a zoo name, which is compiled; or a compile trace
    pub model: String,
    /// Further traces of the same compilation, for what they measured: times (`bench -o`), errors of each node alone
    /// (`compare -o`) and accumulated (`compare --cumulative -o`)
    #[arg(value_name = "F.trace")]
    pub traces: Vec<PathBuf>,
    /// Another compilation of the model to compare with: a verdict, and a table of all layers with both times
    #[arg(long, value_name = "B.trace|MODEL")]
    pub beside: Option<PathBuf>,
    /// The page to write
    #[arg(short = 'o', long = "output", value_name = "F.html", value_parser = path_of("html"))]
    pub output: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub input: InputArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub common: Common,
}

/// A size that a window can have.
fn window_size(text: &str) -> Result<[f32; 2], String> {
    let side = |t: &str| t.parse().ok().filter(|n: &f32| (200.0..=8192.0).contains(n));
    let size = text.split_once(['x', '×']).and_then(|(w, h)| Some([side(w)?, side(h)?]));
    size.ok_or_else(|| "give a width and a height from 200 to 8192, as 1400x900".to_string())
}

/// Pixels a point that a picture can have.
fn pixel_density(text: &str) -> Result<f32, String> {
    let density = text.parse().ok().filter(|n: &f32| (0.5..=4.0).contains(n));
    density.ok_or_else(|| "give a number from 0.5 to 4".to_string())
}
