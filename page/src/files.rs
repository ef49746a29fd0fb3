//! The files that a person gave: a model, and its external data. They are read in parts, when a part is needed.

use bytes::Bytes;
use compiler::fault::Fault;
use compiler::onnx::{ExternalData, MODEL_FILE};
use compiler::tensor::DataSource;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

/// Reads files by their position in the request's list.
pub trait Files: Send + Sync {
    /// So many bytes from `offset` of a file, which has them.
    ///
    /// # Errors
    /// A file that cannot be read any more.
    fn read(&self, file: usize, offset: u64, length: usize) -> Result<Bytes, Fault>;
}

/// The name of a file, and its bytes.
#[derive(serde::Deserialize, Clone, Debug)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Its name, perhaps with folders.
    pub name: String,
    /// Bytes of it.
    pub size: u64,
}

/// A file from its beginning on.
pub(crate) struct Reading {
    pub files: Arc<dyn Files>,
    pub size: u64,
    pub at: u64,
}

impl Read for Reading {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let n = to.len().min(usize::try_from(self.size.saturating_sub(self.at)).unwrap_or(usize::MAX));
        let bytes = self.files.read(0, self.at, n).map_err(|e| std::io::Error::other(e.to_string()))?;
        to[..n].copy_from_slice(&bytes);
        self.at += n as u64;
        Ok(n)
    }
}

impl Seek for Reading {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        let at = match to {
            SeekFrom::Start(n) => Some(n),
            SeekFrom::End(n) => self.size.checked_add_signed(n),
            SeekFrom::Current(n) => self.at.checked_add_signed(n),
        };
        self.at = at.ok_or_else(|| std::io::Error::other("a place before the file"))?;
        Ok(self.at)
    }
}

/// External data: in the model's own file, the first, and in the others.
pub(crate) struct Together {
    pub files: Arc<dyn Files>,
    pub list: Vec<Named>,
}

struct Slice {
    files: Arc<dyn Files>,
    file: usize,
    offset: u64,
    length: usize,
}

impl ExternalData for Together {
    /// Browsers tell the names of files, and not always their folders.
    fn open(&self, location: &str, offset: u64, length: Option<u64>) -> Result<Arc<dyn DataSource>, String> {
        let last = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or(path).to_string();
        let others = || self.list.iter().skip(1);
        let named = |same: &dyn Fn(&str) -> bool| others().position(|f| same(&f.name)).map(|at| at + 1);
        let found = match location {
            MODEL_FILE => Some(0),
            _ => named(&|name| name == location).or_else(|| named(&|name| last(name) == last(location))),
        };
        let file = found.ok_or_else(|| format!("its data is in the file `{location}`: drop both together"))?;
        let Named { name, size } = &self.list[file];
        let length = length.unwrap_or(size.saturating_sub(offset));
        if offset.checked_add(length).is_none_or(|end| end > *size) {
            return Err(format!("external data {name} has {size} bytes, the model asks for {offset}+{length}"));
        }
        let length = usize::try_from(length).map_err(|_| format!("{name}: {length} bytes are too many for a page"))?;
        Ok(Arc::new(Slice { files: self.files.clone(), file, offset, length }))
    }
}

impl DataSource for Slice {
    fn read(&self) -> Result<Bytes, Fault> {
        self.files.read(self.file, self.offset, self.length)
    }
}
