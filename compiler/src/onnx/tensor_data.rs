//! `TensorProto` to constants and back.

use super::error::ImportError;
use super::external::{ExternalData, verify_location};
use super::proto::{OptionalProto, SequenceProto, SparseTensorProto, TensorProto};
use super::skim::MODEL_FILE;
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::Constant;
use crate::name::Name;
use crate::ops::narrow::Narrow;
use crate::tensor::{ConstData, DataSource, Element, Tensor};
use bytes::Bytes;
use half::{bf16, f16};
use prost::Message;
use std::sync::Arc;

/// Why a tensor could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TensorError {
    /// An element type that Weft does not have.
    Type(String),
    /// Anything else.
    Invalid(String),
}
impl TensorError {
    /// As an import error about `what` `name`.
    pub(crate) fn about(self, what: &'static str, name: &str) -> ImportError {
        let name = Name::new(name);
        match self {
            TensorError::Type(ty) => ImportError::UnsupportedType { what, name, ty },
            TensorError::Invalid(message) => ImportError::InvalidValue { what, name, message },
        }
    }
}
impl From<TensorError> for Fault {
    fn from(e: TensorError) -> Fault {
        match e {
            TensorError::Type(ty) => Fault::unsupported(format!("unsupported element type {ty}")),
            TensorError::Invalid(message) => message.into(),
        }
    }
}
impl From<Fault> for TensorError {
    fn from(fault: Fault) -> TensorError {
        TensorError::Invalid(fault.message)
    }
}
impl From<String> for TensorError {
    fn from(message: String) -> Self {
        TensorError::Invalid(message)
    }
}

/// Names of ONNX element types by their code, as in onnx.proto.
const TYPE_NAMES: [&str; 27] = [
    "undefined",
    "float",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "string",
    "bool",
    "float16",
    "double",
    "uint32",
    "uint64",
    "complex64",
    "complex128",
    "bfloat16",
    "float8e4m3fn",
    "float8e4m3fnuz",
    "float8e5m2",
    "float8e5m2fnuz",
    "uint4",
    "int4",
    "float4e2m1",
    "float8e8m0",
    "uint2",
    "int2",
];

/// The element type of an ONNX code.
///
/// # Errors
/// The ONNX name of a type that Weft does not have.
pub fn dtype_from_onnx(code: i32) -> Result<DType, String> {
    Ok(match code {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        16 => DType::BF16,
        other => {
            let known = usize::try_from(other).ok().and_then(|i| TYPE_NAMES.get(i));
            return Err(known.map_or_else(|| format!("number {other}"), |s| s.to_string()));
        }
    })
}

/// The type that elements of an ONNX code are kept in: that type, or the bytes of one that Weft only stores.
///
/// # Errors
/// The ONNX name of a type that Weft does not have.
pub fn stored_dtype(code: i32) -> Result<DType, String> {
    match Narrow::of_onnx(code.into()) {
        Some(narrow) => Ok(narrow.carrier()),
        None => dtype_from_onnx(code),
    }
}

/// The ONNX code of an element type.
pub fn dtype_to_onnx(dtype: DType) -> i32 {
    match dtype {
        DType::F32 => 1,
        DType::U8 => 2,
        DType::I8 => 3,
        DType::U16 => 4,
        DType::I16 => 5,
        DType::I32 => 6,
        DType::I64 => 7,
        DType::Bool => 9,
        DType::F16 => 10,
        DType::F64 => 11,
        DType::U32 => 12,
        DType::U64 => 13,
        DType::BF16 => 16,
    }
}

fn read_shape(dims: &[i64]) -> Result<Vec<usize>, TensorError> {
    let shape: Option<Vec<usize>> = dims.iter().map(|&d| usize::try_from(d).ok()).collect();
    shape.ok_or_else(|| TensorError::Invalid(format!("the shape {dims:?} has a negative dimension")))
}

/// Reads a tensor; external data becomes a lazy source.
pub(crate) fn read_constant(t: &TensorProto, external: &dyn ExternalData) -> Result<Constant, TensorError> {
    let narrow = Narrow::of_onnx(t.data_type.unwrap_or(0).into());
    let dtype = stored_dtype(t.data_type.unwrap_or(0)).map_err(TensorError::Type)?;
    let shape = read_shape(&t.dims)?;
    let len = shape.iter().try_fold(1usize, |a, &d| a.checked_mul(d));
    // Elements of a few bits share bytes.
    let bytes = len.and_then(|n| Some(n.checked_mul(narrow.map_or(8 * dtype.size(), Narrow::bits))?.div_ceil(8)));
    let (Some(len), Some(byte_len)) = (len, bytes) else {
        return Err(TensorError::Invalid(format!("the shape {shape:?} is too large")));
    };
    let data = if t.data_location == Some(1) {
        match (read_external(t, byte_len as u64, external)?, narrow) {
            (ConstData::Lazy(source), Some(narrow)) => ConstData::Lazy(Arc::new(Unpacked { source, narrow, len })),
            (data, _) => data,
        }
    } else {
        let inline = match t.raw_data.as_ref().filter(|raw| !raw.is_empty()) {
            Some(raw) => raw.clone(),
            // Each entry has the bits of one byte.
            None if narrow.is_some() => read_typed(t, DType::U8, byte_len)?,
            None => read_typed(t, dtype, len)?,
        };
        if inline.len() != byte_len {
            let name = narrow.map_or(dtype.name(), Narrow::name);
            return Err(TensorError::Invalid(format!("{name}{shape:?} needs {byte_len} bytes, got {}", inline.len())));
        }
        ConstData::Inline(match (narrow, dtype) {
            (Some(narrow), _) if narrow.bits() < 8 => narrow.unpack(&inline, len).into(),
            (_, DType::Bool) => normalize_bools(inline),
            _ => inline,
        })
    };
    Ok(Constant { dtype, shape, data })
}

/// Elements of a few bits in a file, a byte each.
struct Unpacked {
    source: Arc<dyn DataSource>,
    narrow: Narrow,
    len: usize,
}
impl DataSource for Unpacked {
    fn read(&self) -> Result<Bytes, Fault> {
        self.source.read().map(|packed| self.narrow.unpack(&packed, self.len).into())
    }
    fn identity(&self) -> Option<String> {
        self.source.identity().map(|of| format!("{} of {of}", self.narrow.name()))
    }
}

/// A tensor is one byte of 0 or 1 per bool; files may hold any non-zero byte for true.
fn normalize_bools(data: Bytes) -> Bytes {
    if data.iter().all(|&b| b <= 1) { data } else { data.iter().map(|&b| (b != 0) as u8).collect() }
}

fn read_external(t: &TensorProto, byte_len: u64, external: &dyn ExternalData) -> Result<ConstData, TensorError> {
    let entry =
        |key: &str| t.external_data.iter().find(|e| e.key.as_deref() == Some(key)).and_then(|e| e.value.as_deref());
    let number = |key: &str| -> Result<Option<u64>, TensorError> {
        let text = entry(key);
        let parse = |v: &str| {
            v.trim().parse().map_err(|_| TensorError::Invalid(format!("external data {key} `{v}` is no number")))
        };
        text.map(parse).transpose()
    };
    let location = entry("location").ok_or_else(|| TensorError::Invalid("external data has no location".into()))?;
    let inline = location == MODEL_FILE;
    if !inline {
        verify_location(location)?;
    }
    let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?.unwrap_or(byte_len));
    if length != byte_len {
        let (dtype, whose) = (t.data_type.unwrap_or(0), if inline { "got" } else { "its external data has" });
        let dtype = stored_dtype(dtype).map_err(TensorError::Type)?;
        return Err(TensorError::Invalid(format!("{dtype}{:?} needs {byte_len} bytes, {whose} {length}", t.dims)));
    }
    offset.checked_add(length).ok_or_else(|| TensorError::Invalid("external data ends beyond any file".into()))?;
    let source = external.open(location, offset, Some(length))?;
    let bools = t.data_type == Some(dtype_to_onnx(DType::Bool));
    Ok(ConstData::Lazy(if bools { Arc::new(Bools(source)) } else { source }))
}

/// Bools of a file, as [`normalize_bools`] leaves them.
struct Bools(Arc<dyn DataSource>);
impl DataSource for Bools {
    fn read(&self) -> Result<Bytes, Fault> {
        self.0.read().map(normalize_bools)
    }
    fn identity(&self) -> Option<String> {
        self.0.identity().map(|of| format!("bools of {of}"))
    }
}

/// The fields for typed data: which one holds a type is fixed by onnx.proto.
fn read_typed(t: &TensorProto, dtype: DType, len: usize) -> Result<Bytes, TensorError> {
    fn pack<S: Copy, T: Element>(
        dtype: DType,
        len: usize,
        from: &[S],
        f: impl Fn(S) -> T,
    ) -> Result<Bytes, TensorError> {
        if from.len() != len {
            return Err(TensorError::Invalid(format!("needs {len} elements of {dtype}, got {}", from.len())));
        }
        let values: Vec<T> = from.iter().map(|&v| f(v)).collect();
        Ok(bytemuck::cast_slice::<T, u8>(&values).to_vec().into())
    }
    match dtype {
        DType::F32 => pack(dtype, len, &t.float_data, |v| v),
        DType::F64 => pack(dtype, len, &t.double_data, |v| v),
        DType::I64 => pack(dtype, len, &t.int64_data, |v| v),
        DType::U64 => pack(dtype, len, &t.uint64_data, |v| v),
        DType::U32 => pack(dtype, len, &t.uint64_data, |v| v as u32),
        DType::I32 => pack(dtype, len, &t.int32_data, |v| v),
        DType::I16 => pack(dtype, len, &t.int32_data, |v| v as i16),
        DType::I8 => pack(dtype, len, &t.int32_data, |v| v as i8),
        DType::U16 => pack(dtype, len, &t.int32_data, |v| v as u16),
        DType::U8 => pack(dtype, len, &t.int32_data, |v| v as u8),
        DType::Bool => pack(dtype, len, &t.int32_data, |v| (v != 0) as u8),
        DType::F16 => pack(dtype, len, &t.int32_data, |v| f16::from_bits(v as u16)),
        DType::BF16 => pack(dtype, len, &t.int32_data, |v| bf16::from_bits(v as u16)),
    }
}

/// The most elements a sparse tensor may have when it is made dense.
const SPARSE_LIMIT: usize = 1 << 28;

/// Reads a sparse tensor into a dense one. Indices are linear (`[nnz]`) or coordinates (`[nnz, rank]`).
pub(crate) fn read_sparse(s: &SparseTensorProto, external: &dyn ExternalData) -> Result<Constant, TensorError> {
    let part = |t: &Option<TensorProto>, what: &str| -> Result<Tensor, TensorError> {
        let t = t.as_ref().ok_or_else(|| TensorError::Invalid(format!("a sparse tensor without {what}")))?;
        Ok(read_constant(t, external)?.load()?)
    };
    let (values, indices) = (part(&s.values, "values")?, part(&s.indices, "indices")?);
    let shape = read_shape(&s.dims)?;
    let len = shape.iter().try_fold(1usize, |a, &d| a.checked_mul(d)).filter(|&n| n <= SPARSE_LIMIT);
    let Some(len) = len else { return Err(TensorError::Invalid(format!("the shape {shape:?} is too large"))) };
    let (size, at) = (values.dtype().size(), indices.to_i64_vec());
    let width = if indices.shape().len() == 2 { shape.len() } else { 1 };
    if at.len() != values.len() * width {
        return Err(TensorError::Invalid(format!("{} indices for {} values", at.len(), values.len())));
    }
    let mut dense = vec![0u8; len * size];
    for n in 0..values.len() {
        let index = &at[n * width..(n + 1) * width];
        let inside = width == 1 || index.iter().zip(&shape).all(|(&i, &d)| i >= 0 && (i as usize) < d);
        let flat = if width == 1 { index[0] } else { index.iter().zip(&shape).fold(0, |a, (&i, &d)| a * d as i64 + i) };
        let Some(flat) = usize::try_from(flat).ok().filter(|&f| inside && f < len) else {
            return Err(TensorError::Invalid(format!("the index {index:?} is outside {shape:?}")));
        };
        dense[flat * size..(flat + 1) * size].copy_from_slice(&values.bytes()[n * size..(n + 1) * size]);
    }
    Ok(Constant { dtype: values.dtype(), shape, data: ConstData::Inline(dense.into()) })
}

/// A tensor as a message with `raw_data`.
pub(crate) fn write_tensor(name: &str, t: &Tensor) -> TensorProto {
    TensorProto {
        dims: t.shape().iter().map(|&d| d as i64).collect(),
        data_type: Some(dtype_to_onnx(t.dtype())),
        name: (!name.is_empty()).then(|| name.to_string()),
        raw_data: Some(t.bytes().clone()),
        ..TensorProto::default()
    }
}

/// Reads a serialized `TensorProto` (the `.pb` files of `test_data_set_*` folders): its name and the tensor.
///
/// # Errors
/// [`ImportError::Malformed`] for bytes that are no tensor, and what is wrong with the tensor otherwise.
pub fn parse_tensor_proto(bytes: Bytes) -> Result<(String, Tensor), ImportError> {
    let t = TensorProto::decode(bytes).map_err(|e| ImportError::Malformed(format!("not a tensor: {e}")))?;
    Ok((t.name.clone().unwrap_or_default(), load_proto(&t)?))
}

/// A value in a `.pb` file of a `test_data_set_*` folder.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueData {
    /// A tensor.
    Tensor(Tensor),
    /// A sequence of tensors, itself or in an optional.
    Sequence(Vec<Tensor>),
    /// An optional without an element.
    Nothing,
}

/// The kind of an input or result of a model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueKind {
    /// A tensor.
    Tensor,
    /// A list of tensors.
    Sequence,
    /// A tensor or a sequence, or nothing.
    Optional,
}

/// Reads the serialized value of an input or result of this kind: its name and what it holds.
///
/// # Errors
/// As [`parse_tensor_proto`]; also sequences of other things than tensors.
pub fn parse_value_proto(bytes: Bytes, kind: ValueKind) -> Result<(String, ValueData), ImportError> {
    let malformed = |e: prost::DecodeError| ImportError::Malformed(format!("not a value of its type: {e}"));
    let sequence = |s: SequenceProto| -> Result<ValueData, ImportError> {
        if s.elem_type.unwrap_or(0) > 1 {
            let name = Name::new(s.name.as_deref().unwrap_or(""));
            return Err(ImportError::UnsupportedType {
                what: "value",
                name,
                ty: "sequence of other than tensors".into(),
            });
        }
        s.tensor_values.iter().map(load_proto).collect::<Result<_, _>>().map(ValueData::Sequence)
    };
    match kind {
        ValueKind::Tensor => parse_tensor_proto(bytes).map(|(name, t)| (name, ValueData::Tensor(t))),
        ValueKind::Sequence => {
            let s = SequenceProto::decode(bytes).map_err(malformed)?;
            Ok((s.name.clone().unwrap_or_default(), sequence(s)?))
        }
        ValueKind::Optional => {
            let o = OptionalProto::decode(bytes).map_err(malformed)?;
            let name = o.name.clone().unwrap_or_default();
            let data = match (o.tensor_value, o.sequence_value) {
                (Some(t), _) => ValueData::Tensor(load_proto(&t)?),
                (None, Some(s)) => sequence(s)?,
                (None, None) => ValueData::Nothing,
            };
            Ok((name, data))
        }
    }
}

fn load_proto(t: &TensorProto) -> Result<Tensor, ImportError> {
    let name = t.name.clone().unwrap_or_default();
    let constant = read_constant(t, &super::NoExternalData).map_err(|e| e.about("tensor", &name))?;
    constant.load().map_err(|e| TensorError::from(e).about("tensor", &name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(code: i32, fill: impl FnOnce(&mut TensorProto)) -> Result<Tensor, TensorError> {
        let mut t = TensorProto { dims: vec![2], data_type: Some(code), ..TensorProto::default() };
        fill(&mut t);
        Ok(read_constant(&t, &crate::onnx::NoExternalData)?.load()?)
    }

    #[test]
    fn typed_fields_of_every_type() {
        for code in [2, 3, 4, 5, 6, 9] {
            assert_eq!(typed(code, |t| t.int32_data = vec![1, 0]).unwrap().to_f64_vec(), [1.0, 0.0], "{code}");
        }
        for code in [12, 13] {
            assert_eq!(typed(code, |t| t.uint64_data = vec![7, 9]).unwrap().to_i64_vec(), [7, 9], "{code}");
        }
        assert_eq!(typed(7, |t| t.int64_data = vec![-7, 9]).unwrap().to_i64_vec(), [-7, 9]);
        assert_eq!(typed(1, |t| t.float_data = vec![0.5, -2.0]).unwrap().to_f64_vec(), [0.5, -2.0]);
        assert_eq!(typed(11, |t| t.double_data = vec![0.5, -2.0]).unwrap().to_f64_vec(), [0.5, -2.0]);
        // 1.0 and -2.0 as bits.
        assert_eq!(typed(10, |t| t.int32_data = vec![0x3c00, 0xc000]).unwrap().to_f64_vec(), [1.0, -2.0]);
        assert_eq!(typed(16, |t| t.int32_data = vec![0x3f80, 0xc000]).unwrap().to_f64_vec(), [1.0, -2.0]);
    }

    #[test]
    fn elements_of_a_few_bits_share_bytes() {
        assert_eq!(typed(22, |t| t.int32_data = vec![0x2f]).unwrap().to_i64_vec(), [-1, 2]);
        assert_eq!(typed(21, |t| t.raw_data = Some(vec![0x2f].into())).unwrap().to_i64_vec(), [15, 2]);
        assert_eq!(typed(17, |t| t.int32_data = vec![0x2f, 0x80]).unwrap().to_i64_vec(), [0x2f, 0x80]);
        assert_eq!(typed(26, |t| t.raw_data = Some(vec![0b0110].into())).unwrap().to_i64_vec(), [-2, 1]);
    }

    #[test]
    fn wrong_lengths_and_types_are_refused() {
        assert!(
            typed(1, |t| t.float_data = vec![1.0])
                .map_err(Fault::from)
                .unwrap_err()
                .message
                .contains("needs 2 elements")
        );
        assert!(
            typed(1, |t| t.raw_data = Some(vec![0; 7].into()))
                .map_err(Fault::from)
                .unwrap_err()
                .message
                .contains("needs 8 bytes")
        );
        assert!(
            typed(22, |_| ()).map_err(Fault::from).unwrap_err().message.contains("needs 1 elements"),
            "two integers of four bits share a byte"
        );
        assert_eq!(typed(8, |_| ()).unwrap_err(), TensorError::Type("string".into()));
        assert_eq!(typed(99, |_| ()).unwrap_err(), TensorError::Type("number 99".into()));
        assert!(
            typed(1, |t| t.dims = vec![i64::MAX, i64::MAX])
                .map_err(Fault::from)
                .unwrap_err()
                .message
                .contains("too large")
        );
        assert!(typed(1, |t| t.dims = vec![-1]).map_err(Fault::from).unwrap_err().message.contains("negative"));
    }

    #[test]
    fn tensor_protos_round_trip() {
        let t = Tensor::from_vec(vec![2, 1], vec![1.5f32, -3.0]);
        let bytes = write_tensor("x", &t).encode_to_vec();
        assert_eq!(parse_tensor_proto(bytes.clone().into()).unwrap(), ("x".into(), t));
        for end in 0..bytes.len() {
            assert!(parse_tensor_proto(Bytes::copy_from_slice(&bytes[..end])).is_err(), "prefix {end}");
        }
    }

    #[test]
    fn sparse_becomes_dense() {
        let values = write_tensor("", &Tensor::from_vec(vec![2], vec![5f32, 6.0]));
        let coordinates = write_tensor("", &Tensor::from_vec(vec![2, 2], vec![0i64, 1, 1, 0]));
        let mut s = SparseTensorProto { values: Some(values), indices: Some(coordinates), dims: vec![2, 2] };
        let read = |s: &SparseTensorProto| read_sparse(s, &crate::onnx::NoExternalData);
        assert_eq!(read(&s).unwrap().load().unwrap().to_f64_vec(), [0.0, 5.0, 6.0, 0.0]);
        s.indices = Some(write_tensor("", &Tensor::ints(&[1, 4])));
        assert!(read(&s).map_err(Fault::from).unwrap_err().message.contains("outside"));
    }
}
