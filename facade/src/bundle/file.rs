//! The file of a bundle: parts with checksums, and an index of them at the end. `docs/bundle.md` describes it.

use super::packing::Packing;
use crate::error::Error;
use crate::plain_files::{BUNDLE_MAGIC, open_plain};
use crate::tuning::TuningLine;
use bytes::Bytes;
use compiler::dtype::DType;
use compiler::fault::Fault;
use compiler::fingerprint::Fingerprint;
use compiler::profile::DeviceProfile;
use compiler::tensor::DataSource;
use memmap2::Mmap;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// The version that this build writes, and the latest that it reads.
pub(super) const VERSION: u32 = 1;
/// Parts begin at multiples of this, in bytes.
const ALIGNMENT: u64 = 64;
/// The last bytes of the file: offset, length and checksum of the index, then [`END`].
const TRAILER: usize = 8 + 8 + 4 + END.len();
const END: &[u8; 8] = b"WEFTEND\n";

/// A part of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Part {
    /// `network`, `constant`, `plan`, `kernels` or `trace`.
    pub kind: String,
    /// Constant or profile; a constant has a part for each packing.
    pub name: String,
    /// From the beginning of the file.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Its sum.
    pub crc32: u32,
}

/// An input or a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Port {
    /// As runs take or give it.
    pub name: String,
    /// Element type and shape, such as `f32[1,3,224,224]`.
    pub r#type: String,
}

/// The sizes of a dimension that stays open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OpenDim {
    /// As the model calls it.
    pub name: String,
    /// The least.
    pub low: i64,
    /// The most.
    pub high: i64,
    /// From one size to the next.
    pub step: i64,
}

/// A constant of a module.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ConstantEntry {
    pub name: String,
    pub part: usize,
    /// The part holds packed data.
    #[serde(default)]
    pub packing: Option<Packing>,
}

/// The data of a plan's buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PackedBuffer {
    pub buffer: usize,
    pub part: usize,
    /// The digest of the constant.
    pub source: Fingerprint,
}

/// What there is for one profile. Parts are positions in [`Index::parts`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub profile: DeviceProfile,
    /// The profile with the limits that the plan needs instead of those of its device.
    pub needs: DeviceProfile,
    /// The text of the module behind its passes.
    pub network: usize,
    /// The constants of that module whose data are not in its text.
    pub constants: Vec<ConstantEntry>,
    /// Buffers of the plan whose data stand in the file as kernels read them.
    pub packed: Vec<PackedBuffer>,
    /// The form of `plan` and `kernels`: builds with the same form read them.
    pub form: String,
    /// The plan with its kernels, if all sizes are known.
    pub plan: Option<usize>,
    /// The kernels, if sizes are open.
    pub kernels: Option<usize>,
    /// The compile trace.
    pub trace: usize,
    /// The tuned choices in the schedules.
    pub tuning: Vec<TuningLine>,
}

impl Entry {
    /// The parts with its weights.
    pub(super) fn weights(&self) -> BTreeSet<usize> {
        self.constants.iter().map(|c| c.part).chain(self.packed.iter().map(|b| b.part)).collect()
    }
}

/// What stands in the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Index {
    /// Weft's version.
    pub weft: String,
    pub network: String,
    /// The text of its licence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub licence: Option<String>,
    /// The external targets that run parts of it with code of the machine.
    #[serde(default)]
    pub native: Vec<String>,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    pub dims: Vec<OpenDim>,
    pub entries: Vec<Entry>,
    pub parts: Vec<Part>,
}

/// Writes parts one after another; equal ones once.
pub(super) struct Writer<'a> {
    to: &'a mut dyn Write,
    at: u64,
    parts: Vec<Part>,
    there: FxHashMap<Fingerprint, usize>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(to: &'a mut dyn Write) -> io::Result<Writer<'a>> {
        to.write_all(BUNDLE_MAGIC)?;
        to.write_all(&VERSION.to_le_bytes())?;
        Ok(Writer { to, at: BUNDLE_MAGIC.len() as u64 + 4, parts: vec![], there: FxHashMap::default() })
    }
    /// Writes a part, or finds it if its bytes stand in the file already; its position in the index.
    pub(super) fn part(&mut self, kind: &str, name: &str, bytes: &[u8]) -> io::Result<usize> {
        let digest = Fingerprint::of(|w| {
            w.text(kind);
            w.bytes(bytes);
        });
        if let Some(&there) = self.there.get(&digest) {
            return Ok(there);
        }
        let offset = self.at.next_multiple_of(ALIGNMENT);
        self.to.write_all(&[0; ALIGNMENT as usize][..(offset - self.at) as usize])?;
        self.to.write_all(bytes)?;
        self.at = offset + bytes.len() as u64;
        let crc32 = crc32fast::hash(bytes);
        self.parts.push(Part { kind: kind.into(), name: name.into(), offset, bytes: bytes.len() as u64, crc32 });
        self.there.insert(digest, self.parts.len() - 1);
        Ok(self.parts.len() - 1)
    }
    /// Writes the index.
    pub(super) fn finish(self, index: Index) -> io::Result<()> {
        let index = serde_json::to_vec(&Index { parts: self.parts, ..index }).map_err(io::Error::other)?;
        self.to.write_all(&index)?;
        self.to.write_all(&self.at.to_le_bytes())?;
        self.to.write_all(&(index.len() as u64).to_le_bytes())?;
        self.to.write_all(&crc32fast::hash(&index).to_le_bytes())?;
        self.to.write_all(END)
    }
}

/// An open file: its index is read, its parts are read and checked when they are needed.
#[derive(Debug)]
pub(super) struct BundleFile {
    pub place: String,
    bytes: Bytes,
    pub index: Index,
}

impl BundleFile {
    pub(super) fn open(path: &Path) -> Result<BundleFile, Error> {
        let file = open_plain(path).map_err(|e| Error::file(path, e))?;
        // SAFETY: bundles are replaced, never changed in place, as `weft compile` writes them; who changes one by hand
        // while it is mapped breaks the rule of every mapped file.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::file(path, e))?;
        BundleFile::of_bytes(path.display().to_string(), Bytes::from_owner(map))
    }

    pub(super) fn of_bytes(place: String, bytes: Bytes) -> Result<BundleFile, Error> {
        let index = read_index(&bytes).map_err(|why| Error::Bundle { place: place.clone(), why })?;
        Ok(BundleFile { place, bytes, index })
    }

    pub(super) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(super) fn error(&self, why: impl Into<String>) -> Error {
        Error::Bundle { place: self.place.clone(), why: why.into() }
    }

    /// The bytes of a part, checked.
    pub(super) fn part(&self, n: usize) -> Result<Bytes, Error> {
        self.checked(n).map_err(|why| self.error(why))
    }

    fn checked(&self, n: usize) -> Result<Bytes, String> {
        let part = &self.index.parts[n];
        let bytes = self.bytes.slice(part.offset as usize..(part.offset + part.bytes) as usize);
        let found = crc32fast::hash(&bytes);
        match found == part.crc32 {
            true => Ok(bytes),
            false => Err(format!(
                "{} is damaged: its checksum is {found:08x}, the index has {:08x}",
                described(part),
                part.crc32
            )),
        }
    }
}

/// A part for messages: ``part `plan` of ada``.
fn described(part: &Part) -> String {
    format!("its part `{}` of {}", part.kind, part.name)
}

fn read_index(bytes: &[u8]) -> Result<Index, String> {
    let head = bytes.strip_prefix(BUNDLE_MAGIC).and_then(|rest| rest.first_chunk::<4>());
    let version = u32::from_le_bytes(*head.ok_or("this is no bundle")?);
    if version != VERSION {
        return Err(format!(
            "the bundle has version {version}, this build reads version {VERSION}: make it again with `weft compile MODEL -o F.bundle`, or run it with a later build"
        ));
    }
    let cut = || "the bundle is truncated: the index at its end is missing".to_string();
    let (rest, trailer) = bytes.split_last_chunk::<TRAILER>().ok_or_else(cut)?;
    if !trailer.ends_with(END) {
        return Err(cut());
    }
    let number = |at: usize| trailer[at..at + 8].iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b));
    let (offset, length) = (number(0), number(8));
    let sum = trailer[16..20].iter().rev().fold(0u32, |n, &b| n << 8 | u32::from(b));
    let end = offset.checked_add(length).filter(|&end| end == rest.len() as u64);
    let index = end.and_then(|_| rest.get(usize::try_from(offset).ok()?..));
    let index = index.filter(|i| crc32fast::hash(i) == sum).ok_or("the index of the bundle is damaged")?;
    let index: Index = serde_json::from_slice(index).map_err(|e| format!("the index of the bundle: {e}"))?;
    let own = |e: &Entry| [Some(e.network), e.plan, e.kernels, Some(e.trace)].into_iter().flatten();
    let mut used = index.entries.iter().flat_map(|e| own(e).chain(e.weights()));
    if let Some(n) = used.find(|&n| n >= index.parts.len()) {
        return Err(format!("its part {n} is missing: the index has {}", index.parts.len()));
    }
    for part in &index.parts {
        if part.offset.checked_add(part.bytes).is_none_or(|end| end > offset) {
            return Err(format!("{} is missing: the file ends before it", described(part)));
        }
    }
    Ok(index)
}

/// A constant in a bundle.
pub(super) struct ConstantPart {
    pub file: Arc<BundleFile>,
    pub entry: ConstantEntry,
    pub dtype: DType,
    pub shape: Vec<usize>,
}

impl DataSource for ConstantPart {
    fn read(&self) -> Result<Bytes, Fault> {
        let at = |why: String| format!("{}: {why}", self.file.place);
        let bytes = self.file.checked(self.entry.part).map_err(at)?;
        match &self.entry.packing {
            None => Ok(bytes),
            Some(p) => Ok(p.unpack(&bytes, self.dtype, &self.shape).map_err(at)?.bytes().clone()),
        }
    }
}
