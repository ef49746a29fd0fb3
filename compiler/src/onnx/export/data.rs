//! Data of constants: in the model, or in a file beside it.

use super::super::proto::{GraphProto, NodeProto, StringStringEntry, TensorProto};
use super::super::tensor_data::write_tensor;
use crate::tensor::Tensor;
use indexmap::IndexMap;
use rustc_hash::FxHashSet;

/// The file beside the model.
pub(super) struct Beside<'a> {
    /// Its name, relative to the model's folder.
    pub(super) location: String,
    pub(super) written: u64,
    pub(super) write: &'a mut dyn FnMut(&[u8]) -> Result<(), String>,
}

/// Constants of fewer bytes stay in the model; those in the file begin at multiples of it, to be mapped into memory.
const PAGE: usize = 4096;
/// Value of `data_location`.
const EXTERNAL: i32 = 1;

impl Beside<'_> {
    fn tensor(&mut self, name: &str, t: &Tensor) -> Result<TensorProto, String> {
        let bytes = t.bytes();
        let gap = self.written.next_multiple_of(PAGE as u64) - self.written;
        (self.write)(&vec![0; gap as usize])?;
        (self.write)(bytes)?;
        let offset = self.written + gap;
        self.written = offset + bytes.len() as u64;
        let entry = |key: &str, value: String| StringStringEntry { key: Some(key.into()), value: Some(value) };
        Ok(TensorProto {
            raw_data: None,
            external_data: vec![
                entry("location", self.location.clone()),
                entry("offset", offset.to_string()),
                entry("length", bytes.len().to_string()),
            ],
            data_location: Some(EXTERNAL),
            ..write_tensor(name, t)
        })
    }
}

/// Initializers of the main graph.
pub(super) struct Initializers<'a> {
    all: IndexMap<String, TensorProto>,
    /// Bytes in the model itself.
    pub(super) bytes: u64,
    pub(super) beside: Option<Beside<'a>>,
    /// Why the file beside the model could not be written.
    pub(super) failed: Option<String>,
}

impl<'a> Initializers<'a> {
    pub(super) fn new(beside: Option<Beside<'a>>) -> Initializers<'a> {
        Initializers { all: IndexMap::new(), bytes: 0, beside, failed: None }
    }

    pub(super) fn add(&mut self, name: &str, t: &Tensor) {
        let written = match &mut self.beside {
            Some(file) if t.bytes().len() >= PAGE => file.tensor(name, t),
            _ => {
                self.bytes += t.bytes().len() as u64;
                Ok(write_tensor(name, t))
            }
        };
        match written {
            Ok(proto) => drop(self.all.insert(name.to_string(), proto)),
            Err(why) => drop(self.failed.get_or_insert(why)),
        }
    }

    /// Those that the nodes read. Constants that are read in another type only are left out.
    pub(super) fn take_used(&mut self, nodes: &[NodeProto]) -> Vec<TensorProto> {
        let mut used = FxHashSet::default();
        names_read(nodes, &mut used);
        let all = std::mem::take(&mut self.all);
        all.into_iter().filter(|(name, _)| used.contains(name.as_str())).map(|(_, t)| t).collect()
    }
}

fn names_read<'a>(nodes: &'a [NodeProto], used: &mut FxHashSet<&'a str>) {
    for node in nodes {
        used.extend(node.input.iter().map(String::as_str));
        let graphs = node.attribute.iter().filter_map(|a| a.g.as_ref());
        graphs.for_each(|g: &GraphProto| names_read(&g.node, used));
    }
}
