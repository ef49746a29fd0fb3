//! The library and how it stores tensors.

use super::call::{F32, Handle, Status, call, done};
use libloading::Library as Loaded;
use std::any::Any;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

/// Most dimensions of a tensor.
const MOST_DIMS: usize = 12;
/// Bytes of version 2's `dnnl_memory_desc_t`.
pub(super) const DESC_BYTES: usize = 696;

const ANY_LAYOUT: c_int = 1;
const CPU: c_int = 1;
const DEFAULT_STREAM: c_uint = 1;

/// Names under which the library is looked for, the newest last: version 2 has been tried most.
const NAMES: &[&str] = &["libdnnl.so.2", "libdnnl.so.3", "libdnnl.2.dylib", "libdnnl.3.dylib", "dnnl.dll"];

#[repr(C)]
struct Version {
    major: c_int,
    minor: c_int,
}

/// The loaded library with its engine for the processor.
pub struct Library {
    pub(super) loaded: Loaded,
    pub(super) version: (i32, i32),
    pub(super) engine: Handle,
    pub(super) stream: Handle,
}

// SAFETY: the library's engine is immutable; streams of a processor's engine run what they are given at once, on the
// calling thread, and may be used by several; descriptors and primitives are only read after they are made.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads the library: the file at `path`, else by its usual names.
    ///
    /// # Errors
    /// No library, or another version than 2 and 3.
    pub fn open(path: Option<&str>) -> Result<Arc<Library>, String> {
        let names: Vec<&str> = path.map_or_else(|| NAMES.to_vec(), |p| vec![p]);
        let mut errors = vec![];
        // SAFETY: loading runs the library's own initialisers, which are those of oneDNN or of what the user names.
        let mut open = |name: &&str| unsafe { Loaded::new(name) }.map_err(|e| errors.push(e.to_string())).ok();
        let Some(loaded) = names.iter().find_map(&mut open) else {
            let why = if path.is_some() { errors.concat() } else { format!("there is no {}", NAMES[..2].join(" or ")) };
            let help = "install oneDNN (on Debian the package libdnnl2), or name it with the option library=PATH";
            return Err(format!("{why}; {help}"));
        };
        let version = call!(loaded, "dnnl_version", () -> *const Version)?;
        // SAFETY: it gives the address of a struct that begins so and lives as long as the library.
        let version = unsafe { version.as_ref() }.map_or((0, 0), |v| (v.major, v.minor));
        if !(2..=3).contains(&version.0) {
            return Err(format!("oneDNN {}.{}: there is an interface for versions 2 and 3", version.0, version.1));
        }
        let mut engine: Handle = null_mut();
        let status =
            call!(loaded, "dnnl_engine_create", (&mut engine => *mut Handle, CPU => c_int, 0 => usize) -> Status);
        done("an engine for the processor", status)?;
        let mut stream: Handle = null_mut();
        let status = call!(
            loaded,
            "dnnl_stream_create",
            (&mut stream => *mut Handle, engine => Handle, DEFAULT_STREAM => c_uint) -> Status
        );
        done("a stream", status)?;
        Ok(Arc::new(Library { loaded, version, engine, stream }))
    }

    /// Major and minor version.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Sets the number of threads of the calling thread's runs, if the library was built with OpenMP.
    pub fn set_threads(&self, threads: i32) {
        // Without OpenMP there is no such function, and the library's own number of threads stays.
        let _ = call!(self.loaded, "omp_set_num_threads", (threads => c_int) -> ());
    }

    /// A tensor of f32 with these strides, in elements; `None`: the library chooses its layout.
    ///
    /// # Errors
    /// More than 12 dimensions, or what the library refuses.
    pub fn descriptor(self: &Arc<Self>, dims: &[i64], strides: Option<&[i64]>) -> Result<Descriptor, String> {
        if dims.is_empty() || dims.len() > MOST_DIMS || strides.is_some_and(|s| s.len() != dims.len()) {
            return Err(format!("a tensor of shape {dims:?} has 1 to {MOST_DIMS} dimensions"));
        }
        let (rank, d) = (dims.len() as c_int, dims.as_ptr());
        if self.version.0 >= 3 {
            let mut handle: Handle = null_mut();
            let out = &mut handle as *mut Handle;
            let status = match strides {
                Some(s) => call!(
                    self.loaded,
                    "dnnl_memory_desc_create_with_strides",
                    (out => *mut Handle, rank => c_int, d => *const i64, F32 => c_int, s.as_ptr() => *const i64) -> Status
                ),
                None => call!(
                    self.loaded,
                    "dnnl_memory_desc_create_with_tag",
                    (out => *mut Handle, rank => c_int, d => *const i64, F32 => c_int, ANY_LAYOUT => c_int) -> Status
                ),
            };
            done("a tensor's layout", status)?;
            return Ok(Descriptor { library: self.clone(), form: Form::Handle(handle) });
        }
        let mut bytes = Box::new([0u64; DESC_BYTES / 8]);
        let out = bytes.as_mut_ptr().cast::<c_void>();
        let status = match strides {
            Some(s) => call!(
                self.loaded,
                "dnnl_memory_desc_init_by_strides",
                (out => Handle, rank => c_int, d => *const i64, F32 => c_int, s.as_ptr() => *const i64) -> Status
            ),
            None => call!(
                self.loaded,
                "dnnl_memory_desc_init_by_tag",
                (out => Handle, rank => c_int, d => *const i64, F32 => c_int, ANY_LAYOUT => c_int) -> Status
            ),
        };
        done("a tensor's layout", status)?;
        Ok(Descriptor { library: self.clone(), form: Form::Bytes(bytes) })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = call!(self.loaded, "dnnl_stream_destroy", (self.stream => Handle) -> Status);
        let _ = call!(self.loaded, "dnnl_engine_destroy", (self.engine => Handle) -> Status);
    }
}

/// How a tensor is stored, or that the library chooses.
pub struct Descriptor {
    pub(super) library: Arc<Library>,
    pub(super) form: Form,
}

pub(super) enum Form {
    /// Version 2: the struct.
    Bytes(Box<[u64; DESC_BYTES / 8]>),
    /// Version 3: a handle to be freed.
    Handle(Handle),
    /// The address inside a primitive's descriptor, which lives as long as the primitive.
    Of { address: *const c_void, _primitive: Arc<dyn Any> },
}

impl Descriptor {
    pub(super) fn pointer(&self) -> *const c_void {
        match &self.form {
            Form::Bytes(b) => b.as_ptr().cast(),
            Form::Handle(h) => *h,
            Form::Of { address, .. } => *address,
        }
    }
    /// True if tensors of both have the same elements at the same places.
    ///
    /// # Errors
    /// A library without the function.
    pub fn equals(&self, other: &Descriptor) -> Result<bool, String> {
        let (a, b) = (self.pointer(), other.pointer());
        let same = call!(
            self.library.loaded,
            "dnnl_memory_desc_equal",
            (a => *const c_void, b => *const c_void) -> c_int
        );
        Ok(same? == 1)
    }
    /// Bytes of a tensor.
    pub(super) fn bytes(&self) -> Result<usize, String> {
        call!(self.library.loaded, "dnnl_memory_desc_get_size", (self.pointer() => *const c_void) -> usize)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if let Form::Handle(h) = self.form {
            let _ = call!(self.library.loaded, "dnnl_memory_desc_destroy", (h => Handle) -> Status);
        }
    }
}
