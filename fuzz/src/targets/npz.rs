//! npz and npy files: mutated containers, and mutated arrays inside valid containers.

use crate::raw::{self, one_in};
use crate::target::{Outcome, Random, Target};
use crate::text::mutate as mutate_text;
use compiler::dtype::DType;
use compiler::tensor::Tensor;
use compiler::text::random_tensor;
use npyz::zip::write::FileOptions;
use npyz::zip::{CompressionMethod, ZipArchive, ZipWriter};
use rand::RngExt;
use std::io::{Cursor, Read, Write};
use workbench::arrays::{read_npy, read_npz, write_npz};

/// The row of the table.
pub const TARGET: Target =
    Target { name: "npz", help: "npz and npy files: read, write, read again", seeds, mutate, run };

/// What headers are changed with.
const PARTS: &[&str] = &[
    "f4", "f8", "f2", "i8", "b1", "u1", "O", "c8", "U4", "V9", "M8", "<", ">", "|", "True", "None", "(", ")", "[", "]",
];

fn seeds() -> Vec<Vec<u8>> {
    let all = [DType::F32, DType::F16, DType::F64, DType::I64, DType::I32, DType::I8, DType::U8, DType::Bool];
    let shapes: [&[usize]; 5] = [&[], &[0], &[3], &[2, 3], &[1, 2, 2, 2]];
    let tensor = |d: usize, s: usize| random_tensor(all[d], shapes[s], (d * 7 + s) as u64);
    let one = (0..all.len()).map(|d| vec![("x".to_string(), tensor(d, d % 5))]);
    let many = vec![(0..5).map(|s| (format!("in/{s}:0"), tensor(s, s))).collect()];
    one.chain(many).filter_map(|arrays: Vec<(String, Tensor)>| archive(&arrays)).collect()
}

fn archive(arrays: &[(String, Tensor)]) -> Option<Vec<u8>> {
    let file = tempfile::NamedTempFile::new().ok()?;
    write_npz(file.path(), arrays).ok()?;
    std::fs::read(file.path()).ok()
}

/// The files of an archive.
type Files = Vec<(String, Vec<u8>)>;

fn unpack(bytes: &[u8]) -> Option<Files> {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).ok()?;
    let mut out = Vec::new();
    for i in 0..zip.len() {
        let mut file = zip.by_index(i).ok()?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).ok()?;
        out.push((file.name().to_string(), content));
    }
    Some(out)
}

fn pack(files: &Files) -> Option<Vec<u8>> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        zip.start_file(name.as_str(), FileOptions::default().compression_method(CompressionMethod::Stored)).ok()?;
        zip.write_all(content).ok()?;
    }
    Some(zip.finish().ok()?.into_inner())
}

/// Most often an array inside of a whole archive, else the archive's own bytes, else an array without archive.
fn mutate(random: &mut Random, from: Vec<u8>, others: &[Vec<u8>]) -> Vec<u8> {
    let Some(mut files) = unpack(&from).filter(|f| !f.is_empty()) else {
        return raw::mutate(random, from, others);
    };
    let chosen = random.random_range(0..files.len());
    match random.random_range(0..8) {
        0 | 1 => return raw::mutate(random, from, others),
        2 => {
            let (name, content) = files[chosen].clone();
            files.push((if one_in(random, 2) { name } else { "../../x".into() }, content));
        }
        kind => {
            let array = &mut files[chosen].1;
            change_header(random, array);
            if one_in(random, 3) {
                *array = raw::mutate(random, std::mem::take(array), &[]);
            }
            if kind == 3 {
                return std::mem::take(array);
            }
        }
    }
    pack(&files).unwrap_or(from)
}

/// Puts something else into the text of an array's header: its dtype, order and shape.
fn change_header(random: &mut Random, array: &mut Vec<u8>) {
    const START: usize = 10;
    if array.len() < START {
        return;
    }
    let old = START..START + usize::from(u16::from_le_bytes([array[8], array[9]]));
    let Some(header) = array.get(old.clone()) else { return };
    let text = String::from_utf8_lossy(header).into_owned();
    let changed = mutate_text(random, text.trim_end(), PARTS, "");
    let size = changed.len().next_multiple_of(16);
    let header = format!("{:<size$}", changed.replace('\n', " "));
    let length = u16::try_from(header.len()).unwrap_or(u16::MAX).to_le_bytes();
    array.splice(8..old.end, length.into_iter().chain(header.bytes()));
}

fn run(input: &[u8]) -> Outcome {
    let fail = |e: std::io::Error| format!("no temporary file: {e}");
    let file = tempfile::NamedTempFile::new().map_err(fail)?;
    std::fs::write(file.path(), input).map_err(fail)?;
    let single = read_npy(file.path()).is_ok();
    let Ok(arrays) = read_npz(file.path()) else { return Ok(if single { "one array" } else { "refused" }) };
    if arrays.iter().any(|a| a.1.len() > 1 << 20) {
        return Ok("large");
    }
    write_npz(file.path(), &arrays).map_err(|e| format!("what was read cannot be written: {e}"))?;
    let again = read_npz(file.path()).map_err(|e| format!("what was written cannot be read: {e}"))?;
    let same = again.len() == arrays.len()
        && again
            .iter()
            .zip(&arrays)
            .all(|(a, b)| a.0 == b.0 && a.1.shape() == b.1.shape() && a.1.bytes() == b.1.bytes());
    if same { Ok("read") } else { Err("what was written is read as something else".into()) }
}
