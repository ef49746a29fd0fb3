//! oneDNN's C interface, versions 2 and 3, loaded at run time: the only `unsafe` code of this crate.
//!
//! In version 2 descriptors are structs that the caller keeps; in version 3 they are handles, and the numbers of
//! algorithms moved. Pointers to descriptors are passed in both, so most functions have one form. What the library gives
//! is kept in types that free it, each with the library it came from.

use libloading::Library as Loaded;
use std::ffi::{c_int, c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

type Handle = *mut c_void;
type Status = c_int;

/// Most dimensions of a tensor.
const MOST_DIMS: usize = 12;
/// Bytes of version 2's `dnnl_memory_desc_t`.
const DESC_BYTES: usize = 696;
/// Bytes of version 2's largest descriptor of an operation, and some more.
const OP_BYTES: usize = 8192;

const F32: c_int = 3;
const ANY_LAYOUT: c_int = 1;
const INFERENCE: c_int = 96;
const CONVOLUTION_DIRECT: c_int = 1;
const CPU: c_int = 1;
const DEFAULT_STREAM: c_uint = 1;
const QUERY_SOURCE: c_int = 129;
const QUERY_WEIGHTS: c_int = 131;
const QUERY_DESTINATION: c_int = 133;
const ALLOCATE: *mut c_void = usize::MAX as *mut c_void;

/// Numbers of the arguments of a primitive.
pub mod argument {
    /// Data; where a reorder reads.
    pub const SOURCE: i32 = 1;
    /// The result.
    pub const DESTINATION: i32 = 17;
    /// Weights.
    pub const WEIGHTS: i32 = 33;
    /// Bias.
    pub const BIAS: i32 = 41;
}

/// Names under which the library is looked for, the newest last: version 2 has been tried most.
const NAMES: &[&str] = &["libdnnl.so.2", "libdnnl.so.3", "libdnnl.2.dylib", "libdnnl.3.dylib", "dnnl.dll"];

/// What is applied to a primitive's result.
#[derive(Clone, Copy, Debug)]
pub enum Post {
    /// Adds what the destination holds.
    Sum,
    /// The larger of the value and 0.
    Relu,
    /// The value within bounds.
    Clip(f32, f32),
}

/// `(address, size)` arrays of a convolution's window.
pub struct Window<'a> {
    /// Steps.
    pub strides: &'a [i64],
    /// Elements between taps.
    pub dilates: &'a [i64],
    /// Padding at the beginnings.
    pub begin: &'a [i64],
    /// Padding at the ends.
    pub end: &'a [i64],
}

#[repr(C)]
struct Version {
    major: c_int,
    minor: c_int,
}

#[repr(C)]
struct Argument {
    number: c_int,
    memory: Handle,
}

/// The loaded library with its engine for the processor.
pub struct Library {
    loaded: Loaded,
    version: (i32, i32),
    engine: Handle,
    stream: Handle,
}

// SAFETY: the library's engine is immutable; streams of a processor's engine run what they are given at once, on the
// calling thread, and may be used by several; descriptors and primitives are only read after they are made.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// Calls a function of the library by name: `call!(library, "dnnl_stream_wait", (stream: Handle) -> Status)`.
macro_rules! call {
    ($library:expr, $name:literal, ($($value:expr => $ty:ty),* $(,)?) -> $result:ty) => {{
        // SAFETY: the signature is the one that oneDNN's header of this version declares.
        let found = unsafe { $library.get::<unsafe extern "C" fn($($ty),*) -> $result>(concat!($name, "\0").as_bytes()) };
        match found {
            // SAFETY: handles come from the library; pointers live until the call returns.
            Ok(f) => Ok(unsafe { f($($value),*) }),
            Err(e) => Err(format!("oneDNN has no {}: {e}", $name)),
        }
    }};
}

fn done(what: &str, status: Result<Status, String>) -> Result<(), String> {
    match status? {
        0 => Ok(()),
        1 => Err(format!("oneDNN has no memory for {what}")),
        3 => Err(format!("oneDNN does not implement {what}")),
        other => Err(format!("oneDNN refuses {what} (status {other})")),
    }
}

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

    /// A convolution.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn convolution(
        self: &Arc<Self>,
        tensors: Tensors<'_>,
        window: &Window<'_>,
        post: &[Post],
    ) -> Result<Primitive, String> {
        let attributes = self.attributes(post)?;
        let (src, weights, bias, dst) = tensors.pointers();
        let (s, d) = (window.strides.as_ptr(), window.dilates.as_ptr());
        let (begin, end) = (window.begin.as_ptr(), window.end.as_ptr());
        let mut made: Handle = null_mut();
        if self.version.0 >= 3 {
            let status = call!(
                self.loaded,
                "dnnl_convolution_forward_primitive_desc_create",
                (&mut made => *mut Handle, self.engine => Handle, INFERENCE => c_int, CONVOLUTION_DIRECT => c_int,
                 src => *const c_void, weights => *const c_void, bias => *const c_void, dst => *const c_void,
                 s => *const i64, d => *const i64, begin => *const i64, end => *const i64,
                 attributes.handle => Handle) -> Status
            );
            done("this convolution", status)?;
            return self.primitive(made);
        }
        let mut operation = [0u64; OP_BYTES / 8];
        let out = operation.as_mut_ptr().cast::<c_void>();
        let status = call!(
            self.loaded,
            "dnnl_dilated_convolution_forward_desc_init",
            (out => Handle, INFERENCE => c_int, CONVOLUTION_DIRECT => c_int, src => *const c_void,
             weights => *const c_void, bias => *const c_void, dst => *const c_void, s => *const i64, d => *const i64,
             begin => *const i64, end => *const i64) -> Status
        );
        done("this convolution", status)?;
        self.primitive_of("this convolution", out, &attributes)
    }

    /// A matrix product.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn matmul(self: &Arc<Self>, tensors: Tensors<'_>, post: &[Post]) -> Result<Primitive, String> {
        let attributes = self.attributes(post)?;
        let (src, weights, bias, dst) = tensors.pointers();
        if self.version.0 >= 3 {
            let mut made: Handle = null_mut();
            let status = call!(
                self.loaded,
                "dnnl_matmul_primitive_desc_create",
                (&mut made => *mut Handle, self.engine => Handle, src => *const c_void, weights => *const c_void,
                 bias => *const c_void, dst => *const c_void, attributes.handle => Handle) -> Status
            );
            done("this matrix product", status)?;
            return self.primitive(made);
        }
        let mut operation = [0u64; OP_BYTES / 8];
        let out = operation.as_mut_ptr().cast::<c_void>();
        let status = call!(
            self.loaded,
            "dnnl_matmul_desc_init",
            (out => Handle, src => *const c_void, weights => *const c_void, bias => *const c_void,
             dst => *const c_void) -> Status
        );
        done("this matrix product", status)?;
        self.primitive_of("this matrix product", out, &attributes)
    }

    /// A copy from one layout to another.
    ///
    /// # Errors
    /// What the library does not implement.
    pub fn reorder(self: &Arc<Self>, from: &Descriptor, to: &Descriptor) -> Result<Primitive, String> {
        let mut made: Handle = null_mut();
        let (engine, none) = (self.engine, null_mut());
        let status = call!(
            self.loaded,
            "dnnl_reorder_primitive_desc_create",
            (&mut made => *mut Handle, from.pointer() => *const c_void, engine => Handle, to.pointer() => *const c_void,
             engine => Handle, none => Handle) -> Status
        );
        done("a copy between two layouts", status)?;
        self.primitive(made)
    }

    fn attributes(&self, post: &[Post]) -> Result<AttributesHandle<'_>, String> {
        let mut attributes = AttributesHandle { library: self, handle: null_mut(), post: null_mut() };
        let status = call!(
            self.loaded,
            "dnnl_primitive_attr_create",
            (&mut attributes.handle => *mut Handle) -> Status
        );
        done("attributes", status)?;
        let status = call!(self.loaded, "dnnl_post_ops_create", (&mut attributes.post => *mut Handle) -> Status);
        done("post-ops", status)?;
        for p in post {
            let third = self.version.0 >= 3;
            let list = attributes.post;
            let status = match *p {
                Post::Sum if third => call!(
                    self.loaded,
                    "dnnl_post_ops_append_sum",
                    (list => Handle, 1.0 => f32, 0 => i32, F32 => c_int) -> Status
                ),
                Post::Sum => call!(self.loaded, "dnnl_post_ops_append_sum", (list => Handle, 1.0 => f32) -> Status),
                Post::Relu => self.elementwise(list, if third { 0x20 } else { 0x1f }, 0.0, 0.0),
                Post::Clip(low, high) => self.elementwise(list, if third { 0x2e } else { 0xff }, low, high),
            };
            done("a post-op", status)?;
        }
        let status = call!(
            self.loaded,
            "dnnl_primitive_attr_set_post_ops",
            (attributes.handle => Handle, attributes.post => Handle) -> Status
        );
        done("post-ops", status)?;
        Ok(attributes)
    }

    fn elementwise(&self, list: Handle, algorithm: c_int, alpha: f32, beta: f32) -> Result<Status, String> {
        match self.version.0 >= 3 {
            true => call!(
                self.loaded,
                "dnnl_post_ops_append_eltwise",
                (list => Handle, algorithm => c_int, alpha => f32, beta => f32) -> Status
            ),
            false => call!(
                self.loaded,
                "dnnl_post_ops_append_eltwise",
                (list => Handle, 1.0 => f32, algorithm => c_int, alpha => f32, beta => f32) -> Status
            ),
        }
    }

    /// Version 2: the primitive of an operation's descriptor.
    fn primitive_of(
        self: &Arc<Self>,
        what: &str,
        operation: Handle,
        attributes: &AttributesHandle<'_>,
    ) -> Result<Primitive, String> {
        let mut made: Handle = null_mut();
        let none: Handle = null_mut();
        let status = call!(
            self.loaded,
            "dnnl_primitive_desc_create",
            (&mut made => *mut Handle, operation => Handle, attributes.handle => Handle, self.engine => Handle,
             none => Handle) -> Status
        );
        done(what, status)?;
        self.primitive(made)
    }

    fn primitive(self: &Arc<Self>, descriptor: Handle) -> Result<Primitive, String> {
        let mut primitive = Primitive { library: self.clone(), descriptor, handle: null_mut() };
        let status = call!(
            self.loaded,
            "dnnl_primitive_create",
            (&mut primitive.handle => *mut Handle, descriptor => Handle) -> Status
        );
        done("a primitive", status)?;
        Ok(primitive)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = call!(self.loaded, "dnnl_stream_destroy", (self.stream => Handle) -> Status);
        let _ = call!(self.loaded, "dnnl_engine_destroy", (self.engine => Handle) -> Status);
    }
}

/// Attributes of a primitive while it is made.
struct AttributesHandle<'l> {
    library: &'l Library,
    handle: Handle,
    post: Handle,
}

impl Drop for AttributesHandle<'_> {
    fn drop(&mut self) {
        let loaded = &self.library.loaded;
        let _ = call!(loaded, "dnnl_primitive_attr_destroy", (self.handle => Handle) -> Status);
        let _ = call!(loaded, "dnnl_post_ops_destroy", (self.post => Handle) -> Status);
    }
}

/// How a tensor is stored, or that the library chooses.
pub struct Descriptor {
    library: Arc<Library>,
    form: Form,
}

enum Form {
    /// Version 2: the struct.
    Bytes(Box<[u64; DESC_BYTES / 8]>),
    /// Version 3: a handle to be freed.
    Handle(Handle),
    /// The address inside a primitive's descriptor, which lives as long as the primitive.
    Of { address: *const c_void, _primitive: Arc<Primitive> },
}

impl Descriptor {
    fn pointer(&self) -> *const c_void {
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
    fn bytes(&self) -> Result<usize, String> {
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

/// The tensors of a primitive.
#[derive(Clone, Copy)]
pub struct Tensors<'a> {
    /// Data.
    pub source: &'a Descriptor,
    /// Weights.
    pub weights: &'a Descriptor,
    /// Bias.
    pub bias: Option<&'a Descriptor>,
    /// The result.
    pub destination: &'a Descriptor,
}

impl Tensors<'_> {
    fn pointers(&self) -> (*const c_void, *const c_void, *const c_void, *const c_void) {
        let bias = self.bias.map_or(null(), Descriptor::pointer);
        (self.source.pointer(), self.weights.pointer(), bias, self.destination.pointer())
    }
}

/// A computation that is ready to run.
pub struct Primitive {
    library: Arc<Library>,
    descriptor: Handle,
    handle: Handle,
}

// SAFETY: a primitive and its descriptor are not written after they are made.
unsafe impl Send for Primitive {}
// SAFETY: as above.
unsafe impl Sync for Primitive {}

impl Primitive {
    /// The layout that the library chose for the data.
    pub fn source(self: &Arc<Self>) -> Result<Descriptor, String> {
        self.query(QUERY_SOURCE)
    }
    /// The layout that the library chose for the weights.
    pub fn weights(self: &Arc<Self>) -> Result<Descriptor, String> {
        self.query(QUERY_WEIGHTS)
    }
    /// The layout that the library chose for the result.
    pub fn destination(self: &Arc<Self>) -> Result<Descriptor, String> {
        self.query(QUERY_DESTINATION)
    }
    fn query(self: &Arc<Self>, what: c_int) -> Result<Descriptor, String> {
        let found = call!(
            self.library.loaded,
            "dnnl_primitive_desc_query_md",
            (self.descriptor => Handle, what => c_int, 0 => c_int) -> *const c_void
        )?;
        if found.is_null() {
            return Err("oneDNN does not say how a tensor is stored".into());
        }
        Ok(Descriptor { library: self.library.clone(), form: Form::Of { address: found, _primitive: self.clone() } })
    }
}

impl Drop for Primitive {
    fn drop(&mut self) {
        let loaded = &self.library.loaded;
        if !self.handle.is_null() {
            let _ = call!(loaded, "dnnl_primitive_destroy", (self.handle => Handle) -> Status);
        }
        let _ = call!(loaded, "dnnl_primitive_desc_destroy", (self.descriptor => Handle) -> Status);
    }
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
