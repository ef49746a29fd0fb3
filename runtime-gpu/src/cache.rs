//! A folder of files that can be made again: compiled plans, packed weights, drivers' pipelines.
//!
//! A file is named by its kind and key. It begins with both, a version of this layout, and the length and checksum of
//! the data. A file that does not match (truncated, changed, for something else) counts as missing and is made again.
//! Files are written beside their place and renamed, so processes that share the folder see a file completely or not at
//! all; a file that one process has open or mapped does not change when another one replaces it.

use compiler::fingerprint::Fingerprint;
use compiler::tensor::reserve;
use memmap2::Mmap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The first bytes of every file.
const MAGIC: &[u8; 8] = b"WEFTKEEP";

/// The version of the layout.
const VERSION: u32 = 2;

/// Bytes before the content, whose alignment they keep.
const HEADER: usize = 64;

/// Kinds of files, which are their extensions.
const KINDS: [&str; 4] = [PLAN, KERNELS, WEIGHTS, PIPELINES];
/// Compiled plans.
pub const PLAN: &str = "plan";
/// Kernels of networks whose sizes are open.
pub const KERNELS: &str = "kernels";
/// Packed weights.
pub const WEIGHTS: &str = "weights";
/// Drivers' pipelines of shaders.
pub const PIPELINES: &str = "pipelines";

/// Limit of the bytes of all files; above it, the least recently used files are removed.
const MOST_BYTES: u64 = 8 << 30;

/// A folder of files that can be made again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheFolder {
    path: PathBuf,
}

/// The content of a file, mapped.
pub struct Mapped {
    map: Mmap,
}

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for Mapped {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.map[HEADER..]
    }
}

/// Passes bytes on, and sums them up.
struct Summing<W> {
    to: W,
    sum: crc32fast::Hasher,
    length: u64,
}

impl<W: Write> Write for Summing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.sum.update(&bytes[..n]);
        self.length += n as u64;
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn header(kind: &str, key: Fingerprint, length: u64, sum: u32) -> [u8; HEADER] {
    let identity = Fingerprint::of(|w| {
        w.text(kind);
        w.part(key);
    })
    .to_string();
    let mut out = [0; HEADER];
    let parts: [&[u8]; 5] =
        [MAGIC, &VERSION.to_le_bytes(), &sum.to_le_bytes(), &length.to_le_bytes(), identity.as_bytes()];
    let mut at = 0;
    for part in parts {
        out[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    out
}

/// True when `bytes` are a whole file of that kind and key.
fn is_whole(bytes: &[u8], kind: &str, key: Fingerprint) -> bool {
    bytes.split_at_checked(HEADER).is_some_and(|(head, content)| {
        let length = content.len() as u64;
        // The length is compared first, to avoid computing the checksum of a truncated file.
        head[16..24] == length.to_le_bytes() && head == header(kind, key, length, crc32fast::hash(content))
    })
}

impl CacheFolder {
    /// The folder of that path; it need not be there.
    pub fn new(path: impl Into<PathBuf>) -> CacheFolder {
        CacheFolder { path: path.into() }
    }
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Where the file of a kind and key is.
    pub fn file(&self, kind: &str, key: Fingerprint) -> PathBuf {
        self.path.join(format!("{key}.{kind}"))
    }

    /// The file of a kind and key, and its length; `None` if it is not a plain file, or if its length differs from its
    /// header. Only the header is read.
    fn open(&self, kind: &str, key: Fingerprint) -> Option<(File, usize)> {
        let path = self.file(kind, key);
        // Opening a pipe would wait for a writer.
        if !path.metadata().ok()?.is_file() {
            return None;
        }
        let mut file = File::open(path).ok()?;
        let mut head = [0; HEADER];
        file.read_exact(&mut head).ok()?;
        let length = u64::from_le_bytes(head[16..24].try_into().ok()?);
        let bytes = file.metadata().ok()?.len();
        let fits = head[..8] == *MAGIC && length.checked_add(HEADER as u64) == Some(bytes);
        fits.then_some((file, usize::try_from(bytes).ok()?))
    }

    /// The content of a file; `None` without a complete file.
    pub fn read(&self, kind: &str, key: Fingerprint) -> Option<Vec<u8>> {
        let (mut file, length) = self.open(kind, key)?;
        let mut bytes = reserve(length).ok()?;
        file.seek(SeekFrom::Start(0)).ok()?;
        Read::by_ref(&mut file).take(length as u64).read_to_end(&mut bytes).ok()?;
        is_whole(&bytes, kind, key).then(|| {
            used(&file);
            bytes.split_off(HEADER)
        })
    }

    /// The content of a file, mapped; `None` without a complete file.
    pub fn map(&self, kind: &str, key: Fingerprint) -> Option<Mapped> {
        let (file, _) = self.open(kind, key)?;
        // SAFETY: files of the folder are replaced, never changed in place; who changes one by hand while it is mapped
        // breaks the rule of every mapped file.
        let map = unsafe { Mmap::map(&file) }.ok()?;
        is_whole(&map, kind, key).then(|| {
            used(&file);
            Mapped { map }
        })
    }

    /// Writes a file; `content` writes its content.
    ///
    /// # Errors
    /// An error of the system. Most callers ignore it, since a cache that cannot be written only costs time.
    pub fn write(
        &self,
        kind: &str,
        key: Fingerprint,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        std::fs::create_dir_all(&self.path)?;
        let mut beside = tempfile::NamedTempFile::new_in(&self.path)?;
        beside.write_all(&[0; HEADER])?;
        let (length, sum) = {
            let buffered = BufWriter::new(beside.as_file());
            let mut writer = Summing { to: buffered, sum: crc32fast::Hasher::new(), length: 0 };
            content(&mut writer)?;
            writer.flush()?;
            (writer.length, writer.sum.clone().finalize())
        };
        beside.seek(SeekFrom::Start(0))?;
        beside.write_all(&header(kind, key, length, sum))?;
        beside.persist(self.file(kind, key))?;
        self.prune(MOST_BYTES);
        Ok(())
    }

    /// Removes the files that were not used for longest until the rest has at most `most` bytes; the newest stays.
    pub fn prune(&self, most: u64) {
        let kept = |p: &Path| p.extension().is_some_and(|e| KINDS.iter().any(|k| e == *k));
        let listed = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let described = listed.filter(|f| kept(&f.path())).filter_map(|f| {
            let about = f.metadata().ok()?;
            Some((about.modified().ok()?, about.len(), f.path()))
        });
        let mut files: Vec<_> = described.collect();
        files.sort_by(|a, b| b.cmp(a));
        let mut sum = 0u64;
        for (i, (_, bytes, path)) in files.into_iter().enumerate() {
            sum = sum.saturating_add(bytes);
            if i > 0 && sum > most {
                // Another process may have removed it.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// Marks a file as used. If the system does not allow it, the file is only removed earlier.
fn used(file: &File) {
    let _ = file.set_modified(SystemTime::now());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Fingerprint {
        Fingerprint::of(|w| w.text(text))
    }

    fn folder() -> (tempfile::TempDir, CacheFolder) {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = CacheFolder::new(dir.path().join("new"));
        (dir, folder)
    }

    #[test]
    fn whole_files_are_read_and_mapped() {
        let (_dir, folder) = folder();
        assert_eq!(folder.read(PLAN, key("a")), None);
        folder.write(PLAN, key("a"), |w| w.write_all(b"content")).expect("writes");
        assert_eq!(folder.read(PLAN, key("a")).as_deref(), Some(&b"content"[..]));
        assert_eq!(folder.map(PLAN, key("a")).as_deref(), Some(&b"content"[..]));
        assert_eq!(folder.read(PLAN, key("b")), None);
        assert_eq!(folder.read(WEIGHTS, key("a")), None);
        let files = std::fs::read_dir(folder.path()).expect("lists").count();
        assert_eq!(files, 1, "a temporary file was left");
    }

    #[test]
    fn what_is_cut_off_changed_or_of_another_is_not_there() {
        let (_dir, folder) = folder();
        folder.write(PLAN, key("a"), |w| w.write_all(b"some content")).expect("writes");
        let path = folder.file(PLAN, key("a"));
        let whole = std::fs::read(&path).expect("reads");
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).expect("writes");
            assert!(folder.read(PLAN, key("a")).is_none() && folder.map(PLAN, key("a")).is_none(), "{cut} bytes");
        }
        for at in (0..56).chain(HEADER..whole.len()) {
            let mut changed = whole.clone();
            changed[at] ^= 4;
            std::fs::write(&path, &changed).expect("writes");
            assert!(folder.read(PLAN, key("a")).is_none(), "byte {at}");
        }
        std::fs::write(&path, &whole).expect("writes");
        assert!(folder.read(PLAN, key("a")).is_some());
        std::fs::copy(&path, folder.file(PLAN, key("b"))).expect("copies");
        std::fs::copy(&path, folder.file(WEIGHTS, key("a"))).expect("copies");
        assert!(folder.read(PLAN, key("b")).is_none() && folder.read(WEIGHTS, key("a")).is_none());
    }

    #[test]
    fn of_a_file_that_is_too_long_the_header_alone_is_read() {
        let (_dir, folder) = folder();
        folder.write(PLAN, key("a"), |w| w.write_all(b"content")).expect("writes");
        let path = folder.file(PLAN, key("a"));
        // A sparse file of more bytes than there is memory.
        let grown = File::options().write(true).open(&path).and_then(|f| f.set_len(1 << 44));
        if grown.is_ok() {
            assert!(folder.read(PLAN, key("a")).is_none() && folder.map(PLAN, key("a")).is_none());
        }
        // And one whose header agrees.
        let length = (1u64 << 40) - HEADER as u64;
        let head = header(PLAN, key("a"), length, 0);
        std::fs::write(&path, head).expect("writes");
        if File::options().write(true).open(&path).and_then(|f| f.set_len(1 << 40)).is_ok() {
            compiler::tensor::limit_host_memory(1 << 36);
            assert!(folder.read(PLAN, key("a")).is_none());
            compiler::tensor::limit_host_memory(isize::MAX as usize);
        }
        std::fs::remove_file(&path).expect("removes");
        std::fs::create_dir(&path).expect("a folder in its place");
        assert!(folder.read(PLAN, key("a")).is_none() && folder.map(PLAN, key("a")).is_none());
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first() {
        let (_dir, folder) = folder();
        for (i, name) in ["a", "b", "c"].into_iter().enumerate() {
            folder.write(PLAN, key(name), |w| w.write_all(&[0; 1000])).expect("writes");
            let file = File::options().write(true).open(folder.file(PLAN, key(name))).expect("opens");
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(i as u64)).expect("sets");
        }
        std::fs::write(folder.path().join("other.txt"), [0; 5000]).expect("writes");
        folder.prune(2500);
        let there = ["a", "b", "c"].map(|n| folder.file(PLAN, key(n)).exists());
        assert_eq!(there, [false, true, true]);
        folder.prune(0);
        assert!(folder.file(PLAN, key("c")).exists() && folder.path().join("other.txt").exists());
    }
}
