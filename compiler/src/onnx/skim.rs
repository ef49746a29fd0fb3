//! Reads a model's file without its weights ([`skim_model`]).
//!
//! Mapping the file into memory is not safe: the process dies if another program truncates the file. Reading it whole
//! would keep all weights in memory. So the file is walked once: tensor data of at least [`LARGE`] bytes becomes
//! external data *in the file itself*, which is read in parts, and checked, when it is needed. Everything else is
//! copied unchanged, and the result is decoded like any model. Lengths are trusted only up to the end of the file; a
//! file that shrinks later is an error.

use super::error::ImportError;
use super::formats::no_model;
use super::proto::{StringStringEntry, TensorProto};
use bytes::Bytes;
use prost::Message;
use std::io::{BufRead, Read, Seek, SeekFrom};

/// The location of external data that is in the model's own file. No file of a folder is called so.
pub const MODEL_FILE: &str = "\0";

/// Tensor data from this many bytes on stays in the file.
const LARGE: u64 = 1 << 16;

/// Messages may nest this deeply, as in the decoder.
const MAX_NESTING: usize = 100;

/// The most bytes of a message.
const MAX_MESSAGE: usize = i32::MAX as usize;

/// The model's message with large data as external data of [`MODEL_FILE`]. `file` is at its beginning.
///
/// # Errors
/// A file that cannot be read, is cut off, or is no message.
pub fn skim_model(file: &mut (impl BufRead + Seek)) -> Result<Bytes, ImportError> {
    let whole = |file: &mut dyn Seek| -> std::io::Result<u64> {
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        Ok(end)
    };
    let end = whole(file).map_err(|e| ImportError::Malformed(format!("it cannot be read ({e})")))?;
    let mut out = Vec::new();
    let mut walk = Walk { file: &mut *file, at: 0 };
    let walked = walk.message(Kind::Model, end, 0, &mut out);
    walked.map_err(|e| {
        let mut begin = vec![];
        let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.by_ref().take(64).read_to_end(&mut begin));
        no_model(if read.is_ok() { &begin } else { &[] }, &e)
    })?;
    Ok(out.into())
}

/// Messages on the way to tensors.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Tensor,
}
impl Kind {
    /// The message in field `number`, where tensors may be in it.
    fn inside(self, number: u64) -> Option<Kind> {
        match (self, number) {
            (Kind::Model, 7) | (Kind::Attribute, 6) => Some(Kind::Graph),
            (Kind::Model, 25) => Some(Kind::Function),
            (Kind::Graph, 1) | (Kind::Function, 7) => Some(Kind::Node),
            (Kind::Node, 5) => Some(Kind::Attribute),
            (Kind::Graph, 5) | (Kind::Attribute, 5) => Some(Kind::Tensor),
            _ => None,
        }
    }
}

/// The field of a tensor's bytes.
const RAW_DATA: u64 = 9;

struct Walk<'f, F> {
    file: &'f mut F,
    at: u64,
}

type Walked<T> = Result<T, String>;

impl<F: BufRead + Seek> Walk<'_, F> {
    /// Appends the message that ends at `end` to `out`.
    fn message(&mut self, kind: Kind, end: u64, depth: usize, out: &mut Vec<u8>) -> Walked<()> {
        let mut data = None;
        while self.at < end {
            let key = self.number(end)?;
            let (field, form) = (key >> 3, key & 7);
            if form != 2 {
                put(out, key);
                match form {
                    0 => put(out, self.number(end)?),
                    1 => self.copy(8, end, out)?,
                    5 => self.copy(4, end, out)?,
                    other => return Err(format!("wire type {other}")),
                }
                continue;
            }
            let len = self.number(end)?;
            if len > end - self.at {
                return Err(format!("a field of {len} bytes where {} are left", end - self.at));
            }
            if (kind, field) == (Kind::Tensor, RAW_DATA) && len >= LARGE {
                data = Some((self.at, len));
                self.skip(len)?;
                continue;
            }
            put(out, key);
            match kind.inside(field).filter(|_| len >= LARGE && depth < MAX_NESTING) {
                Some(inner) => {
                    let mut part = Vec::new();
                    self.message(inner, self.at + len, depth + 1, &mut part)?;
                    put(out, part.len() as u64);
                    append(out, &part)?;
                }
                None => {
                    put(out, len);
                    self.copy(len, end, out)?;
                }
            }
        }
        if let Some((offset, length)) = data {
            append(out, &reference(offset, length))?;
        }
        Ok(())
    }

    /// A base-128 number.
    fn number(&mut self, end: u64) -> Walked<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            if self.at >= end {
                return Err("it ends within a number".into());
            }
            self.file.read_exact(&mut byte).map_err(|e| e.to_string())?;
            self.at += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of more than 64 bits".into())
    }

    fn copy(&mut self, len: u64, end: u64, out: &mut Vec<u8>) -> Walked<()> {
        if len > end - self.at {
            return Err("it ends within a field".into());
        }
        if out.len() as u64 + len > MAX_MESSAGE as u64 {
            return Err("beside its weights it has more than 2 GiB".into());
        }
        let got = self.file.by_ref().take(len).read_to_end(out).map_err(|e| e.to_string())?;
        self.at += len;
        if got as u64 == len { Ok(()) } else { Err("it became shorter while it was read".into()) }
    }

    fn skip(&mut self, len: u64) -> Walked<()> {
        let by = i64::try_from(len).map_err(|e| e.to_string())?;
        self.at += len;
        self.file.seek_relative(by).map_err(|e| e.to_string())
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn append(out: &mut Vec<u8>, part: &[u8]) -> Walked<()> {
    if out.len() + part.len() > MAX_MESSAGE {
        return Err("beside its weights it has more than 2 GiB".into());
    }
    out.try_reserve(part.len()).map_err(|e| e.to_string())?;
    out.extend_from_slice(part);
    Ok(())
}

/// The fields of a tensor whose data is at `offset` of the model's file. Fields of one message may come in any order,
/// and in several parts.
fn reference(offset: u64, length: u64) -> Vec<u8> {
    let entry = |key: &str, value: String| StringStringEntry { key: Some(key.into()), value: Some(value) };
    let external_data = vec![
        entry("location", MODEL_FILE.into()),
        entry("offset", offset.to_string()),
        entry("length", length.to_string()),
    ];
    TensorProto { data_location: Some(1), external_data, ..TensorProto::default() }.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto};
    use std::io::Cursor;

    fn tensor(name: &str, bytes: usize) -> TensorProto {
        let raw = Bytes::from((0..bytes).map(|i| i as u8).collect::<Vec<u8>>());
        TensorProto { name: Some(name.into()), dims: vec![bytes as i64], raw_data: Some(raw), ..TensorProto::default() }
    }

    fn model() -> ModelProto {
        let value = AttributeProto { name: Some("value".into()), t: Some(tensor("c", 70_000)), ..Default::default() };
        let node = NodeProto { attribute: vec![value], output: vec!["y".into()], ..NodeProto::default() };
        let initializer = vec![tensor("small", 100), tensor("large", 100_000)];
        let graph = GraphProto { node: vec![node], initializer, name: Some("g".into()), ..GraphProto::default() };
        ModelProto { ir_version: Some(9), graph: Some(graph), ..ModelProto::default() }
    }

    /// Where a tensor's data is, as its external data says.
    fn place(t: &TensorProto) -> (usize, usize) {
        assert_eq!(t.data_location, Some(1));
        let number = |i: usize| t.external_data[i].value.as_ref().unwrap().parse::<usize>().unwrap();
        assert_eq!(t.external_data[0].value.as_deref(), Some(MODEL_FILE));
        (number(1), number(2))
    }

    #[test]
    fn large_data_stays_in_the_file() {
        let whole = model();
        let file = whole.encode_to_vec();
        let skimmed = skim_model(&mut Cursor::new(&file)).unwrap();
        assert!(skimmed.len() < 1000, "{}", skimmed.len());
        let mut got = ModelProto::decode(skimmed).unwrap();
        let graph = got.graph.as_mut().unwrap();
        let constant = graph.node[0].attribute[0].t.as_mut().unwrap();
        for (t, bytes) in [(&mut graph.initializer[1], 100_000), (constant, 70_000)] {
            let (offset, length) = place(t);
            assert_eq!(length, bytes);
            (t.data_location, t.external_data) = (None, vec![]);
            t.raw_data = Some(Bytes::copy_from_slice(&file[offset..offset + length]));
        }
        assert_eq!(got, whole);
    }

    #[test]
    fn what_is_cut_off_is_refused() {
        let file = model().encode_to_vec();
        for end in (1..200).chain((0..file.len()).step_by(997)) {
            let end = end.min(file.len() - 1);
            let got = skim_model(&mut Cursor::new(&file[..end])).map(ModelProto::decode);
            // A cut between two fields leaves a model, as for any decoder.
            assert!(!matches!(got, Ok(Ok(ref m)) if m.graph.is_some()), "{end}");
        }
    }

    #[test]
    fn nothing_overflows_the_stack() {
        // Graphs in attributes of nodes in graphs, each around the next.
        let mut inner = vec![0u8; LARGE as usize * 2];
        for _ in 0..500 {
            for key in [6 << 3 | 2, 5 << 3 | 2, 1 << 3 | 2] {
                let mut outer = Vec::new();
                put(&mut outer, key);
                put(&mut outer, inner.len() as u64);
                outer.extend_from_slice(&inner);
                inner = outer;
            }
        }
        let mut file = Vec::new();
        put(&mut file, 7 << 3 | 2);
        put(&mut file, inner.len() as u64);
        file.extend_from_slice(&inner);
        // Beyond the decoder's depth data is copied as it is, and the decoder refuses it.
        let skimmed = skim_model(&mut Cursor::new(&file)).unwrap();
        assert!(skimmed.len() > inner.len(), "{} of {} bytes", skimmed.len(), inner.len());
        let refused = ModelProto::decode(skimmed).unwrap_err();
        assert!(refused.to_string().contains("recursion limit reached"), "{refused}");
    }
}
