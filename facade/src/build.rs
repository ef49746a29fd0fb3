//! The build of the program, for keys of caches.

use std::path::PathBuf;
use std::time::UNIX_EPOCH;

/// The identity of the build, which includes added ops, rules and passes: of the file that has this code.
pub(crate) fn build() -> Option<String> {
    let program = file_of_this_code().or_else(|| std::env::current_exe().ok())?;
    let about = program.metadata().ok()?;
    let written = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(format!("{} of {} bytes, written at {written:?}", program.display(), about.len()))
}

/// The shared library that has this code, in an interpreter or another program that has loaded it; `None` where it is
/// the program itself.
#[cfg(unix)]
fn file_of_this_code() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the call fills the structure that it is given, and returns 0 if it does not.
    let name = unsafe {
        let known = libc::dladdr(build as *const () as *const libc::c_void, found.as_mut_ptr()) != 0;
        let name = found.assume_init().dli_fname;
        if !known || name.is_null() {
            return None;
        }
        std::ffi::CStr::from_ptr(name)
    };
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()));
    // A program is told as it was called, which is a path only by chance.
    path.is_absolute().then_some(path)
}
#[cfg(not(unix))]
fn file_of_this_code() -> Option<PathBuf> {
    None
}
