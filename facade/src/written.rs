//! Files that are written whole or not at all.
//!
//! A file is written beside its place and then renamed. A device or a pipe gets the bytes and is never replaced; of a
//! symbolic link the target is written; a file of another user keeps its owner, or is refused.

use crate::error::Error;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Writes a file completely or not at all: to a temporary file beside it, which then replaces it. For a symbolic link,
/// its target is written; a device or a pipe gets the bytes and is not replaced.
///
/// # Errors
/// [`Error::Write`].
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_file_with(path, |to| to.write_all(bytes).map_err(|e| cannot_write(path, &e)))
}

/// As [`write_file`], with `content` writing part after part.
///
/// # Errors
/// [`Error::Write`], and errors of `content`.
pub fn write_file_with<E: From<Error>>(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let fail = |e: std::io::Error| cannot_write(path, &e);
    match Destination::of(path).map_err(fail)? {
        Destination::File(target) => {
            let file = beside(&target).map_err(fail)?;
            let mut buffered = std::io::BufWriter::new(file.as_file());
            content(&mut buffered)?;
            buffered.flush().map_err(fail)?;
            drop(buffered);
            Ok(file.persist(&target).map_err(fail)?)
        }
        Destination::Stream => content(&mut open_stream(path).map_err(fail)?),
    }
}

/// Refuses, before any work is done, an output path that [`write_file`] could not write.
///
/// # Errors
/// [`Error::Write`].
pub fn verify_writable(path: &Path) -> Result<(), Error> {
    let check = || match Destination::of(path)? {
        Destination::File(target) => beside(&target).map(drop),
        // Opening a pipe now would end its reader; a device has to be tried.
        Destination::Stream => Ok(()),
    };
    check().map_err(|e: std::io::Error| cannot_write(path, &e))
}

/// Refuses a folder that cannot be made or written to.
///
/// # Errors
/// [`Error::Write`].
pub fn verify_folder(folder: &Path) -> Result<(), Error> {
    let there = folder.ancestors().find(|p| p.exists()).unwrap_or(Path::new("."));
    if !there.is_dir() {
        return Err(Error::Write(format!("into {}: {} is no folder", folder.display(), there.display())));
    }
    verify_writable(&there.join(".weft"))
}

fn cannot_write(path: &Path, why: &std::io::Error) -> Error {
    Error::Write(format!("{}: {why}", path.display()))
}

/// True where results go into a folder, a file for each: one that is there, or a name without an extension.
pub fn names_folder(path: &Path) -> bool {
    path.is_dir() || path.extension().is_none() && !path.exists()
}

/// The kind of an output path.
enum Destination {
    /// A plain file of ours, or nothing yet; links are followed.
    File(PathBuf),
    /// A device or a pipe.
    Stream,
}
impl Destination {
    fn of(path: &Path) -> std::io::Result<Destination> {
        let refuse = |why: &str| Err(std::io::Error::other(why));
        match std::fs::metadata(path) {
            Ok(m) if m.is_dir() => refuse("it is a folder"),
            Ok(m) if m.is_file() && m.permissions().readonly() => refuse("it is read-only"),
            Ok(m) if m.is_file() => {
                OpenOptions::new().write(true).open(path)?;
                Ok(Destination::File(path.canonicalize()?))
            }
            Ok(m) if takes_bytes(&m) => Ok(Destination::Stream),
            Ok(_) => refuse("it is neither a plain file nor a device that takes text"),
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            Err(_) if path.is_symlink() => refuse("it is a symbolic link to nothing"),
            Err(_) if path.to_string_lossy().ends_with(std::path::is_separator) => refuse("it names no file"),
            Err(_) => Ok(Destination::File(path.to_path_buf())),
        }
    }
}

/// A file that is written beside its place. It goes away unless it is persisted.
enum Pending {
    /// Without a name, where the system has such files: a process that is stopped leaves nothing behind.
    Unnamed(File),
    Named(NamedTempFile),
}

impl Pending {
    fn in_folder(folder: &Path) -> std::io::Result<Pending> {
        match unnamed_in(folder) {
            Some(file) => Ok(Pending::Unnamed(file)),
            None => with_usual_permissions(&mut named()).tempfile_in(folder).map_err(plain_error).map(Pending::Named),
        }
    }
    fn as_file(&self) -> &File {
        match self {
            Pending::Unnamed(file) => file,
            Pending::Named(file) => file.as_file(),
        }
    }
    /// Puts the file in its place.
    fn persist(self, target: &Path) -> std::io::Result<()> {
        match self {
            Pending::Unnamed(file) => {
                let linked = named().make_in(folder_of(target), |path| link(&file, path)).map_err(plain_error)?;
                linked.persist(target).map_err(|e| e.error)
            }
            Pending::Named(file) => file.persist(target).map(drop).map_err(|e| e.error),
        }
    }
}

fn named() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".weft-");
    builder
}

fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The open files of this process, from which one without a name gets one.
#[cfg(target_os = "linux")]
const OPEN_FILES: &str = "/proc/self/fd";

/// A new file without a name; `None` where the file system has no such files.
#[cfg(target_os = "linux")]
fn unnamed_in(folder: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut open = OpenOptions::new();
    // The process's mask takes its part off, as for any new file.
    open.read(true).write(true).mode(0o666).custom_flags(libc::O_TMPFILE);
    if Path::new(OPEN_FILES).is_dir() { open.open(folder).ok() } else { None }
}
#[cfg(not(target_os = "linux"))]
fn unnamed_in(_folder: &Path) -> Option<File> {
    None
}

/// Gives a file without a name this one.
#[cfg(target_os = "linux")]
fn link(file: &File, path: &Path) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    let from = std::ffi::CString::new(format!("{OPEN_FILES}/{}", file.as_raw_fd()))?;
    let to = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: both are texts that end with a zero, and live until the call returns.
    let done =
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
#[cfg(not(target_os = "linux"))]
fn link(_file: &File, _path: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// A file in the folder of `target`, with the owner and permissions that `target` has or will get.
fn beside(target: &Path) -> std::io::Result<Pending> {
    let file = Pending::in_folder(folder_of(target))?;
    if let Ok(old) = std::fs::metadata(target) {
        keep_owner(file.as_file(), &old)?;
        file.as_file().set_permissions(old.permissions())?;
    }
    Ok(file)
}

/// The system's error without the path of the temporary file, which nobody asked for.
fn plain_error(e: std::io::Error) -> std::io::Error {
    let text = e.to_string();
    text.split_once(" at path ").map_or(e, |(why, _)| std::io::Error::other(why.to_string()))
}

#[cfg(unix)]
fn with_usual_permissions<'b, 'n>(b: &'b mut tempfile::Builder<'n, 'n>) -> &'b mut tempfile::Builder<'n, 'n> {
    use std::os::unix::fs::PermissionsExt;
    // The process's mask takes its part off, as for any new file.
    b.permissions(std::fs::Permissions::from_mode(0o666))
}
#[cfg(not(unix))]
fn with_usual_permissions<'b, 'n>(b: &'b mut tempfile::Builder<'n, 'n>) -> &'b mut tempfile::Builder<'n, 'n> {
    b
}

/// Keeps the owner of a file of another user. If that is not possible, replacing it is refused.
#[cfg(unix)]
fn keep_owner(new: &File, old: &Metadata) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let ours = new.metadata()?;
    if (ours.uid(), ours.gid()) == (old.uid(), old.gid()) {
        return Ok(());
    }
    let kept = std::os::unix::fs::fchown(new, Some(old.uid()), Some(old.gid()));
    kept.map_err(|_| std::io::Error::other("it belongs to another user"))
}
#[cfg(not(unix))]
fn keep_owner(_new: &File, _old: &Metadata) -> std::io::Result<()> {
    Ok(())
}

/// True for character devices and pipes.
#[cfg(unix)]
fn takes_bytes(m: &Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    m.file_type().is_char_device() || m.file_type().is_fifo()
}
#[cfg(not(unix))]
fn takes_bytes(_m: &Metadata) -> bool {
    true
}

/// Opens a device or pipe for writing. A pipe that nobody reads from is an error, not a wait.
#[cfg(unix)]
fn open_stream(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let probe = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(path);
    let _reader_is_there = probe.map_err(|e| match e.raw_os_error() {
        Some(libc::ENXIO) => std::io::Error::other("it is a pipe that nobody reads from"),
        _ => e,
    })?;
    OpenOptions::new().write(true).open(path)
}
#[cfg(not(unix))]
fn open_stream(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::{verify_writable, write_file_with};
    use std::io::Write;

    /// A process that is stopped while it writes leaves nothing behind.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_has_no_name_before_it_is_whole() {
        let folder = tempfile::tempdir_in(".").expect("a folder");
        let names = || -> Vec<_> {
            std::fs::read_dir(folder.path()).expect("reads").map(|e| e.expect("an entry").file_name()).collect()
        };
        let path = folder.path().join("net.bundle");
        for content in ["first", "second"] {
            let before = names();
            let write = |to: &mut dyn Write| {
                to.write_all(content.as_bytes()).and_then(|()| to.flush()).expect("writes");
                assert_eq!(names(), before);
                Ok::<(), crate::Error>(())
            };
            write_file_with(&path, write).expect("writes");
            assert_eq!(std::fs::read_to_string(&path).expect("reads"), content);
            assert_eq!(names(), ["net.bundle"]);
        }
    }

    #[test]
    fn errors_name_the_file_that_was_asked_for() {
        let e = verify_writable("no such folder/x.npz".as_ref()).expect_err("cannot be written").to_string();
        assert!(e.contains("no such folder/x.npz") && !e.contains(".weft-"), "{e}");
    }
}
