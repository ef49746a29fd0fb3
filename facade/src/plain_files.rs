//! Plain files only: anything that could block or never end (pipes, devices) is refused.

use compiler::trace::MAGIC;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The first bytes of every bundle.
pub const BUNDLE_MAGIC: &[u8; 8] = b"WEFTBNDL";

/// Opens a plain file. Anything else is refused unopened: a pipe would wait for a writer, a device may never end.
pub fn open_plain(path: &Path) -> std::io::Result<File> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_dir() {
        return Err(std::io::Error::other("it is a folder"));
    }
    if !kind.is_file() {
        return Err(std::io::Error::other("it is no plain file (a pipe or a device)"));
    }
    File::open(path)
}

/// All bytes of a plain file.
pub fn read_plain(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    open_plain(path)?.read_to_end(&mut out)?;
    Ok(out)
}

/// The text of a plain file.
pub fn read_text(path: &Path) -> std::io::Result<String> {
    String::from_utf8(read_plain(path)?).map_err(|_| std::io::Error::other("it is no UTF-8 text"))
}

/// True for a file that begins as a trace does.
pub fn begins_as_trace(path: &Path) -> bool {
    begins_with(path, MAGIC)
}

/// True for a file that begins as a bundle does.
pub fn begins_as_bundle(path: &Path) -> bool {
    begins_with(path, BUNDLE_MAGIC)
}

fn begins_with(path: &Path, magic: &[u8; 8]) -> bool {
    let mut start = [0; 8];
    let read = open_plain(path).and_then(|mut f| f.read_exact(&mut start));
    read.is_ok() && start == *magic
}
