//! A library of host functions with the interface of `docs/weft_host_functions.h`, written in Rust: `twice` doubles f32
//! values, `negate` does so in place, `fail` says why it fails.
//!
//! ```text
//! cargo build -p weft-command --example host_library
//! weft run net.weft --host-functions target/debug/examples/libhost_library.so
//! ```

use std::ffi::{c_char, c_int, c_void};

/// DLPack's `DLTensor`.
#[repr(C)]
pub struct Tensor {
    data: *mut c_void,
    device: [c_int; 2],
    rank: c_int,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

impl Tensor {
    /// # Safety
    /// The tensor holds f32 values.
    unsafe fn values(&self) -> *mut [f32] {
        // SAFETY: the caller gives rank, shape and data that go together.
        unsafe {
            let shape = std::slice::from_raw_parts(self.shape, self.rank as usize);
            std::ptr::slice_from_raw_parts_mut(self.data.cast(), shape.iter().product::<i64>() as usize)
        }
    }
    fn is_f32(&self) -> bool {
        (self.code, self.bits, self.lanes, self.device[0]) == (2, 32, 1, 1)
    }
}

type Call = unsafe extern "C" fn(*const Tensor, usize, *mut Tensor, usize, *mut c_char, usize) -> c_int;

/// A row of the table.
#[repr(C)]
pub struct Entry {
    name: *const c_char,
    call: Option<Call>,
}
// SAFETY: rows are constant texts and functions.
unsafe impl Sync for Entry {}

unsafe extern "C" fn twice(
    x: *const Tensor,
    n: usize,
    y: *mut Tensor,
    m: usize,
    text: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: there are as many tensors as the counts say.
    let (x, y) = unsafe { (std::slice::from_raw_parts(x, n), std::slice::from_raw_parts(y, m)) };
    let ([x], [y]) = (x, y) else { return say("takes one tensor", text, room) };
    if !x.is_f32() || !y.is_f32() {
        return say("takes f32", text, room);
    }
    // SAFETY: both hold f32 values.
    for (y, x) in unsafe { (*y.values()).iter_mut().zip(&*x.values()) } {
        *y = 2.0 * *x;
    }
    0
}

unsafe extern "C" fn negate(
    _: *const Tensor,
    _: usize,
    y: *mut Tensor,
    _: usize,
    text: *mut c_char,
    room: usize,
) -> c_int {
    // SAFETY: there is one result, as the graph declares.
    let y = unsafe { &*y };
    if !y.is_f32() {
        return say("takes f32", text, room);
    }
    // SAFETY: it holds f32 values.
    unsafe { &mut *y.values() }.iter_mut().for_each(|y| *y = -*y);
    0
}

unsafe extern "C" fn fail(
    _: *const Tensor,
    _: usize,
    _: *mut Tensor,
    _: usize,
    text: *mut c_char,
    room: usize,
) -> c_int {
    say("fails, as asked", text, room)
}

/// Leaves a message that ends in 0.
fn say(message: &str, text: *mut c_char, room: usize) -> c_int {
    let n = message.len().min(room);
    // SAFETY: there is room for `room` bytes and the 0 behind them.
    unsafe {
        std::ptr::copy_nonoverlapping(message.as_ptr(), text.cast(), n);
        *text.add(n) = 0;
    }
    1
}

static TABLE: [Entry; 4] = [
    Entry { name: c"twice".as_ptr(), call: Some(twice) },
    Entry { name: c"negate".as_ptr(), call: Some(negate) },
    Entry { name: c"fail".as_ptr(), call: Some(fail) },
    Entry { name: std::ptr::null(), call: None },
];

/// The table.
#[unsafe(no_mangle)]
pub extern "C" fn weft_host_functions(interface: u32) -> *const Entry {
    if interface == 1 { TABLE.as_ptr() } else { std::ptr::null() }
}
