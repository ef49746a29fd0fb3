//! The bytes of a tuning database: which lines a device needs is found without parsing them.

use crate::plain_files::open_plain;
use memchr::memmem::Finder;
use serde_json::Value;
use std::fmt::Display;
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// Bytes of a database, at most.
pub(super) const MOST_BYTES: u64 = 1 << 30;

/// A database, if it is there.
pub(super) fn open(path: &Path) -> Result<Option<File>, String> {
    let fail = |e: &dyn Display| format!("{}: {e}", path.display());
    let file = match open_plain(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(|e| fail(&e))?,
    };
    match file.metadata().map_err(|e| fail(&e))?.len() {
        bytes if bytes > MOST_BYTES => {
            Err(fail(&format!("it has {} MiB, and a tuning database at most {}", bytes >> 20, MOST_BYTES >> 20)))
        }
        _ => Ok(Some(file)),
    }
}

/// The bytes of a plain file; none of a missing one.
pub(super) fn bytes_of(path: &Path) -> Result<Vec<u8>, String> {
    let mut out = vec![];
    if let Some(mut file) = open(path)? {
        file.read_to_end(&mut out).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(out)
}

/// The bytes up to the end of the last line that ends.
pub(super) fn bytes_of_whole_lines(file: &mut File) -> std::io::Result<u64> {
    let mut block = vec![0; 1 << 16];
    let mut end = file.metadata()?.len();
    while end > 0 {
        let start = end.saturating_sub(block.len() as u64);
        let part = &mut block[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(at) = memchr::memrchr(b'\n', part) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Lines that may be about some devices, found without parsing.
pub(super) struct Filter {
    devices: Vec<Finder<'static>>,
    /// Names may be written with other escapes than this program's.
    escape: Finder<'static>,
    /// The field that every line has.
    field: Finder<'static>,
}

impl Filter {
    pub(super) fn new(devices: &[&str]) -> Filter {
        let quoted = |d: &&str| Finder::new(&Value::from(*d).to_string()).into_owned();
        let [escape, field] = ["\\u", "\"device\""].map(|text| Finder::new(text).into_owned());
        Filter { devices: devices.iter().map(quoted).collect(), escape, field }
    }
    pub(super) fn takes(&self, line: &[u8]) -> bool {
        let found = self.devices.iter().any(|f| f.find(line).is_some()) || self.escape.find(line).is_some();
        found || !self.is_like_a_line(line.trim_ascii())
    }
    /// True for what looks like a line of a database.
    fn is_like_a_line(&self, line: &[u8]) -> bool {
        let is_object = line.starts_with(b"{") && line.ends_with(b"}") && self.field.find(line).is_some();
        line.is_empty() || is_object && std::str::from_utf8(line).is_ok()
    }
}

/// The lines that end. A last one that does not is incomplete: the process that wrote it was stopped.
pub(super) fn whole_lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    bytes[..whole].split_inclusive(|b| *b == b'\n').map(|line| &line[..line.len() - 1])
}

/// True if the path still names the file, which another process may have replaced.
#[cfg(unix)]
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |m: std::io::Result<std::fs::Metadata>| m.map(|m| (m.dev(), m.ino())).ok();
    id(file.metadata()) == id(std::fs::metadata(path))
}
#[cfg(not(unix))]
pub(super) fn is_at(_: &File, _: &Path) -> bool {
    true
}
