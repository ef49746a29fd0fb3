//! Functions by name: those of the program, and compiled networks. One registry has both, so that each may call the
//! other.
//!
//! A network that is compiled with a registry calls the functions that the registry has then. It does not keep the
//! registry: otherwise a network in its own registry would never be freed.

use crate::error::Failure;
use crate::tensor::slice;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use weft::dlpack::{self, DLTensor};
use weft::{HostFunctions, Session, Tensor};

/// `data` as it was registered, operands, results, and room for a text that ends in 0; 0 is success.
type Call = unsafe extern "C" fn(*mut c_void, *const DLTensor, usize, *mut DLTensor, usize, *mut c_char, usize) -> i32;

/// A function of the program.
pub type WeftCall = Option<Call>;

/// Frees the `data` of a function.
pub type WeftRelease = Option<unsafe extern "C" fn(*mut c_void)>;

/// Functions by name.
#[derive(Default)]
pub struct WeftFunctions {
    pub(crate) registry: Arc<Registry>,
}

#[derive(Default)]
pub(crate) struct Registry {
    map: RwLock<BTreeMap<String, Function>>,
}

#[derive(Clone)]
pub(crate) enum Function {
    /// Of the program.
    Host(Arc<HostFunction>),
    /// A compiled network.
    Network(Arc<Session>),
}

pub(crate) struct HostFunction {
    pub call: Call,
    pub data: *mut c_void,
    pub release: WeftRelease,
}

// SAFETY: the header says that functions are called by any thread, and several at once.
unsafe impl Send for HostFunction {}
// SAFETY: as above.
unsafe impl Sync for HostFunction {}

impl Drop for HostFunction {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: it is the function that was registered for this data, and it is called once.
            unsafe { release(self.data) };
        }
    }
}

thread_local! {
    /// The sessions that this thread runs, innermost last.
    static RUNNING: RefCell<Vec<*const Session>> = const { RefCell::new(vec![]) };
}

/// A run of a session on this thread.
pub(crate) struct Running;

impl Running {
    /// # Errors
    /// A session that this thread runs already would wait for itself.
    pub(crate) fn enter(session: &Arc<Session>) -> Result<Running, String> {
        RUNNING.with_borrow_mut(|list| match list.contains(&Arc::as_ptr(session)) {
            true => Err("the network is called by one of its own host functions, so it would wait for itself".into()),
            false => {
                list.push(Arc::as_ptr(session));
                Ok(Running)
            }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.with_borrow_mut(Vec::pop);
    }
}

/// Runs a network on tensors in its order.
fn run(session: &Arc<Session>, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let _running = Running::enter(session)?;
    session.run_in_order(inputs).map_err(|e| e.to_string())
}

impl Registry {
    fn find(&self, name: &str) -> Result<Function, Failure> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        map.get(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = map.keys().map(String::as_str).collect();
            let there = if names.is_empty() { "none".to_string() } else { names.join(", ") };
            Failure::usage(format!("no function `{name}` is registered; there are: {there}"))
        })
    }
    /// Registers a function; it is made only if the name is free.
    pub(crate) fn add(&self, name: &str, function: impl FnOnce() -> Function) -> Result<(), Failure> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
        if map.contains_key(name) {
            return Err(Failure::usage(format!("a function `{name}` is registered already")));
        }
        map.insert(name.into(), function());
        Ok(())
    }
}

/// The function of a registry that may be freed.
fn found(registry: &Weak<Registry>, name: &str) -> Result<Function, String> {
    let registry = registry.upgrade().ok_or("the functions of the network were freed before the network")?;
    registry.find(name).map_err(|e| e.message().to_string())
}

impl WeftFunctions {
    /// The functions, as networks call them.
    pub(crate) fn host_functions(&self) -> HostFunctions {
        let mut out = HostFunctions::new();
        let map = self.registry.map.read().unwrap_or_else(PoisonError::into_inner);
        for (name, function) in map.iter() {
            let (registry, called) = (Arc::downgrade(&self.registry), name.clone());
            match function {
                Function::Host(_) => out.register_into(name.as_str(), move |inputs, outputs| {
                    let Function::Host(f) = found(&registry, &called)? else {
                        return Err(format!("`{called}` is a network"));
                    };
                    dlpack::call(
                        |given: &[DLTensor], written: &mut [DLTensor], message, room| {
                            let (n, m) = (given.len(), written.len());
                            // SAFETY: pointers and counts are those of tensors that live until the call returns; the
                            // header says what a function may do.
                            unsafe { (f.call)(f.data, given.as_ptr(), n, written.as_mut_ptr(), m, message, room) }
                        },
                        inputs,
                        outputs,
                    )
                }),
                Function::Network(_) => out.register(name.as_str(), move |inputs| match found(&registry, &called)? {
                    Function::Network(session) => run(&session, inputs),
                    Function::Host(_) => Err(format!("`{called}` is no network")),
                }),
            }
        }
        out
    }

    /// Calls a function on tensors of the caller's.
    ///
    /// # Safety
    /// `inputs` and `outputs` point to as many tensors as is said, as [`DLTensor::to_tensor`] takes them, the outputs
    /// with memory to be written.
    pub(crate) unsafe fn call(
        &self,
        name: &str,
        (inputs, count): (*const DLTensor, usize),
        (outputs, output_count): (*mut DLTensor, usize),
    ) -> Result<(), Failure> {
        let at = || format!("the function `{name}`");
        let session = match self.registry.find(name)? {
            Function::Network(session) => session,
            Function::Host(f) => {
                let mut message = [0u8; 512];
                let (to, room) = (message.as_mut_ptr().cast(), message.len() - 1);
                // SAFETY: the caller's arguments are those that the function takes.
                let status = unsafe { (f.call)(f.data, inputs, count, outputs, output_count, to, room) };
                let said = CStr::from_bytes_until_nul(&message).unwrap_or_default().to_string_lossy().into_owned();
                let said = if said.is_empty() { format!("it says {status}") } else { said };
                return if status == 0 { Ok(()) } else { Err(Failure::input(said).at(at())) };
            }
        };
        // SAFETY: as the function's own contract says.
        let (inputs, outputs) =
            unsafe { (slice(inputs, count, "the inputs")?, slice(outputs.cast_const(), output_count, "the outputs")?) };
        let mut given = vec![];
        for t in inputs {
            // SAFETY: as the function's own contract says.
            given.push(unsafe { t.to_tensor() }.map_err(|why| Failure::input(why).at(at()))?);
        }
        let results = run(&session, &given).map_err(|why| Failure::input(why).at(at()))?;
        if results.len() != outputs.len() {
            let text = format!("it has {} results, not {}", results.len(), outputs.len());
            return Err(Failure::input(text).at(at()));
        }
        for (t, to) in results.iter().zip(outputs) {
            // SAFETY: as the function's own contract says.
            unsafe { to.write(t) }.map_err(|why| Failure::input(why).at(at()))?;
        }
        Ok(())
    }
}
