//! Tensors, ports and memory as C sees them.

use crate::error::{Failure, c_text, text};
use std::ffi::{CString, c_char, c_void};
use weft::{DType, Tensor, TensorType};

/// An element type: its position in [`DType::ALL`].
pub type WeftType = i32;

/// An input or a result of a network.
#[repr(C)]
pub struct WeftPort {
    /// Its name.
    pub name: *const c_char,
    /// Its element type.
    pub r#type: WeftType,
    /// How many dimensions it has.
    pub rank: usize,
    /// Sizes, outermost first; -1 for one that stays open.
    pub shape: *const i64,
}

/// A dense, row-major tensor in host memory.
#[repr(C)]
pub struct WeftTensor {
    /// Its name; null: its place in the array says which it is.
    pub name: *const c_char,
    /// Its element type.
    pub r#type: WeftType,
    /// How many dimensions it has.
    pub rank: usize,
    /// Sizes in elements, outermost first.
    pub shape: *const i64,
    /// The elements.
    pub data: *const c_void,
}

/// Memory for a result.
#[repr(C)]
pub struct WeftBuffer {
    /// Its name; null: its place in the array says which it is.
    pub name: *const c_char,
    /// The memory.
    pub data: *mut c_void,
    /// Its size.
    pub bytes: usize,
}

/// Ports, with the texts and shapes that they point to.
pub(crate) struct Ports {
    list: Vec<WeftPort>,
    _owned: Vec<(CString, Vec<i64>)>,
}

// SAFETY: the pointers are to texts and shapes that the value owns and never changes.
unsafe impl Send for Ports {}
// SAFETY: as above.
unsafe impl Sync for Ports {}

impl Ports {
    pub(crate) fn of(ports: impl IntoIterator<Item = (String, TensorType)>) -> Ports {
        let size = |d: &weft::Dim| d.as_const().unwrap_or(-1);
        let (mut list, mut owned) = (vec![], vec![]);
        for (name, ty) in ports {
            let (name, shape): (_, Vec<i64>) = (c_text(&name), ty.shape.iter().map(size).collect());
            list.push(WeftPort {
                name: name.as_ptr(),
                r#type: number(ty.dtype),
                rank: shape.len(),
                shape: shape.as_ptr(),
            });
            owned.push((name, shape));
        }
        Ports { list, _owned: owned }
    }
    pub(crate) fn as_slice(&self) -> &[WeftPort] {
        &self.list
    }
}

/// The number of an element type.
pub(crate) fn number(dtype: DType) -> WeftType {
    DType::ALL.iter().position(|&d| d == dtype).map_or(-1, |n| n as WeftType)
}

/// The elements at `at`; none at null.
///
/// # Safety
/// `at` is null, or points to `count` values that do not change during the call.
pub(crate) unsafe fn slice<'a, T>(at: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    match (at.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::usage(format!("{what} is NULL, and {count} are announced"))),
        // SAFETY: as the function's own contract says.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(at, count) }),
    }
}

/// Puts the length of a list at `count`, and gives its first element.
///
/// # Safety
/// `count` is null, or points to memory for a number.
pub(crate) unsafe fn listed<T>(list: &[T], count: *mut usize) -> *const T {
    if !count.is_null() {
        // SAFETY: as the function's own contract says.
        unsafe { count.write(list.len()) };
    }
    list.as_ptr()
}

/// The name of entry `n` of an array, for `names`: its own, or that of its place.
///
/// # Safety
/// `name` is null, or text that ends in 0 and does not change during the call.
pub(crate) unsafe fn name_of<'a>(
    name: *const c_char,
    n: usize,
    names: &[&'a str],
    what: &str,
) -> Result<&'a str, Failure> {
    if name.is_null() {
        let there = names.get(n).copied();
        return there.ok_or_else(|| Failure::input(format!("the network has {} {what}s, not {}", names.len(), n + 1)));
    }
    // SAFETY: as the function's own contract says.
    let given = unsafe { text(name, "a name") }?;
    names
        .iter()
        .copied()
        .find(|n| *n == given)
        .ok_or_else(|| Failure::input(format!("the network has no {what} `{given}`; there are: {}", names.join(", "))))
}

/// A copy of a tensor.
///
/// # Safety
/// `shape` points to `rank` numbers, `data` to the elements; neither changes during the call.
pub(crate) unsafe fn tensor(t: &WeftTensor, name: &str) -> Result<Tensor, Failure> {
    let dtype = usize::try_from(t.r#type).ok().and_then(|n| DType::ALL.get(n)).copied();
    let dtype = dtype.ok_or_else(|| Failure::usage(format!("{} is no type of weft.h", t.r#type)).at(place(name)))?;
    // SAFETY: as the function's own contract says.
    let sizes = unsafe { slice(t.shape, t.rank, "a shape") }.map_err(|e| e.at(place(name)))?;
    let size = |&n: &i64| usize::try_from(n).ok();
    let shape: Option<Vec<usize>> = sizes.iter().map(size).collect();
    let bytes = shape.as_ref().and_then(|s| s.iter().try_fold(dtype.size(), |a, &n| a.checked_mul(n)));
    let (Some(shape), Some(bytes)) = (shape, bytes.filter(|&n| isize::try_from(n).is_ok())) else {
        return Err(Failure::input(format!("{sizes:?} is no shape")).at(place(name)));
    };
    // SAFETY: `data` points to as many bytes as the elements take, as the contract says.
    let data = unsafe { slice(t.data.cast::<u8>(), bytes, "the data") }.map_err(|e| e.at(place(name)))?;
    Tensor::from_bytes(dtype, shape, data.to_vec().into()).map_err(|e| Failure::input(e).at(place(name)))
}

/// An input as the place of an error.
pub(crate) fn place(name: &str) -> String {
    format!("input `{name}`")
}
