//! Work without Python's lock, which Ctrl-C ends.
//!
//! Python notes a signal and handles it when the main thread runs Python code again. So the calling thread looks for
//! signals while the work goes on elsewhere. Work that was given up goes on to its end, and nobody takes its result; a
//! function in Python that it is in gets the exception too. Runs that are known to be short are not interrupted.
//!
//! The interpreter must not end under threads that are in Python: it ends each thread that asks for its lock by
//! unwinding the stack, which aborts in frames of Rust. Nor may the process end under threads that are in a driver.
//! [`leave`] waits for both; threads that stay in Python it parks, and the process ends without waiting for the others.

use crate::errors::{Raise, bug, failed, raise};
use pyo3::prelude::*;
use std::ffi::{c_long, c_ulong};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, ThreadId};
use std::time::{Duration, Instant};

/// How often the calling thread looks for signals.
const PATIENCE: Duration = Duration::from_millis(100);

/// Bytes of stack of a thread that works: calls nest there as they do in the functions of a model.
const STACK: usize = 64 << 20;

/// How long the end of the program waits for work that was given up.
const FAREWELL: Duration = Duration::from_millis(500);

/// Threads that [`on_thread`] started and that have not ended.
static WORKING: AtomicUsize = AtomicUsize::new(0);

/// A thread in a function in Python that Weft calls.
struct InPython {
    thread: ThreadId,
    /// Python's number of it, once it has Python's lock.
    number: Option<c_ulong>,
    #[cfg(unix)]
    handle: libc::pthread_t,
}

static IN_PYTHON: Mutex<Vec<InPython>> = Mutex::new(Vec::new());

/// The thread that ends the interpreter, once it does.
static LEAVING: OnceLock<ThreadId> = OnceLock::new();

fn in_python() -> MutexGuard<'static, Vec<InPython>> {
    IN_PYTHON.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call of Python by this thread, for as long as this lives.
struct Calling(ThreadId);

impl Calling {
    fn start() -> Calling {
        let thread = std::thread::current().id();
        // SAFETY: a call without conditions.
        #[cfg(unix)]
        let handle = unsafe { libc::pthread_self() };
        in_python().push(InPython {
            thread,
            number: None,
            #[cfg(unix)]
            handle,
        });
        while LEAVING.get().is_some_and(|own| *own != thread) {
            std::thread::park();
        }
        Calling(thread)
    }
    fn is_number(&self, number: c_ulong) {
        if let Some(own) = in_python().iter_mut().rev().find(|t| t.thread == self.0) {
            own.number = Some(number);
        }
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        let mut list = in_python();
        if let Some(at) = list.iter().rposition(|t| t.thread == self.0) {
            list.remove(at);
        }
    }
}

/// Calls Python from a thread of Weft, so that an interrupt reaches it there.
pub fn calling<T>(call: impl FnOnce(Python<'_>) -> T) -> T {
    let own = Calling::start();
    Python::attach(|py| {
        let number = py.import("threading").and_then(|t| t.call_method0("get_ident")?.extract::<c_ulong>());
        number.into_iter().for_each(|n| own.is_number(n));
        let done = catch_unwind(AssertUnwindSafe(|| call(py)));
        // With Python's lock: no interrupt reaches the thread after the call.
        drop(own);
        done.unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Raises `KeyboardInterrupt` in the functions in Python that these threads are in.
fn interrupt(_: Python<'_>, which: impl Fn(ThreadId) -> bool) {
    for number in in_python().iter().filter(|t| which(t.thread)).filter_map(|t| t.number) {
        // SAFETY: Python's lock is held, and the exception is an immortal object. A number of no thread has no effect.
        unsafe { pyo3::ffi::PyThreadState_SetAsyncExc(number as c_long, pyo3::ffi::PyExc_KeyboardInterrupt) };
    }
}

/// Called when the interpreter is about to end: ends what was given up, or lets the process end without it.
#[pyfunction]
#[pyo3(name = "_leave")]
pub fn leave(py: Python<'_>) {
    let own = *LEAVING.get_or_init(|| std::thread::current().id());
    let end = Instant::now() + FAREWELL;
    let busy = || WORKING.load(Ordering::Acquire) > 0 || in_python().iter().any(|t| t.thread != own);
    while busy() && Instant::now() < end {
        // A function may have caught the exception, and go on.
        interrupt(py, |id| id != own);
        let again = Instant::now() + PATIENCE;
        py.detach(|| {
            while busy() && Instant::now() < again.min(end) {
                std::thread::sleep(Duration::from_millis(2));
            }
        });
    }
    if busy() {
        park_others(py, own);
        end_at_once();
    }
}

/// Parks the threads that are in Python for good, by a signal. They do not have Python's lock, since the caller has it,
/// and will not ask for it.
#[cfg(unix)]
fn park_others(_: Python<'_>, own: ThreadId) {
    static PARKED: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn park(_: std::ffi::c_int) {
        PARKED.fetch_add(1, Ordering::AcqRel);
        loop {
            // SAFETY: a call without conditions, which handlers of signals may make.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: what the handler does is allowed there.
    unsafe { libc::signal(libc::SIGUSR2, park as *const () as libc::sighandler_t) };
    // No thread ends or begins a call while the list is held.
    let list = in_python();
    let mut sent: Vec<ThreadId> = vec![];
    for t in list.iter().filter(|t| t.thread != own) {
        // SAFETY: the thread is in the list, so it has not ended.
        if !sent.contains(&t.thread) && unsafe { libc::pthread_kill(t.handle, libc::SIGUSR2) } == 0 {
            sent.push(t.thread);
        }
    }
    let end = Instant::now() + PATIENCE;
    while PARKED.load(Ordering::Acquire) < sent.len() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(not(unix))]
fn park_others(_: Python<'_>, _: ThreadId) {}

/// Lets the process end without the destructors of libraries, in which threads may still be.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn end_at_once() {
    use std::ffi::{c_int, c_void};
    extern "C" fn end(status: c_int, _: *mut c_void) {
        // SAFETY: both are calls of the C library without conditions; files are written out first.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(status)
        }
    }
    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    // SAFETY: the function lives as long as the process. What is registered last runs first.
    unsafe { on_exit(end, std::ptr::null_mut()) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn end_at_once() {}

/// Counts a thread that works, from before it starts until it ends.
struct Working;
impl Working {
    fn start() -> Working {
        WORKING.fetch_add(1, Ordering::AcqRel);
        Working
    }
}
impl Drop for Working {
    fn drop(&mut self) {
        WORKING.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The result of `work`, which runs on a thread of its own.
///
/// # Errors
/// An error of the work; what a function in Python raised that it asked; what a signal raised, such as
/// `KeyboardInterrupt`.
pub fn on_thread<T: Send + 'static, E: Raise + Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> PyResult<T> {
    py.detach(|| {
        let (sender, done) = channel();
        let working = Working::start();
        let run = move || {
            let done = catch_unwind(AssertUnwindSafe(work));
            drop(sender.send((done, failed())));
            drop(working);
        };
        let worker = std::thread::Builder::new().name("weft".into()).stack_size(STACK).spawn(run)?;
        let signals =
            |py: Python<'_>| py.check_signals().inspect_err(|_| interrupt(py, |id| id == worker.thread().id()));
        loop {
            match done.recv_timeout(PATIENCE) {
                Ok((_, Some(e))) => return Err(e),
                Ok((result, None)) => return result.map_err(|panic| bug(panic.as_ref()))?.map_err(|e| e.raise()),
                Err(RecvTimeoutError::Timeout) => Python::attach(signals)?,
                Err(RecvTimeoutError::Disconnected) => return Err(bug(&"a thread ended without a result")),
            }
        }
    })
}

/// The result of `work`, which runs on this thread and does not end on a signal.
///
/// # Errors
/// An error of the work.
pub fn here<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T, weft::Error> + Send) -> PyResult<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    done.map_err(|panic| bug(panic.as_ref()))?.map_err(|e| raise(&e))
}

/// Wakes a thread.
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}
impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// The result of a future, which this thread polls.
///
/// # Errors
/// As [`on_thread`].
pub fn wait<T: Send>(py: Python<'_>, work: impl Future<Output = Result<T, weft::Error>> + Send) -> PyResult<T> {
    py.detach(|| {
        let woken = Arc::new(Unpark { thread: std::thread::current(), woken: AtomicBool::new(false) });
        let waker = Waker::from(woken.clone());
        let mut work = pin!(work);
        loop {
            let mut poll = || work.as_mut().poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(done) = catch_unwind(AssertUnwindSafe(&mut poll)).map_err(|panic| bug(panic.as_ref()))? {
                return done.map_err(|e| raise(&e));
            }
            while !woken.woken.swap(false, Ordering::Acquire) {
                std::thread::park_timeout(PATIENCE);
                if !woken.woken.load(Ordering::Acquire) {
                    Python::attach(|py| py.check_signals())?;
                }
            }
        }
    })
}
