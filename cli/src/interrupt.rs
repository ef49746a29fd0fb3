//! Ctrl-C as a request to stop: the work ends before its next step and shows what it has found.

use std::sync::atomic::{AtomicBool, Ordering};

static STOPS: AtomicBool = AtomicBool::new(false);

/// From now on the first Ctrl-C asks the work to stop; the second one ends the process.
pub fn asks_to_stop() {
    #[cfg(unix)]
    // SAFETY: the handler stores a flag and restores the default, both of which a handler may do.
    unsafe {
        libc::signal(libc::SIGINT, note as *const () as libc::sighandler_t);
    }
}

#[cfg(unix)]
extern "C" fn note(_: libc::c_int) {
    STOPS.store(true, Ordering::Release);
    // SAFETY: a handler may call it.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
}

/// Whether the work is to stop.
pub fn stops() -> bool {
    STOPS.load(Ordering::Acquire)
}
