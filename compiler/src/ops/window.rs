//! Window geometry of convolution and pooling: data layout, kernel, strides, dilations and padding along spatial axes.
//!
//! Attributes may leave `strides`, `dilations` and `pads` empty (all 1, all 1, all 0). Automatic padding is resolved at
//! import where the spatial sizes are constants, and stays an attribute where they are symbolic.

use super::OpResult;
pub use super::data_layout::DataLayout;
use crate::attr_enum;
use crate::int::{Bounds, Int, simplify};
use crate::ops::onnx::{ExportContext, ImportContext, OnnxAttr};
use crate::tir::Cond;

attr_enum! {
    /// How padding is chosen when it is not given.
    pub enum AutoPad {
        /// `pads` holds it.
        NotSet = "notset",
        /// No padding.
        Valid = "valid",
        /// The result has `ceil(input / stride)` elements; an odd one is added at the end.
        SameUpper = "same_upper",
        /// The result has `ceil(input / stride)` elements; an odd one is added at the beginning.
        SameLower = "same_lower",
    }
}

/// The window attributes of an op, as written.
#[derive(Clone, PartialEq, Debug)]
pub struct WindowSpec {
    /// Steps of the window; empty for 1.
    pub strides: Vec<i64>,
    /// Distances of the kernel's taps; empty for 1.
    pub dilations: Vec<i64>,
    /// Padding: all beginnings, then all ends; empty for 0.
    pub pads: Vec<i64>,
    /// Automatic padding.
    pub auto_pad: AutoPad,
    /// Rounds the number of windows up.
    pub ceil_mode: bool,
}
impl WindowSpec {
    /// Reads the attributes of an ONNX node. Lists that only hold the default become empty.
    pub fn import(cx: &ImportContext<'_, '_>) -> OpResult<WindowSpec> {
        let list = |name: &str, default: i64| {
            let v = cx.attrs.ints(name).unwrap_or(&[]).to_vec();
            if v.iter().all(|&x| x == default) { vec![] } else { v }
        };
        let auto_pad = match cx.attrs.str("auto_pad").unwrap_or("NOTSET") {
            "" | "NOTSET" => AutoPad::NotSet,
            "VALID" => AutoPad::Valid,
            "SAME_UPPER" => AutoPad::SameUpper,
            "SAME_LOWER" => AutoPad::SameLower,
            other => return Err(format!("auto_pad `{other}` is unknown").into()),
        };
        let pads = if auto_pad == AutoPad::NotSet { list("pads", 0) } else { vec![] };
        let ceil_mode = cx.attrs.int("ceil_mode").unwrap_or(0) != 0;
        Ok(WindowSpec { strides: list("strides", 1), dilations: list("dilations", 1), pads, auto_pad, ceil_mode })
    }
    /// Replaces automatic padding by the padding it chooses, where that is constant.
    pub fn resolve(&mut self, kernel: &[Int], input: &[Int]) -> OpResult<()> {
        if self.auto_pad == AutoPad::NotSet {
            return Ok(());
        }
        let w = Window::new(self, kernel, input)?;
        let pads: Option<Vec<i64>> = w.begin.iter().chain(&w.end).map(Int::as_const).collect();
        if let Some(pads) = pads {
            self.pads = if pads.iter().all(|&p| p == 0) { vec![] } else { pads };
            self.auto_pad = AutoPad::NotSet;
            self.ceil_mode = false;
        }
        Ok(())
    }
    /// The ONNX attributes.
    pub fn export(&self, rank: usize) -> Vec<(&'static str, OnnxAttr)> {
        let fill = |v: &[i64], n: usize, d: i64| if v.is_empty() { vec![d; n] } else { v.to_vec() };
        let mut out = vec![
            ("strides", OnnxAttr::Ints(fill(&self.strides, rank, 1))),
            ("dilations", OnnxAttr::Ints(fill(&self.dilations, rank, 1))),
        ];
        match self.auto_pad {
            AutoPad::NotSet => out.push(("pads", OnnxAttr::Ints(fill(&self.pads, 2 * rank, 0)))),
            other => out.push(("auto_pad", OnnxAttr::Str(other.name().to_uppercase()))),
        }
        out
    }
    fn list(&self, name: &str, given: &[i64], rank: usize) -> OpResult<Vec<i64>> {
        if given.is_empty() {
            return Ok(vec![1; rank]);
        }
        if given.len() != rank || given.iter().any(|&v| v < 1) {
            return Err(format!("{name} {given:?} must be {rank} positive numbers").into());
        }
        Ok(given.to_vec())
    }
}

/// A window over spatial axes with its padding decided.
#[derive(Clone, Debug)]
pub struct Window {
    /// Taps along each axis.
    pub kernel: Vec<Int>,
    /// Steps.
    pub strides: Vec<i64>,
    /// Distances of taps.
    pub dilations: Vec<i64>,
    /// Padding before each axis.
    pub begin: Vec<Int>,
    /// Padding after each axis.
    pub end: Vec<Int>,
    ceil_mode: bool,
}
impl Window {
    /// The window of `kernel` over spatial sizes `input`.
    ///
    /// # Errors
    /// When a list has the wrong length or a value that makes no sense.
    pub fn new(spec: &WindowSpec, kernel: &[Int], input: &[Int]) -> OpResult<Window> {
        let rank = input.len();
        if kernel.len() != rank {
            return Err(format!("the kernel has {} spatial axes, the data {rank}", kernel.len()).into());
        }
        if kernel.iter().any(|k| k.as_const().is_some_and(|k| k < 1)) {
            return Err(format!("a kernel of {kernel:?} taps is empty").into());
        }
        let strides = spec.list("strides", &spec.strides, rank)?;
        let dilations = spec.list("dilations", &spec.dilations, rank)?;
        let mut w = Window {
            kernel: kernel.to_vec(),
            strides,
            dilations,
            begin: vec![Int::new(0); rank],
            end: vec![Int::new(0); rank],
            ceil_mode: spec.ceil_mode && spec.auto_pad == AutoPad::NotSet,
        };
        match spec.auto_pad {
            AutoPad::Valid => {}
            AutoPad::NotSet if spec.pads.is_empty() => {}
            AutoPad::NotSet => {
                if spec.pads.len() != 2 * rank || spec.pads.iter().any(|&p| p < 0) {
                    return Err(format!("pads {:?} must be {} numbers of 0 or more", spec.pads, 2 * rank).into());
                }
                w.begin = spec.pads[..rank].iter().map(|&p| Int::new(p)).collect();
                w.end = spec.pads[rank..].iter().map(|&p| Int::new(p)).collect();
            }
            AutoPad::SameUpper | AutoPad::SameLower => {
                for (d, size) in input.iter().enumerate() {
                    let out = size.ceil_div(w.strides[d]);
                    let total = ((out - 1) * w.strides[d] + w.reach(d) - size).max(0);
                    let small = total.div(2);
                    let large = tidy(&(total - &small));
                    let small = tidy(&small);
                    (w.begin[d], w.end[d]) =
                        if spec.auto_pad == AutoPad::SameUpper { (small, large) } else { (large, small) };
                }
            }
        }
        Ok(w)
    }
    /// Elements that the kernel spans along `axis`: `(kernel - 1) * dilation + 1`.
    pub fn reach(&self, axis: usize) -> Int {
        (self.kernel[axis].clone() - 1) * self.dilations[axis] + 1
    }
    /// Number of taps.
    pub fn taps(&self) -> Int {
        crate::int::product(&self.kernel)
    }
    /// Number of windows along each axis.
    ///
    /// # Errors
    /// When the window does not fit into the padded data.
    pub fn output(&self, input: &[Int]) -> OpResult<Vec<Int>> {
        (0..input.len())
            .map(|d| {
                let room = input[d].clone() + &self.begin[d] + &self.end[d] - self.reach(d);
                let steps = if self.ceil_mode {
                    // A window that would start in the padding after the data is dropped.
                    let last = (input[d].clone() + &self.begin[d]).ceil_div(self.strides[d]);
                    (room.ceil_div(self.strides[d]) + 1).min(last)
                } else {
                    room.div(self.strides[d]) + 1
                };
                let steps = tidy(&steps);
                // Rounded up, one window may begin in data that is smaller than it, or none does.
                let least = if self.ceil_mode { 0 } else { 1 };
                let short = !self.ceil_mode && room.as_const().is_some_and(|r| r < 0);
                if short || steps.as_const().is_some_and(|s| s < least) {
                    return Err(format!(
                        "a window of {} elements does not fit into spatial axis {d} of {} elements with padding {} and {}",
                        self.reach(d),
                        input[d],
                        self.begin[d],
                        self.end[d]
                    ).into());
                }
                Ok(steps)
            })
            .collect()
    }
    /// Position in the data of tap `tap` of window `step`, and the conditions under which it lies inside: only those
    /// that can fail.
    pub fn position(&self, axis: usize, step: &Int, tap: &Int, input: &Int, steps: &Int, conds: &mut Vec<Cond>) -> Int {
        let at = step.clone() * self.strides[axis] + tap.clone() * self.dilations[axis] - &self.begin[axis];
        if !self.begin[axis].is(0) {
            conds.push(Cond::ge(at.clone(), 0));
        }
        let highest = (steps.clone() - 1) * self.strides[axis] + self.reach(axis) - 1 - &self.begin[axis];
        let inside = match (highest.as_const(), input.as_const()) {
            (Some(h), Some(n)) => h < n,
            _ => self.end[axis].is(0) && !self.ceil_mode,
        };
        if !inside {
            conds.push(Cond::lt(at.clone(), input));
        }
        at
    }
    /// Number of taps of window `step` that lie between `low` and `high` along `axis`.
    pub fn taps_between(&self, axis: usize, step: &Int, low: &Int, high: &Int) -> Int {
        let start = step.clone() * self.strides[axis] - &self.begin[axis];
        let first = (low.clone() - &start).ceil_div(self.dilations[axis]).max(0);
        let last = (high.clone() - &start).ceil_div(self.dilations[axis]).min(&self.kernel[axis]);
        last - first
    }
}

/// Simplifies a dimension.
pub fn tidy(d: &Int) -> Int {
    simplify(d, &Bounds::new())
}

/// Writes `op_type` in ONNX's channels-first form; where the op computes in another layout, with the changes around it.
///
/// # Errors
/// A symbol in the shape of packed data that is no dimension of an input.
pub fn export_channels_first(
    cx: &mut ExportContext<'_>,
    layout: DataLayout,
    op_type: &str,
    attrs: Vec<(&str, OnnxAttr)>,
) -> OpResult<()> {
    if layout == DataLayout::Nchw {
        cx.simple(op_type, attrs);
        return Ok(());
    }
    let mut inputs: Vec<String> = (0..cx.inputs.len()).map(|i| cx.input(i)).collect();
    let data = format!("{}_nchw", cx.fresh());
    let shape = cx.input_types.first().copied().flatten().ok_or("operand 0 is missing")?.shape.clone();
    export_layout_change(cx, (layout, DataLayout::Nchw), &shape, inputs[0].clone(), data.clone())?;
    inputs[0] = data;
    let outputs = cx.outputs.clone();
    let inner: Vec<String> =
        outputs.iter().map(|o| if o.is_empty() { String::new() } else { format!("{o}_nchw") }).collect();
    cx.node(op_type, inputs, inner.clone(), attrs);
    for (i, (from, to)) in inner.into_iter().zip(outputs).enumerate().filter(|(_, (f, _))| !f.is_empty()) {
        let shape = cx.output_types[i].shape.clone();
        export_layout_change(cx, (DataLayout::Nchw, layout), &shape, from, to)?;
    }
    Ok(())
}

/// Writes the change of `input` between NCHW and another layout as ONNX nodes: a transpose, with a reshape that splits
/// or joins the channels of a packed layout. `shape` is the shape on the side that is not NCHW.
///
/// # Errors
/// A symbol in the shape of packed data that is no dimension of an input.
pub fn export_layout_change(
    cx: &mut ExportContext<'_>,
    (from, to): (DataLayout, DataLayout),
    shape: &[Int],
    input: String,
    output: String,
) -> OpResult<()> {
    let transpose = |cx: &mut ExportContext<'_>, i: String, o: String, perm: &[i64]| {
        cx.node("Transpose", vec![i], vec![o], vec![("perm", OnnxAttr::Ints(perm.to_vec()))]);
    };
    let between = format!("{output}_split");
    match (from.block(), to.block()) {
        (None, None) if from == DataLayout::Nhwc => transpose(cx, input, output, &[0, 3, 1, 2]),
        (None, None) => transpose(cx, input, output, &[0, 2, 3, 1]),
        // [n, c, h, w] -> [n, c / b, b, h, w] -> [n, c / b, h, w, b]
        (None, Some(_)) => {
            let split = cx.ints(&super::permute::permute(shape, &[0, 1, 4, 2, 3]))?;
            cx.node("Reshape", vec![input, split], vec![between.clone()], vec![]);
            transpose(cx, between, output, &[0, 1, 3, 4, 2]);
        }
        (Some(_), _) => {
            transpose(cx, input, between.clone(), &[0, 1, 4, 2, 3]);
            let joined = cx.ints(&[&shape[..1], &[from.channels(shape)], from.spatial(shape)].concat())?;
            cx.node("Reshape", vec![between, joined], vec![output], vec![]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(strides: &[i64], pads: &[i64], auto_pad: AutoPad, ceil_mode: bool) -> WindowSpec {
        WindowSpec { strides: strides.to_vec(), dilations: vec![], pads: pads.to_vec(), auto_pad, ceil_mode }
    }
    fn outputs(s: &WindowSpec, kernel: i64, input: i64) -> Result<i64, String> {
        let input = [Int::new(input)];
        let w = Window::new(s, &[Int::new(kernel)], &input)?;
        Ok(w.output(&input)?[0].as_const().expect("constant"))
    }

    #[test]
    fn automatic_padding_resolves_to_the_same_number_of_windows() {
        for auto in [AutoPad::SameUpper, AutoPad::SameLower, AutoPad::Valid] {
            for (kernel, stride, input) in [(3, 1, 7), (3, 2, 7), (2, 2, 8), (1, 3, 9), (4, 3, 11), (5, 2, 6)] {
                let mut s = spec(&[stride], &[], auto, false);
                let before = outputs(&s, kernel, input).expect("fits");
                let want =
                    if auto == AutoPad::Valid { (input - kernel) / stride + 1 } else { (input + stride - 1) / stride };
                assert_eq!(before, want);
                s.resolve(&[Int::new(kernel)], &[Int::new(input)]).expect("fits");
                assert_eq!(s.auto_pad, AutoPad::NotSet);
                assert_eq!(outputs(&s, kernel, input), Ok(want), "{auto} {kernel} {stride} {input}");
            }
        }
        let mut s = spec(&[2], &[], AutoPad::SameUpper, false);
        s.resolve(&[Int::new(2)], &[Int::new(7)]).expect("fits");
        assert_eq!(s.pads, [0, 1]);
        let mut s = spec(&[2], &[], AutoPad::SameLower, false);
        s.resolve(&[Int::new(2)], &[Int::new(7)]).expect("fits");
        assert_eq!(s.pads, [1, 0]);
    }

    #[test]
    fn rounding_up_drops_a_window_that_starts_in_the_padding() {
        assert_eq!(outputs(&spec(&[2], &[], AutoPad::NotSet, false), 3, 4), Ok(1));
        assert_eq!(outputs(&spec(&[2], &[], AutoPad::NotSet, true), 3, 4), Ok(2));
        assert_eq!(outputs(&spec(&[2], &[], AutoPad::NotSet, true), 1, 2), Ok(1));
        assert_eq!(outputs(&spec(&[3], &[1, 1], AutoPad::NotSet, true), 3, 2), Ok(1));
        assert_eq!(outputs(&spec(&[2], &[], AutoPad::NotSet, true), 2, 1), Ok(1));
        assert_eq!(outputs(&spec(&[3], &[0, 1], AutoPad::NotSet, true), 4, 1), Ok(1));
        assert_eq!(outputs(&spec(&[2], &[], AutoPad::NotSet, true), 3, 1), Ok(0));
        assert!(outputs(&spec(&[1], &[], AutoPad::NotSet, true), 5, 1).unwrap_err().contains("does not fit"));
    }

    #[test]
    fn conditions_appear_only_where_a_tap_can_leave_the_data() {
        let conds = |pads: &[i64], kernel: i64, input: i64| {
            let (input, mut conds) = ([Int::new(input)], vec![]);
            let w = Window::new(&spec(&[], pads, AutoPad::NotSet, false), &[Int::new(kernel)], &input).expect("window");
            let steps = w.output(&input).expect("fits");
            w.position(0, &Int::var("o"), &Int::var("k"), &input[0], &steps[0], &mut conds);
            conds.len()
        };
        assert_eq!([conds(&[], 3, 8), conds(&[1, 0], 3, 8), conds(&[0, 1], 3, 8), conds(&[1, 1], 3, 8)], [0, 1, 1, 2]);
    }

    #[test]
    fn windows_that_do_not_fit_and_wrong_lists_are_refused() {
        assert!(outputs(&spec(&[], &[], AutoPad::NotSet, false), 5, 4).unwrap_err().contains("does not fit"));
        assert!(outputs(&spec(&[0], &[], AutoPad::NotSet, false), 1, 4).unwrap_err().contains("strides"));
        assert!(outputs(&spec(&[], &[1], AutoPad::NotSet, false), 1, 4).unwrap_err().contains("pads"));
    }
}
