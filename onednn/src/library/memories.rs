//! Tensors of the library.

use super::call::{Handle, Status, call, done};
use super::loaded::{Descriptor, Library};
use super::primitives::Primitive;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// The library's own memory, freed with the tensor.
const ALLOCATE: *mut c_void = usize::MAX as *mut c_void;

#[repr(C)]
struct Argument {
    number: c_int,
    memory: Handle,
}

/// Tensors, by place: each has memory of its own, or is a view of an earlier one.
pub struct Memories {
    library: Arc<Library>,
    list: Vec<Memory>,
}

struct Memory {
    handle: Handle,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: the memory is its owner's alone, and the library keeps no state of the thread in it.
unsafe impl Send for Memories {}

impl Memories {
    /// None.
    pub fn new(library: Arc<Library>) -> Memories {
        Memories { library, list: vec![] }
    }
    /// Adds a tensor; its place.
    ///
    /// # Errors
    /// No memory.
    pub fn add(&mut self, of: &Descriptor) -> Result<usize, String> {
        self.create(of, ALLOCATE)
    }
    /// Adds a tensor that lies in the memory of another one, stored in another way.
    ///
    /// # Errors
    /// One that is larger.
    pub fn view(&mut self, place: usize, of: &Descriptor) -> Result<usize, String> {
        let (address, room) = (self.list[place].address, self.list[place].bytes);
        let bytes = of.bytes()?;
        if bytes > room {
            return Err(format!("a view of {bytes} bytes in a tensor of {room}"));
        }
        self.create(of, address.cast())
    }
    fn create(&mut self, of: &Descriptor, at: Handle) -> Result<usize, String> {
        let loaded = &self.library.loaded;
        let mut handle: Handle = null_mut();
        let status = call!(
            loaded,
            "dnnl_memory_create",
            (&mut handle => *mut Handle, of.pointer() => *const c_void, self.library.engine => Handle, at => Handle) -> Status
        );
        done("a tensor", status)?;
        self.list.push(Memory { handle, address: std::ptr::null_mut(), bytes: of.bytes()? });
        let mut address: Handle = null_mut();
        let status = call!(
            loaded,
            "dnnl_memory_get_data_handle",
            (handle => Handle, &mut address => *mut Handle) -> Status
        );
        done("a tensor's memory", status)?;
        let place = self.list.len() - 1;
        if address.is_null() && self.list[place].bytes > 0 {
            return Err("oneDNN gave no memory".into());
        }
        self.list[place].address = address.cast();
        Ok(place)
    }
    /// Fills a tensor with bytes, as they are.
    ///
    /// # Errors
    /// Another number of bytes.
    pub fn write(&mut self, place: usize, from: &[u8]) -> Result<(), String> {
        let m = &self.list[place];
        if from.len() != m.bytes {
            return Err(format!("{} bytes for a tensor of {}", from.len(), m.bytes));
        }
        // SAFETY: the memory has so many bytes, and is borrowed alone.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), m.address, m.bytes) };
        Ok(())
    }
    /// Copies a tensor out, as it is stored.
    ///
    /// # Errors
    /// Another number of bytes.
    pub fn read(&self, place: usize, to: &mut [u8]) -> Result<(), String> {
        let m = &self.list[place];
        if to.len() != m.bytes {
            return Err(format!("{} bytes for a tensor of {}", to.len(), m.bytes));
        }
        // SAFETY: the memory has so many bytes.
        unsafe { std::ptr::copy_nonoverlapping(m.address, to.as_mut_ptr(), m.bytes) };
        Ok(())
    }
    /// Runs a primitive on tensors, each by the number of its argument and its place, and waits for the end.
    ///
    /// # Errors
    /// What the library says.
    pub fn run(&mut self, primitive: &Primitive, tensors: &[(i32, usize)]) -> Result<(), String> {
        let argument = |&(number, place): &(i32, usize)| Argument { number, memory: self.list[place].handle };
        let list: Vec<Argument> = tensors.iter().map(argument).collect();
        let (stream, count, loaded) = (self.library.stream, list.len() as c_int, &self.library.loaded);
        let status = call!(
            loaded,
            "dnnl_primitive_execute",
            (primitive.handle => Handle, stream => Handle, count => c_int, list.as_ptr() => *const Argument) -> Status
        );
        done("a run", status)?;
        done("a run", call!(loaded, "dnnl_stream_wait", (stream => Handle) -> Status))
    }
}

impl Drop for Memories {
    fn drop(&mut self) {
        for m in &self.list {
            let _ = call!(self.library.loaded, "dnnl_memory_destroy", (m.handle => Handle) -> Status);
        }
    }
}
