//! The memory of the command: where none is left, it ends in words.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write;

/// The allocator of the command. Sizes that files decide are checked before they are asked for; what is left are pieces
/// that nobody expects to be refused. If the system refuses one, the command ends with exit code 5 and one line.
pub struct Memory;

// SAFETY: all memory is the system's; only what happens where it has none differs.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        given(unsafe { System.alloc(layout) }, layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        given(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as the caller guarantees.
        given(unsafe { System.realloc(at, layout, size) }, size)
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller guarantees.
        unsafe { System.dealloc(at, layout) }
    }
}

/// The memory that the system gave, or none to a caller that expects this.
fn given(at: *mut u8, size: usize) -> *mut u8 {
    if at.is_null() && !compiler::tensor::is_reserving() {
        end(size);
    }
    at
}

/// Ends the command: nothing is allocated for that.
#[cfg(unix)]
fn end(size: usize) {
    let mut line = Line { text: [0; 200], end: 0 };
    let _ = writeln!(line, "error[5]: the system has no memory for {} KiB more", size.div_ceil(1024));
    // SAFETY: the text is as long as said; the process ends at once, without any code of its own.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.text.as_ptr().cast(), line.end);
        libc::_exit(5);
    }
}
#[cfg(not(unix))]
fn end(_: usize) {}

/// A text on the stack, cut where it is longer.
struct Line {
    text: [u8; 200],
    end: usize,
}

impl Write for Line {
    fn write_str(&mut self, part: &str) -> std::fmt::Result {
        let room = &mut self.text[self.end..];
        let n = part.len().min(room.len());
        room[..n].copy_from_slice(&part.as_bytes()[..n]);
        self.end += n;
        Ok(())
    }
}
