//! Constants in the form that sessions upload (packed, in their storage form): in a file of the cache, which is mapped
//! when a session opens, or in a bundle.
//!
//! After the data comes the index, then the length of the index. Data begins at multiples of [`ALIGNMENT`].

use crate::cache::{CacheFolder, WEIGHTS};
use crate::constants::{load_constant, source_digest, storage_parts};
use crate::error::GpuError;
use bytes::Bytes;
use compiler::dtype::DType;
use compiler::fingerprint::Fingerprint;
use compiler::graph::Module;
use compiler::plan::{Content, HostContent, Plan};
use compiler::tensor::Tensor;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Where data may begin, in bytes.
const ALIGNMENT: u64 = 64;

/// Constants of a plan, packed.
pub struct Prepacked {
    list: BTreeMap<usize, Held>,
}

/// The packed data of a buffer.
struct Held {
    bytes: Bytes,
    /// The digest of its source data.
    source: Fingerprint,
    /// Type and shape of a tensor that stays in host memory.
    host: Option<(DType, Vec<usize>)>,
}

impl std::fmt::Debug for Prepacked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes: usize = self.list.values().map(|h| h.bytes.len()).sum();
        write!(f, "Prepacked({} constants, {bytes} bytes)", self.list.len())
    }
}

/// Where the packed data of a buffer stand in the file.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
struct Packed {
    offset: u64,
    bytes: u64,
    /// The digest of its source data.
    source: Fingerprint,
    /// Type and shape of a tensor that stays in host memory.
    host: Option<(DType, Vec<usize>)>,
}

/// The constants of a plan, those that stay on the host with `true`.
fn constants(plan: &Plan) -> impl Iterator<Item = (usize, bool)> {
    plan.buffers.iter().enumerate().filter_map(|(i, b)| match b.content {
        Content::Constant { .. } => Some((i, false)),
        Content::Host(HostContent::Constant(_)) => Some((i, true)),
        _ => None,
    })
}

impl Prepacked {
    /// Packs the constants of `plan`, one after another, into the file of that key.
    ///
    /// # Errors
    /// An unreadable constant, a value without a storage form, a folder that cannot be written.
    pub fn write(folder: &CacheFolder, key: Fingerprint, plan: &Plan, module: &Module) -> Result<(), GpuError> {
        let mut failed = None;
        let written = folder.write(WEIGHTS, key, |to| {
            let mut places = BTreeMap::new();
            let mut at = 0u64;
            for (i, _) in constants(plan) {
                let place = match one(plan, module, i, at, to) {
                    Ok(place) => place,
                    Err(e) => {
                        let text = e.to_string();
                        failed = Some(e);
                        return Err(io::Error::other(text));
                    }
                };
                at += place.bytes;
                let gap = at.next_multiple_of(ALIGNMENT) - at;
                to.write_all(&[0; ALIGNMENT as usize][..gap as usize])?;
                at += gap;
                places.insert(i, place);
            }
            let index = postcard::to_stdvec(&places).map_err(io::Error::other)?;
            to.write_all(&index)?;
            to.write_all(&(index.len() as u64).to_le_bytes())
        });
        let unwritable = |e: io::Error| GpuError::Host(format!("{}: {e}", folder.path().display()));
        failed.map_or(written.map_err(unwritable), Err)
    }

    /// The file of that key, if it has all constants of `plan`.
    pub fn open(folder: &CacheFolder, key: Fingerprint, plan: &Plan) -> Option<Prepacked> {
        let file = folder.map(WEIGHTS, key)?;
        let (rest, length) = file.split_last_chunk::<8>()?;
        let index = rest.len().checked_sub(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        let places: BTreeMap<usize, Packed> = postcard::from_bytes(&rest[index..]).ok()?;
        let fits = |(i, on_host): (usize, bool)| {
            places.get(&i).is_some_and(|p| {
                let inside = p.offset.checked_add(p.bytes).is_some_and(|end| end <= index as u64);
                inside && p.host.is_some() == on_host && (on_host || p.bytes <= plan.buffers[i].bytes)
            })
        };
        if !constants(plan).all(fits) {
            return None;
        }
        let file = Bytes::from_owner(file);
        let held = |p: Packed| {
            let bytes = file.slice(p.offset as usize..(p.offset + p.bytes) as usize);
            Held { bytes, source: p.source, host: p.host }
        };
        Some(Prepacked { list: places.into_iter().map(|(i, p)| (i, held(p))).collect() })
    }

    /// Packed data of some buffers of a plan, each with the digest of its source data ([`source_digest`]). A session
    /// packs the others.
    pub fn of(buffers: impl IntoIterator<Item = (usize, Bytes, Fingerprint)>) -> Prepacked {
        let held = |(i, bytes, source)| (i, Held { bytes, source, host: None });
        Prepacked { list: buffers.into_iter().map(held).collect() }
    }

    /// The data of a buffer of the plan, in storage form.
    pub(crate) fn bytes(&self, buffer: usize) -> Option<&[u8]> {
        self.list.get(&buffer).map(|h| &h.bytes[..])
    }

    /// The digest of a buffer's source data.
    pub(crate) fn source(&self, buffer: usize) -> Option<Fingerprint> {
        self.list.get(&buffer).map(|h| h.source)
    }

    /// The tensor of a buffer in host memory.
    pub(crate) fn tensor(&self, buffer: usize) -> Option<Tensor> {
        let held = self.list.get(&buffer)?;
        let (dtype, shape) = held.host.clone()?;
        Tensor::from_bytes(dtype, shape, held.bytes.to_vec().into()).ok()
    }
}

/// Writes the data of buffer `i` and says where it is, from `offset` on.
fn one(plan: &Plan, module: &Module, i: usize, offset: u64, to: &mut dyn Write) -> Result<Packed, GpuError> {
    let write_error = |e: io::Error| GpuError::Host(format!("packed weights: {e}"));
    let (Content::Constant { name, .. } | Content::Host(HostContent::Constant(name))) = &plan.buffers[i].content else {
        return Err(GpuError::Internal(format!("buffer {i} is no constant")));
    };
    let t = load_constant(module, *name)?;
    let source = source_digest(&t);
    let mut bytes = 0;
    let mut host = None;
    match &plan.buffers[i].content {
        Content::Constant { packer, .. } => {
            storage_parts(t, *name, packer.as_deref(), plan.buffers[i].encoding, &mut |part| {
                bytes += part.len() as u64;
                to.write_all(part).map_err(write_error)
            })?;
        }
        _ => {
            bytes = t.bytes().len() as u64;
            to.write_all(t.bytes()).map_err(write_error)?;
            host = Some((t.dtype(), t.shape().to_vec()));
        }
    }
    Ok(Packed { offset, bytes, source, host })
}
