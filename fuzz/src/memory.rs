//! A heap that counts its bytes and ends the process at a limit, on every system.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

static LIVE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Beyond `bytes` on the heap the process aborts, saying so on stderr.
pub fn limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// The system's heap, counted.
pub struct Counting;

/// Counts `size` more bytes.
fn grow(size: usize) {
    let before = LIVE.fetch_add(size, Ordering::Relaxed);
    if before.saturating_add(size) > LIMIT.load(Ordering::Relaxed) {
        // Nothing here may allocate.
        LIMIT.store(usize::MAX, Ordering::Relaxed);
        let _ = std::io::stderr().write_all(b"memory: the case has more than the limit on the heap\n");
        std::process::abort();
    }
}

// SAFETY: every call goes to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's contract is the system's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        grow(size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(p, layout, size) }
    }
}
