//! A region as C that the system's compiler built.

use crate::c_source::{VERSION, files};
use crate::graph::Graph;
use crate::library::Library;
use c_source::{Build, Lines};
use compiler::external::Prepared;
use compiler::tensor::{Tensor, TensorMut};
use libloading::Library as Loaded;
use std::ffi::{CStr, OsString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// `network_prepare`, `network_run` and `network_free` of `network.h`.
type Prepare = unsafe extern "C" fn(*const c_void, *mut c_char, usize) -> *mut c_void;
type Run = unsafe extern "C" fn(*mut c_void, *const *const c_void, *const *mut c_void, *mut c_char, usize) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void);

/// Room for a message.
const MESSAGE: usize = 256;

/// How the C is built.
pub struct Options<'a> {
    /// The C compiler.
    pub compiler: &'a str,
    /// Keeps the C.
    pub folder: Option<PathBuf>,
    /// The library's path, if it is not the system's.
    pub library: Option<&'a str>,
    /// Threads of a run.
    pub threads: Option<i32>,
}

/// A network that is ready to run.
pub struct Built {
    library: Arc<Library>,
    threads: Option<i32>,
    run: Run,
    free: Free,
    /// What `network_prepare` made. Its tensors are shared, so runs take turns.
    network: Mutex<Network>,
    _object: Loaded,
}

struct Network(*mut c_void);

// SAFETY: the network keeps no state of a thread, and one thread at a time runs it.
unsafe impl Send for Network {}

impl Built {
    /// Writes the C of a graph, builds it, loads it, and prepares the network.
    ///
    /// # Errors
    /// Another version of the library than the C is for; what the compiler or the library says.
    pub fn new(
        library: Arc<Library>,
        graph: &Graph,
        constants: &[Tensor],
        name: &str,
        options: &Options<'_>,
    ) -> Result<Built, String> {
        let files = files(graph, constants, name)?;
        let link = match options.library {
            Some(path) => OsString::from(path),
            None if cfg!(target_os = "linux") => format!("-l:libdnnl.so.{VERSION}").into(),
            None => "-ldnnl".into(),
        };
        let (compiler, folder) = (options.compiler, options.folder.clone());
        let build = Build { compiler, level: "-O1", folder, libraries: vec![link] };
        let object = build.load(&files)?;
        // SAFETY: `network.h` declares these types.
        let found = unsafe {
            (
                object.get::<Prepare>(b"network_prepare"),
                object.get::<Run>(b"network_run"),
                object.get::<Free>(b"network_free"),
            )
        };
        let (Ok(prepare), Ok(run), Ok(free)) = found else { return Err("the object lacks a function".into()) };
        let (prepare, run, free) = (*prepare, *run, *free);
        options.threads.into_iter().for_each(|n| library.set_threads(n));
        let weights = Lines::with(files.iter().find(|f| f.name == "weights.bin").map_or(&[][..], |f| &f.bytes));
        let mut message = [0u8; MESSAGE];
        // SAFETY: the blob is the one that belongs to the code, and the message has so much room.
        let network = unsafe { prepare(weights.start(), message.as_mut_ptr().cast(), MESSAGE) };
        if network.is_null() {
            return Err(text(&message));
        }
        let network = Mutex::new(Network(network));
        Ok(Built { library, threads: options.threads, run, free, network, _object: object })
    }
}

fn text(message: &[u8]) -> String {
    CStr::from_bytes_until_nul(message).map_or_else(|_| String::new(), |t| t.to_string_lossy().into_owned())
}

impl Prepared for Built {
    fn run(&self, inputs: &[Tensor], outputs: &mut [TensorMut]) -> Result<(), String> {
        let network = self.network.lock().unwrap_or_else(PoisonError::into_inner);
        self.threads.into_iter().for_each(|n| self.library.set_threads(n));
        let from: Vec<*const c_void> = inputs.iter().map(|t| t.bytes().as_ptr().cast()).collect();
        let to: Vec<*mut c_void> = outputs.iter_mut().map(|t| t.bytes_mut().as_mut_ptr().cast()).collect();
        let mut message = [0u8; MESSAGE];
        // SAFETY: the pointers are to as many elements as the region's types say, which the caller checks.
        let status = unsafe { (self.run)(network.0, from.as_ptr(), to.as_ptr(), message.as_mut_ptr().cast(), MESSAGE) };
        if status == 0 { Ok(()) } else { Err(text(&message)) }
    }
}

impl Drop for Built {
    fn drop(&mut self) {
        let network = self.network.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: it is what `network_prepare` made, and nothing runs it any more.
        unsafe { (self.free)(network.0) };
    }
}
