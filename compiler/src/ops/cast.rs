//! Conversion between element types.
//!
//! A value that an op computes in f16 or bf16 has *excess precision* until it is stored, in a model of f16 tensors as
//! in mixed precision: the number of intermediate roundings depends on fusion. A cast that the model's author wrote is
//! the exception. It rounds to f16 or bf16 wherever it is computed (in tensor IR `quantizef16` and `quantizebf16`),
//! unless it has `excess_precision`, like the casts that mixed precision inserts. No pass removes a cast whose operand
//! may have excess precision. Shaders round on bits (`shaders-gen/src/half.rs`), so the result is the same on every
//! device, also for subnormals and infinities.

use super::narrow::{self, Narrow, PowerRounding};
use super::{Decoding, InferContext, Op, OpResult};
use crate::attr_struct;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{TensorType, ValueId};
use crate::int::Dim;
use crate::ops::onnx::{ExportContext, FloatTypes, ImportContext, OnnxAttr, OnnxImport};
use crate::te::ComputeContext;
use crate::tir::Expr;

attr_struct! {
    /// Converts every element. Floats to integers truncate and saturate; to bool is `!= 0`; to f16 and bf16 they round
    /// to the nearest, ties to even, and beyond the range to infinity.
    pub struct Cast("cast") {
        /// The new element type.
        pub to: DType = DType::F32,
        /// The result may keep more precision than its type has until it is stored. Only for casts that say where
        /// memory is narrower, as those of mixed precision; a cast that the model's author wrote rounds, fused or not.
        pub excess_precision: bool = false,
    }
}
impl Cast {
    /// A cast that rounds.
    pub fn new(to: DType) -> Cast {
        Cast { to, excess_precision: false }
    }
    /// A cast that decides about memory only.
    pub fn of_storage(to: DType) -> Cast {
        Cast { to, excess_precision: true }
    }
    /// True when leaving the cast out would change values: the operand, of the result's own type, may still have excess
    /// precision.
    pub fn rounds(&self) -> bool {
        matches!(self.to, DType::F16 | DType::BF16) && !self.excess_precision
    }
}
impl Op for Cast {
    fn arity(&self) -> (usize, usize) {
        (1, 1)
    }
    fn infer(&self, cx: &InferContext<'_>) -> OpResult<Vec<TensorType>> {
        Ok(vec![TensorType::new(self.to, cx.require(0)?.shape.clone())])
    }
    fn infer_value(&self, cx: &InferContext<'_>) -> Option<Vec<Dim>> {
        let values = cx.int_input(0)?;
        match self.to {
            DType::I64 | DType::I32 | DType::U64 | DType::U32 | DType::F32 | DType::F64 => Some(values),
            DType::Bool => Some(values.iter().map(|d| d.max(Dim::new(0) - d).min(1)).collect()),
            _ => None,
        }
    }
    fn compute(&self, cx: &mut ComputeContext<'_>) -> OpResult<()> {
        let x = cx.require(0)?;
        let (from, shape) = (cx.dtype(x), cx.shape(x));
        let out = cx.compute("", &shape, self.to, |i| {
            let value = Expr::load(x, i.to_vec());
            if self.excess_precision { value.cast(from, self.to) } else { value.rounded_cast(from, self.to) }
        });
        cx.output(0, out);
        Ok(())
    }
    fn decodes(&self) -> Option<Decoding> {
        self.to.is_float().then_some(Decoding::Elements)
    }
    fn onnx_floats(&self) -> FloatTypes {
        FloatTypes::Own
    }
    fn export(&self, cx: &mut ExportContext<'_>) -> OpResult<()> {
        cx.simple("Cast", vec![("to", OnnxAttr::Int(onnx_code(self.to)))]);
        Ok(())
    }
}

/// ONNX's codes of element types (`TensorProto.DataType`).
const CODES: [(i64, DType); 13] = [
    (1, DType::F32),
    (2, DType::U8),
    (3, DType::I8),
    (4, DType::U16),
    (5, DType::I16),
    (6, DType::I32),
    (7, DType::I64),
    (9, DType::Bool),
    (10, DType::F16),
    (11, DType::F64),
    (12, DType::U32),
    (13, DType::U64),
    (16, DType::BF16),
];

/// ONNX's code of an element type.
pub fn onnx_code(dtype: DType) -> i64 {
    CODES.iter().find(|c| c.1 == dtype).map_or(0, |c| c.0)
}

/// The element type of an ONNX code.
///
/// # Errors
/// For types that Weft does not compute in (strings, complex, [narrow ones](super::narrow)).
pub fn dtype_of_onnx(code: i64) -> OpResult<DType> {
    CODES
        .iter()
        .find(|c| c.0 == code)
        .map(|c| c.1)
        .ok_or_else(|| Fault::unsupported(format!("element type {code} of ONNX is unsupported")))
}

/// ONNX importers.
pub const ONNX: &[OnnxImport] = &[
    OnnxImport { op_type: "Cast", domain: "", since: 6, import: import_cast },
    OnnxImport { op_type: "CastLike", domain: "", since: 15, import: import_cast_like },
];

/// The target of a cast.
enum Target {
    Plain(DType),
    Narrow(Narrow),
}

fn import_cast(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let code = cx.attrs.int("to").ok_or("attribute `to` is missing")?;
    let to = match Narrow::of_onnx(code) {
        Some(narrow) => Target::Narrow(narrow),
        None => Target::Plain(dtype_of_onnx(code)?),
    };
    cast_to(cx, to)
}

fn import_cast_like(cx: &mut ImportContext<'_, '_>) -> OpResult<Vec<ValueId>> {
    let to = match cx.take_narrow(1) {
        Some(narrow) => Target::Narrow(narrow),
        None => Target::Plain(cx.ty(1)?.dtype),
    };
    cast_to(cx, to)
}

/// Operand 0 as another type. What Weft only stores is widened first.
fn cast_to(cx: &mut ImportContext<'_, '_>, to: Target) -> OpResult<Vec<ValueId>> {
    let mut x = cx.input(0)?;
    if let Some(from) = cx.take_narrow(0) {
        x = narrow::widen(cx, x, from)?;
    }
    Ok(vec![match to {
        Target::Plain(to) => cx.add(Cast::new(to), &[x])?,
        Target::Narrow(to) => {
            let rounding = match cx.attrs.str("round_mode").unwrap_or("up") {
                "up" => PowerRounding::Up,
                "down" => PowerRounding::Down,
                "nearest" => PowerRounding::Nearest,
                other => return Err(format!("round_mode `{other}` is unknown").into()),
            };
            cx.narrow_result = Some(to);
            let saturate = cx.attrs.int("saturate").unwrap_or(1) != 0;
            narrow::narrow(cx, x, to, saturate, rounding)?
        }
    }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::run;
    use crate::tensor::Tensor;

    #[test]
    fn floats_truncate_and_saturate() {
        let x = Tensor::from_vec(vec![4], vec![-1.9f32, 300.0, 0.5, f32::NAN]);
        assert_eq!(run(Cast::new(DType::U8), &[&x]).to_i64_vec(), [0, 255, 0, 0]);
        assert_eq!(run(Cast::new(DType::I8), &[&x]).to_i64_vec()[..3], [-1, 127, 0]);
        assert_eq!(run(Cast::new(DType::Bool), &[&x]).to_i64_vec()[..3], [1, 1, 1]);
        assert_eq!(run(Cast::new(DType::F16), &[&Tensor::scalar(1e-9f32)]).to_f64_vec(), [0.0]);
    }

    #[test]
    fn codes_go_both_ways() {
        for t in DType::ALL {
            assert_eq!(dtype_of_onnx(onnx_code(t)), Ok(t));
        }
        assert!(dtype_of_onnx(8).is_err());
    }
}
