//! The interface to JavaScript (`web/worker.js`): numbers and bytes, no glue that a tool writes.
//!
//! A call takes the bytes that [`room`] made place for, and leaves files, which [`file`] shows one by one: the results,
//! or one whose name is `error`. What panics has told `said` why, and the instance is of no use after it.

use crate::{Files, Measured, Network, Request, profile_of, report_of, zoo};
use bytes::Bytes;
use compiler::fault::Fault;
use compiler::passes::Clock;
use compiler::tensor::reserve;
use rust_source::File;
use std::cell::RefCell;
use std::sync::Arc;

#[link(wasm_import_module = "page")]
unsafe extern "C" {
    /// Milliseconds of a clock that only goes forward.
    fn now() -> f64;
    /// How far a call is: a text, and so many of so many.
    fn progress(text: *const u8, length: usize, done: usize, all: usize);
    /// Writes so many bytes of a file of the request to a place; 0 if they cannot be read.
    fn read(file: usize, offset: f64, length: usize, to: *mut u8) -> u32;
    /// Why the compiler ends: a text.
    fn said(text: *const u8, length: usize);
}

thread_local! {
    static GIVEN: RefCell<Vec<Vec<u8>>> = const { RefCell::new(vec![]) };
    static LEFT: RefCell<Vec<File>> = const { RefCell::new(vec![]) };
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
}

/// The files that JavaScript has.
struct Given;

impl Files for Given {
    fn read(&self, file: usize, offset: u64, length: usize) -> Result<Bytes, Fault> {
        let mut out = reserve(length)?;
        out.resize(length, 0);
        // SAFETY: the place has so many bytes.
        match unsafe { read(file, offset as f64, length, out.as_mut_ptr()) } {
            0 => Err(format!("{length} bytes of a file cannot be read: it may have changed since it was given").into()),
            _ => Ok(out.into()),
        }
    }
}

struct Milliseconds;

impl Clock for Milliseconds {
    fn now_ms(&self) -> f64 {
        // SAFETY: it takes nothing and gives a number.
        unsafe { now() }
    }
}

fn tell(text: &str, done: usize, all: usize) {
    // SAFETY: the text is there until the call returns.
    unsafe { progress(text.as_ptr(), text.len(), done, all) }
}

/// Sets up what is done once.
#[unsafe(no_mangle)]
pub extern "C" fn start() {
    std::panic::set_hook(Box::new(|why| {
        let text = why.to_string();
        // SAFETY: the text is there until the call returns.
        unsafe { said(text.as_ptr(), text.len()) }
    }));
}

/// Place for the next argument of a call, of so many bytes.
#[unsafe(no_mangle)]
pub extern "C" fn room(length: usize) -> *mut u8 {
    GIVEN.with_borrow_mut(|given| {
        given.push(vec![0; length]);
        given.last_mut().map_or(std::ptr::null_mut(), |v| v.as_mut_ptr())
    })
}

/// The arguments of a call, in order; those that are missing are empty.
fn arguments<const N: usize>() -> [Vec<u8>; N] {
    let mut given = GIVEN.take().into_iter();
    std::array::from_fn(|_| given.next().unwrap_or_default())
}

/// Leaves files, or an error; 0 if all went well.
fn leave(done: Result<Vec<File>, String>) -> u32 {
    let (code, files) = match done {
        Ok(files) => (0, files),
        Err(why) => (1, vec![File { path: "error".into(), bytes: why.into_bytes() }]),
    };
    LEFT.set(files);
    code
}

fn one(path: &str, text: Result<String, String>) -> Result<Vec<File>, String> {
    Ok(vec![File { path: path.into(), bytes: text?.into_bytes() }])
}

fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|_| "a text is not in UTF-8".into())
}

/// The networks that need no file.
#[unsafe(no_mangle)]
pub extern "C" fn networks() -> u32 {
    leave(one("zoo.json", Ok(zoo())))
}

/// The profile of an adapter that is described in JSON.
#[unsafe(no_mangle)]
pub extern "C" fn profile() -> u32 {
    let [adapter] = arguments();
    leave(one("profile.json", text(adapter).and_then(|a| profile_of(&a))))
}

/// Compiles: a [`Request`] in JSON.
#[unsafe(no_mangle)]
pub extern "C" fn compile() -> u32 {
    let [request] = arguments();
    leave(compiled(request))
}

fn compiled(request: Vec<u8>) -> Result<Vec<File>, String> {
    // The one before it goes first: memory is scarce.
    NETWORK.set(None);
    let request: Request = serde_json::from_slice(&request).map_err(|e| format!("the request: {e}"))?;
    let network = Network::compile(&request, Arc::new(Given), Some(Arc::new(Milliseconds)), &mut tell)?;
    let files = network.files().map(|mut files| {
        files.push(File { path: "open.json".into(), bytes: network.open_dims().into_bytes() });
        files
    });
    NETWORK.set(Some(network));
    files
}

/// The plan of what was compiled last, for other sizes: dimensions with sizes in JSON.
#[unsafe(no_mangle)]
pub extern "C" fn resize() -> u32 {
    let [sizes] = arguments();
    let sizes = serde_json::from_slice(&sizes).map_err(|e| format!("the sizes: {e}"));
    let at = |sizes| NETWORK.with_borrow_mut(|n| n.as_mut().ok_or("nothing is compiled")?.plan_at(&sizes));
    leave(sizes.and_then(at).map(|f| vec![f]))
}

/// A part of the weights: where it begins, in JSON.
#[unsafe(no_mangle)]
pub extern "C" fn weights() -> u32 {
    let [at] = arguments();
    let of = |at| NETWORK.with_borrow_mut(|net| net.as_mut().ok_or("nothing is compiled")?.weights(at));
    leave(number(Some(at)).and_then(of).map(|bytes| vec![File { path: "weights".into(), bytes }]))
}

/// Computes a node on the host: its number in JSON, and the bytes of each operand.
#[unsafe(no_mangle)]
pub extern "C" fn host() -> u32 {
    let mut given = GIVEN.take().into_iter();
    let node = number(given.next());
    leave(
        node.and_then(|n| {
            NETWORK.with_borrow(|net| net.as_ref().ok_or("nothing is compiled")?.host(n, given.collect()))
        }),
    )
}

/// A constant that only the host reads: the number of its buffer in JSON.
#[unsafe(no_mangle)]
pub extern "C" fn constant() -> u32 {
    let [buffer] = arguments();
    let of = |n| NETWORK.with_borrow(|net| net.as_ref().ok_or("nothing is compiled")?.host_constant(n));
    leave(number(Some(buffer)).and_then(of).map(|bytes| vec![File { path: "constant".into(), bytes }]))
}

fn number<N: serde::de::DeserializeOwned>(json: Option<Vec<u8>>) -> Result<N, String> {
    serde_json::from_slice(&json.unwrap_or_default()).map_err(|e| format!("a number: {e}"))
}

/// The report of a trace that is given: one of the command, or of another page.
#[unsafe(no_mangle)]
pub extern "C" fn opened() -> u32 {
    let [trace] = arguments();
    leave(report_of(&trace).map(|f| vec![f]))
}

/// The trace and the report of what was compiled last; a [`Measured`] in JSON, or nothing.
#[unsafe(no_mangle)]
pub extern "C" fn report() -> u32 {
    let [measured] = arguments();
    leave(reported(measured))
}

fn reported(measured: Vec<u8>) -> Result<Vec<File>, String> {
    let measured: Option<Measured> = match measured.is_empty() {
        true => None,
        false => Some(serde_json::from_slice(&measured).map_err(|e| format!("the times: {e}"))?),
    };
    NETWORK.with_borrow(|n| n.as_ref().ok_or("nothing is compiled")?.report(measured).map(Vec::from))
}

/// How many files the last call left.
#[unsafe(no_mangle)]
pub extern "C" fn files() -> usize {
    LEFT.with_borrow(Vec::len)
}

/// Places of a file's name and content: address and length of each, in four words.
#[unsafe(no_mangle)]
pub extern "C" fn file(index: usize) -> *const [usize; 4] {
    thread_local! {
        static PLACE: RefCell<[usize; 4]> = const { RefCell::new([0; 4]) };
    }
    let place = LEFT.with_borrow(|all| match all.get(index) {
        Some(f) => [f.path.as_ptr() as usize, f.path.len(), f.bytes.as_ptr() as usize, f.bytes.len()],
        None => [0; 4],
    });
    PLACE.set(place);
    PLACE.with(|p| p.as_ptr().cast_const())
}

/// Gives the memory of the files back.
#[unsafe(no_mangle)]
pub extern "C" fn forget() {
    LEFT.take();
}
