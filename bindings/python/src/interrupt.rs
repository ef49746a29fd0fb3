//! Work without Python's lock, which Ctrl-C ends.
//!
//! Python notes a signal and handles it when the main thread runs Python code again. So the calling thread looks for
//! signals while the work goes on elsewhere. Work that was given up goes on to its end, and nobody takes its result. Runs
//! that are known to be short are not interrupted.

use crate::errors::{bug, failed, raise};
use pyo3::prelude::*;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

/// How often the calling thread looks for signals.
const PATIENCE: Duration = Duration::from_millis(100);

/// Bytes of stack of a thread that works: calls nest there as they do in the functions of a model.
const STACK: usize = 64 << 20;

/// The result of `work`, which runs on a thread of its own.
///
/// # Errors
/// An error of the work; what a function in Python raised that it asked; what a signal raised, such as
/// `KeyboardInterrupt`.
pub fn on_thread<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, weft::Error> + Send + 'static,
) -> PyResult<T> {
    py.detach(|| {
        let (sender, done) = channel();
        let run = move || {
            let done = catch_unwind(AssertUnwindSafe(work));
            drop(sender.send((done, failed())));
        };
        std::thread::Builder::new().name("weft".into()).stack_size(STACK).spawn(run)?;
        loop {
            match done.recv_timeout(PATIENCE) {
                Ok((_, Some(e))) => return Err(e),
                Ok((result, None)) => return result.map_err(|panic| bug(panic.as_ref()))?.map_err(|e| raise(&e)),
                Err(RecvTimeoutError::Timeout) => Python::attach(|py| py.check_signals())?,
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
