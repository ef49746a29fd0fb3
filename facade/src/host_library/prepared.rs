//! Interface 2: functions that are prepared once for each call site and list of sizes.

use super::rows::Row;
use crate::dlpack::{self, DLTensor, DLTensors, said};
use compiler::plan::HostSignature;
use compiler::tensor::{Tensor, TensorMut};
use libloading::Library;
use runtime_gpu::HostFunctions;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

/// Makes a state from the types of operands and results, and from the data of constants.
type Prepare = unsafe extern "C" fn(
    inputs: *const DLTensor,
    input_count: usize,
    outputs: *const DLTensor,
    output_count: usize,
    state: *mut *mut c_void,
    message: *mut c_char,
    room: usize,
) -> c_int;

/// Runs a state.
type Run = unsafe extern "C" fn(
    state: *mut c_void,
    inputs: *const DLTensor,
    input_count: usize,
    outputs: *mut DLTensor,
    output_count: usize,
    message: *mut c_char,
    room: usize,
) -> c_int;

type Free = unsafe extern "C" fn(state: *mut c_void);

/// A row of the table, which a row without a name ends.
#[repr(C)]
pub struct Entry {
    name: *const c_char,
    prepare: Option<Prepare>,
    run: Option<Run>,
    free: Option<Free>,
}

impl Row for Entry {
    const SYMBOL: &'static [u8] = b"weft_prepared_functions";
    const INTERFACE: u32 = 2;
    fn name(&self) -> *const c_char {
        self.name
    }
    fn register(&self, name: &str, library: &Arc<Library>, functions: &mut HostFunctions) -> Result<(), String> {
        let (prepare, run) = self.prepare.zip(self.run).ok_or("has no `prepare` or no `run`")?;
        let (free, library) = (self.free, library.clone());
        functions.register_prepared(name, move |site| {
            let state = State::new(prepare, free, site, library.clone())?;
            Ok(move |inputs: &[Tensor], outputs: &mut [TensorMut]| state.run(run, inputs, outputs))
        });
        Ok(())
    }
}

/// The data that the library prepared.
struct State {
    state: *mut c_void,
    free: Option<Free>,
    /// The state may point to their data.
    _constants: Vec<Tensor>,
    _loaded: Arc<Library>,
}

// SAFETY: the header says that runs of a state may overlap, and that any thread frees it.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    fn new(
        prepare: Prepare,
        free: Option<Free>,
        site: &HostSignature<'_>,
        library: Arc<Library>,
    ) -> Result<State, String> {
        let operands = DLTensors::of(site.operands.iter().map(|o| {
            let data = o.constant.map_or(null(), |t| t.bytes().as_ptr());
            (data, o.dtype, o.shape)
        }));
        let results = DLTensors::of(site.results.iter().map(|r| (null(), r.dtype, r.shape.unwrap_or_default())));
        let constants = site.operands.iter().filter_map(|o| o.constant.cloned()).collect();
        let mut made = State { state: null_mut(), free: None, _constants: constants, _loaded: library };
        let (x, y) = (&operands.list, &results.list);
        // SAFETY: pointers and counts are those of lists that live until the call returns; the header says what a
        // function may do.
        said(|message, room| unsafe {
            prepare(x.as_ptr(), x.len(), y.as_ptr(), y.len(), &mut made.state, message, room)
        })?;
        // A failed preparation leaves nothing to be freed.
        made.free = free;
        Ok(made)
    }
    fn run(&self, run: Run, inputs: &[Tensor], outputs: &mut [TensorMut]) -> Result<(), String> {
        let run = |x: &[DLTensor], y: &mut [DLTensor], message, room| {
            // SAFETY: as for `prepare`; the state is what it made.
            unsafe { run(self.state, x.as_ptr(), x.len(), y.as_mut_ptr(), y.len(), message, room) }
        };
        dlpack::call(run, inputs, outputs)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the state is what `prepare` made, and nothing runs it any more.
            unsafe { free(self.state) };
        }
    }
}
