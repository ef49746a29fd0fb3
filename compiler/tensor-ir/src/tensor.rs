//! Host tensors: dtype, shape and little-endian bytes, shared and cheap to clone.

use crate::dtype::DType;
use crate::fault::Fault;
use bytes::{Bytes, BytesMut};
use half::{bf16, f16};
use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Largest number of dimensions of a tensor. Real networks have far fewer; a file with a billion is damaged.
pub const MAX_RANK: usize = 64;

/// The most bytes of one piece of host memory.
static HOST_LIMIT: AtomicUsize = AtomicUsize::new(isize::MAX as usize);

/// Sets the largest number of bytes that [`reserve`] gives at once. The compiler does not know the machine: the calling
/// program says how much memory there is. So a size read from a file is refused before the system kills the process.
pub fn limit_host_memory(bytes: usize) {
    HOST_LIMIT.store(bytes, Ordering::Relaxed);
}

thread_local!(static RESERVING: Cell<bool> = const { Cell::new(false) });

/// True while this thread is in [`reserve`], which expects that the system has no memory. For allocators.
pub fn is_reserving() -> bool {
    RESERVING.try_with(Cell::get).unwrap_or(false)
}

/// An empty vector with room for `len` elements. All memory whose size comes from a file or from data is allocated
/// here.
///
/// # Errors
/// When the room is beyond the limit of [`limit_host_memory`], or the system refuses it.
pub fn reserve<T>(len: usize) -> Result<Vec<T>, Fault> {
    let limit = HOST_LIMIT.load(Ordering::Relaxed);
    let bytes = len.checked_mul(size_of::<T>());
    let mut out = Vec::new();
    RESERVING.set(true);
    let refused = bytes.is_none_or(|b| b > limit) || out.try_reserve_exact(len).is_err();
    RESERVING.set(false);
    if refused {
        let size = bytes.map_or_else(|| format!("{len} elements"), |bytes| format!("{} MiB", bytes >> 20));
        return Err(Fault::no_room(format!("{size} are more than there is memory for")));
    }
    Ok(out)
}

/// Checks that there is room for `bytes` bytes at this moment.
///
/// # Errors
/// As [`reserve`].
pub fn ensure_room(bytes: usize) -> Result<(), Fault> {
    reserve::<u8>(bytes).map(drop)
}

/// `len` times `value`, in memory from [`reserve`].
///
/// # Errors
/// As [`reserve`].
pub fn filled<T: Clone>(len: usize, value: T) -> Result<Vec<T>, Fault> {
    let mut out = reserve(len)?;
    out.resize(len, value);
    Ok(out)
}

/// A dense row-major host tensor.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Vec<usize>,
    data: Bytes,
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor({}{:?}", self.dtype, self.shape)?;
        if self.len() <= 16 {
            write!(f, " {:?}", self.to_f64_vec())?;
        }
        f.write_str(")")
    }
}

/// Values that are handed over as bytes, in place.
struct Values<T>(Vec<T>);
impl<T: Element> AsRef<[u8]> for Values<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl Tensor {
    /// Wraps `data`: exactly `product(shape) * dtype.size()` little-endian bytes, one byte of 0 or 1 for a bool.
    ///
    /// # Errors
    /// A message when the length does not match.
    pub fn from_bytes(dtype: DType, shape: Vec<usize>, data: Bytes) -> Result<Tensor, String> {
        let len = shape.iter().try_fold(dtype.size(), |a, &d| a.checked_mul(d));
        if len != Some(data.len()) {
            return Err(format!("{dtype}{shape:?} needs {len:?} bytes, got {}", data.len()));
        }
        Ok(Tensor { dtype, shape, data })
    }
    /// All zero.
    pub fn zeros(dtype: DType, shape: Vec<usize>) -> Tensor {
        let len = shape.iter().product::<usize>() * dtype.size();
        Tensor { dtype, shape, data: Bytes::from(vec![0u8; len]) }
    }
    /// Takes a vector of plain values without a copy of the elements' meaning. Panics when the length is not the
    /// shape's product.
    pub fn from_vec<T: Element>(shape: Vec<usize>, values: Vec<T>) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), values.len(), "tensor length");
        Tensor { dtype: T::DTYPE, shape, data: Bytes::from_owner(Values(values)) }
    }
    /// A rank-0 tensor.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::from_vec(vec![], vec![value])
    }
    /// A rank-1 i64 tensor.
    pub fn ints(values: &[i64]) -> Tensor {
        Tensor::from_vec(vec![values.len()], values.to_vec())
    }
    /// Converts `values` to `dtype` (saturating for integers, rounding for narrow floats).
    pub fn from_f64(dtype: DType, shape: Vec<usize>, values: impl IntoIterator<Item = f64>) -> Tensor {
        let v = values.into_iter();
        match dtype {
            DType::Bool => {
                let data: Vec<u8> = v.map(|x| (x != 0.0) as u8).collect();
                Tensor::from_bytes(dtype, shape, data.into()).expect("tensor length")
            }
            DType::U8 => Tensor::from_vec(shape, v.map(|x| x as u8).collect()),
            DType::I8 => Tensor::from_vec(shape, v.map(|x| x as i8).collect()),
            DType::U16 => Tensor::from_vec(shape, v.map(|x| x as u16).collect()),
            DType::I16 => Tensor::from_vec(shape, v.map(|x| x as i16).collect()),
            DType::U32 => Tensor::from_vec(shape, v.map(|x| x as u32).collect()),
            DType::I32 => Tensor::from_vec(shape, v.map(|x| x as i32).collect()),
            DType::U64 => Tensor::from_vec(shape, v.map(|x| x as u64).collect()),
            DType::I64 => Tensor::from_vec(shape, v.map(|x| x as i64).collect()),
            DType::F16 => Tensor::from_vec(shape, v.map(f16::from_f64).collect()),
            DType::BF16 => Tensor::from_vec(shape, v.map(bf16::from_f64).collect()),
            DType::F32 => Tensor::from_vec(shape, v.map(|x| x as f32).collect()),
            DType::F64 => Tensor::from_vec(shape, v.collect()),
        }
    }
    /// `rows`, tensors of one shape and dtype, along a new axis 0.
    ///
    /// # Errors
    /// A row of another kind; no room.
    pub fn stack(dtype: DType, row: &[usize], rows: &[Tensor]) -> Result<Tensor, Fault> {
        if let Some(t) = rows.iter().find(|t| t.dtype != dtype || t.shape != row) {
            return Err(format!("a row is {t:?}, not {dtype}{row:?}").into());
        }
        let mut data = reserve(rows.iter().map(|t| t.data.len()).sum())?;
        rows.iter().for_each(|t| data.extend_from_slice(&t.data));
        let shape = std::iter::once(rows.len()).chain(row.iter().copied()).collect();
        Ok(Tensor::from_bytes(dtype, shape, Bytes::from(data))?)
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }
    /// True when a dimension is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The raw bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.data
    }
    /// The same data under another shape of the same product (panics otherwise).
    pub fn reshaped(&self, shape: Vec<usize>) -> Tensor {
        assert_eq!(shape.iter().product::<usize>(), self.len(), "reshape keeps the number of elements");
        Tensor { dtype: self.dtype, shape, data: self.data.clone() }
    }
    /// The elements as `T`, borrowed where alignment allows; `None` when the dtype differs.
    pub fn as_slice<T: Element>(&self) -> Option<Cow<'_, [T]>> {
        if T::DTYPE != self.dtype {
            return None;
        }
        Some(match bytemuck::try_cast_slice(&self.data) {
            Ok(slice) => Cow::Borrowed(slice),
            Err(_) => {
                let mut out = vec![T::zeroed(); self.len()];
                bytemuck::cast_slice_mut::<T, u8>(&mut out).copy_from_slice(&self.data);
                Cow::Owned(out)
            }
        })
    }
    /// Every element converted to f64 (i64 beyond 2^53 rounds).
    pub fn to_f64_vec(&self) -> Vec<f64> {
        macro_rules! go {
            ($t:ty, $f:expr) => {
                self.as_slice::<$t>().expect("dtype").iter().map($f).collect()
            };
        }
        match self.dtype {
            DType::Bool => self.data.iter().map(|&b| (b != 0) as u8 as f64).collect(),
            DType::U8 => go!(u8, |&x| x as f64),
            DType::I8 => go!(i8, |&x| x as f64),
            DType::U16 => go!(u16, |&x| x as f64),
            DType::I16 => go!(i16, |&x| x as f64),
            DType::U32 => go!(u32, |&x| x as f64),
            DType::I32 => go!(i32, |&x| x as f64),
            DType::U64 => go!(u64, |&x| x as f64),
            DType::I64 => go!(i64, |&x| x as f64),
            DType::F16 => go!(f16, |&x| x.to_f64()),
            DType::BF16 => go!(bf16, |&x| x.to_f64()),
            DType::F32 => go!(f32, |&x| x as f64),
            DType::F64 => go!(f64, |&x| x),
        }
    }
    /// Converts values: integers wrap around to their dtype. Panics when the length is not the shape's product.
    pub fn from_i64(dtype: DType, shape: Vec<usize>, values: &[i64]) -> Tensor {
        if dtype.is_float() {
            return Tensor::from_f64(dtype, shape, values.iter().map(|&v| v as f64));
        }
        let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes().into_iter().take(dtype.size())).collect();
        Tensor::from_bytes(dtype, shape, data.into()).expect("tensor length")
    }
    /// Every element converted to i64 (floats truncate, u64 keeps its bits).
    pub fn to_i64_vec(&self) -> Vec<i64> {
        match self.dtype {
            DType::I64 => self.as_slice::<i64>().expect("dtype").to_vec(),
            DType::U64 => self.as_slice::<u64>().expect("dtype").iter().map(|&x| x as i64).collect(),
            _ => self.to_f64_vec().into_iter().map(|x| x as i64).collect(),
        }
    }
    /// Every element converted to f32.
    pub fn to_f32_vec(&self) -> Vec<f32> {
        match self.as_slice::<f32>() {
            Some(v) => v.into_owned(),
            None => self.to_f64_vec().into_iter().map(|x| x as f32).collect(),
        }
    }
}

/// A dense row-major host tensor that is being written.
pub struct TensorMut {
    dtype: DType,
    shape: Vec<usize>,
    data: BytesMut,
    /// Which operand of a host function this result takes the place of.
    in_place_of: Option<usize>,
}

impl TensorMut {
    /// All zero.
    ///
    /// # Errors
    /// As [`reserve`].
    pub fn zeros(dtype: DType, shape: Vec<usize>) -> Result<TensorMut, Fault> {
        let len = shape.iter().try_fold(dtype.size(), |a, &d| a.checked_mul(d));
        let data = filled(len.ok_or_else(|| Fault::too_large("a tensor beyond any memory"))?, 0u8)?;
        Ok(TensorMut { dtype, shape, data: Bytes::from(data).into(), in_place_of: None })
    }
    /// The tensor `t`, in its own memory if that is not shared, else in a copy.
    pub fn of(t: Tensor) -> TensorMut {
        TensorMut { dtype: t.dtype, shape: t.shape, data: t.data.into(), in_place_of: None }
    }
    /// As [`TensorMut::of`], for a result of a host function in place of operand `operand`.
    pub fn in_place(t: Tensor, operand: usize) -> TensorMut {
        TensorMut { in_place_of: Some(operand), ..TensorMut::of(t) }
    }
    /// The operand of a host function whose memory this is, and whose values it has at first.
    pub fn in_place_of(&self) -> Option<usize> {
        self.in_place_of
    }
    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Dimensions.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// The raw bytes: little-endian elements, one byte of 0 or 1 for a bool.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
    /// The tensor, no longer to be written.
    pub fn freeze(self) -> Tensor {
        Tensor { dtype: self.dtype, shape: self.shape, data: self.data.freeze() }
    }
}

/// Rust types that are tensor elements (bool is stored as u8 and built with [`Tensor::from_f64`] or `from_bytes`).
pub trait Element: bytemuck::Pod + Send {
    /// The dtype.
    const DTYPE: DType;
}
macro_rules! element {
    ($($t:ty => $d:ident),*) => { $(impl Element for $t { const DTYPE: DType = DType::$d; })* };
}
element!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, u64 => U64, i64 => I64, f16 => F16, bf16 => BF16, f32 => F32, f64 => F64);

/// Where a constant's data comes from when it is first needed (an external file, a memory map).
pub trait DataSource: Send + Sync {
    /// Reads the bytes. Called lazily, possibly more than once.
    ///
    /// # Errors
    /// A message with the place (file and offset).
    fn read(&self) -> Result<Bytes, Fault>;
    /// A text that identifies the bytes in any process without reading them: a file's path, size and time, or the seed
    /// of a generator. `None` if only the bytes identify them.
    fn identity(&self) -> Option<String> {
        None
    }
    /// What stands for the bytes in the text of a module, where a few words do: `random(7)`.
    fn initial_text(&self) -> Option<String> {
        None
    }
}

/// Data of a constant.
#[derive(Clone)]
pub enum ConstData {
    /// In memory.
    Inline(Bytes),
    /// Read on demand.
    Lazy(Arc<dyn DataSource>),
}

impl ConstData {
    /// Both are one piece of memory or one source, which says nothing of equal data elsewhere.
    pub fn is_same(&self, other: &ConstData) -> bool {
        match (self, other) {
            (ConstData::Inline(a), ConstData::Inline(b)) => a.as_ptr() == b.as_ptr() && a.len() == b.len(),
            (ConstData::Lazy(a), ConstData::Lazy(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}
