//! ONNX `Resize` (opsets 10, 11, 13, 18, 19) and `Upsample` (7, 9).

use super::{Coordinates, NearestMode, Resize, ResizeMode};
use crate::fault::Fault;
use crate::graph::ValueId;
use crate::int::{Dim, Int};
use crate::ops::OpResult;
use crate::ops::onnx::{ImportContext, OnnxImport};
use crate::ops::permute::normalize_axes;

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Upsample", domain: "", since: 7, import: import_by_scales },
    OnnxImport { op_type: "Resize", domain: "", since: 10, import: import_by_scales },
    OnnxImport { op_type: "Resize", domain: "", since: 11, import: import_resize },
];

/// The forms before opset 11: scales (an attribute, or operand 1) and asymmetric coordinates. The nearest element is
/// the one below along an axis that grows, and the one above along an axis that shrinks; where there are both, one op
/// does each.
fn import_by_scales(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let scales: Vec<f64> = match cx.attrs.floats("scales") {
        Some(s) => s.iter().map(|&v| v as f64).collect(),
        None => floats(cx, 1)?.ok_or("scales are missing")?,
    };
    let mode = mode(cx)?;
    let by =
        |nearest, scales| Resize { mode, coordinates: Coordinates::Asymmetric, nearest, scales, ..Resize::default() };
    if mode != ResizeMode::Nearest || scales.iter().all(|&s| s >= 1.0) {
        return Ok(vec![cx.add(by(NearestMode::Floor, scales), &[x])?]);
    }
    let grown: Vec<f64> = scales.iter().map(|s| s.max(1.0)).collect();
    let shrunk = by(NearestMode::Ceil, scales.iter().map(|s| s.min(1.0)).collect());
    let x = if grown.iter().all(|&s| s == 1.0) { x } else { cx.add(by(NearestMode::Floor, grown), &[x])? };
    Ok(vec![cx.add(shrunk, &[x])?])
}

fn import_resize(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let x = cx.input(0)?;
    let shape = cx.ty(0)?.shape;
    let rank = shape.len();
    let coordinates = cx.attrs.str("coordinate_transformation_mode").unwrap_or("half_pixel");
    let nearest = cx.attrs.str("nearest_mode").unwrap_or("round_prefer_floor");
    let default = Resize::default();
    let mut op = Resize {
        mode: mode(cx)?,
        coordinates: Coordinates::parse(coordinates).ok_or_else(|| {
            Fault::unsupported(format!("coordinate_transformation_mode `{coordinates}` is unsupported"))
        })?,
        nearest: NearestMode::parse(nearest)
            .ok_or_else(|| Fault::unsupported(format!("nearest_mode `{nearest}` is unsupported")))?,
        cubic_coeff_a: cx.attrs.float("cubic_coeff_a").unwrap_or(default.cubic_coeff_a),
        exclude_outside: cx.attrs.int("exclude_outside").unwrap_or(0) != 0,
        antialias: cx.attrs.int("antialias").unwrap_or(0) != 0,
        extrapolation_value: cx.attrs.float("extrapolation_value").unwrap_or(0.0),
        ..default
    };
    let axes = match cx.attrs.ints("axes") {
        Some(axes) => normalize_axes(axes, rank)?,
        None => (0..rank).collect(),
    };
    if op.coordinates == Coordinates::TfCropAndResize {
        let roi = floats(cx, 1)?.ok_or("the region of interest is missing")?;
        op.roi = [vec![0.0; rank], vec![1.0; rank]].concat();
        place(&roi, 2, &axes, |i, a, v| op.roi[a + i * rank] = v)?;
    }
    if let Some(scales) = floats(cx, 2)? {
        op.scales = vec![1.0; rank];
        place(&scales, 1, &axes, |_, a, v| op.scales[a] = v)?;
    } else {
        let sizes =
            cx.int_values(3).ok_or_else(|| Fault::unsupported("neither scales nor sizes are known at compile time"))?;
        if sizes.len() != axes.len() {
            return Err(format!("{} sizes for {} axes", sizes.len(), axes.len()).into());
        }
        op.sizes = shape.clone();
        axes.iter().zip(sizes).for_each(|(&a, s)| op.sizes[a] = s);
        keep_aspect_ratio(cx, &mut op, &axes, &shape)?;
    }
    Ok(vec![cx.add(op, &[x])?])
}

fn mode(cx: &ImportContext<'_, '_>) -> OpResult<ResizeMode> {
    let mode = cx.attrs.str("mode").unwrap_or("nearest");
    match ResizeMode::parse(mode) {
        // Old exporters name the number of axes in the mode.
        None if mode == "bilinear" || mode == "trilinear" => Ok(ResizeMode::Linear),
        found => found.ok_or_else(|| Fault::unsupported(format!("mode `{mode}` is unsupported"))),
    }
}

/// The floats of operand `i`, which must be constant; `None` when it is absent or empty.
fn floats(cx: &ImportContext<'_, '_>, i: usize) -> OpResult<Option<Vec<f64>>> {
    match cx.opt(i) {
        None => Ok(None),
        Some(v) if cx.b.ty(v).numel().is(0) => Ok(None),
        Some(_) => match cx.const_tensor(i) {
            Some(t) => Ok(Some(t.to_f64_vec())),
            None => Err(Fault::unsupported(format!("input {i} is not known at compile time"))),
        },
    }
}

/// Calls `set(group, axis, value)` for `groups` lists of one value per axis.
fn place(values: &[f64], groups: usize, axes: &[usize], mut set: impl FnMut(usize, usize, f64)) -> OpResult<()> {
    if values.len() != groups * axes.len() {
        return Err(format!("{} values for {} axes", values.len(), axes.len()).into());
    }
    for (n, &v) in values.iter().enumerate() {
        set(n / axes.len(), axes[n % axes.len()], v);
    }
    Ok(())
}

/// With a policy other than `stretch` all axes get the same scale: the smallest or the largest that the sizes ask for.
fn keep_aspect_ratio(cx: &ImportContext<'_, '_>, op: &mut Resize, axes: &[usize], shape: &[Dim]) -> OpResult<()> {
    let pick = match cx.attrs.str("keep_aspect_ratio_policy").unwrap_or("stretch") {
        "stretch" => return Ok(()),
        "not_larger" => f64::min,
        "not_smaller" => f64::max,
        other => return Err(Fault::unsupported(format!("keep_aspect_ratio_policy `{other}` is unsupported"))),
    };
    let known = |d: &Int| d.as_const().map(|c| c as f64).ok_or("keep_aspect_ratio_policy needs constant sizes");
    let mut scale: Option<f64> = None;
    for &a in axes {
        let s = known(&op.sizes[a])? / known(&shape[a])?;
        scale = Some(scale.map_or(s, |other| pick(other, s)));
    }
    let scale = scale.unwrap_or(1.0);
    op.scales = vec![1.0; shape.len()];
    for &a in axes {
        op.scales[a] = scale;
        op.sizes[a] = Int::new((scale * known(&shape[a])? + 0.5).floor() as i64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::ops::onnx::OnnxAttr;
    use crate::ops::testing::run_onnx;
    use crate::tensor::Tensor;

    #[test]
    fn old_forms_take_the_element_above_where_an_axis_shrinks() {
        let x = Tensor::from_vec(vec![2, 5], (0..10).map(|v| v as f32).collect());
        let by = |scales: [f32; 2]| {
            let attrs = [("scales", OnnxAttr::Floats(scales.to_vec()))];
            run_onnx(("Upsample", 7), &attrs, &[Some(&x)], 1).unwrap().remove(0)
        };
        assert_eq!(by([1.0, 0.6]).to_i64_vec(), [0, 2, 4, 5, 7, 9]);
        assert_eq!(by([1.5, 1.0]).to_i64_vec(), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(by([2.0, 0.4]).to_i64_vec(), [0, 3, 0, 3, 5, 8, 5, 8]);
    }
}
