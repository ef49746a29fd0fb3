//! npz and npy files.

use crate::error::Error;
use crate::plain_files::open_plain;
use crate::written::{names_folder, write_file};
use compiler::dtype::DType;
use compiler::tensor::Tensor;
use half::f16;
use npyz::zip::CompressionMethod;
use npyz::zip::write::FileOptions;
use npyz::{DType as NpyType, NpyFile, WriterBuilder};
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// Named tensors in file order.
pub type Named = Vec<(String, Tensor)>;

/// Reads every array of an npz file, in the order of the file.
///
/// # Errors
/// [`Error::File`].
pub fn read_npz(path: &Path) -> Result<Named, Error> {
    let fail = |why: String| cannot_read(path, why);
    let file = BufReader::new(open_plain(path).map_err(|e| fail(e.to_string()))?);
    let mut archive = npyz::zip::ZipArchive::new(file).map_err(|e| fail(e.to_string()))?;
    let mut out = Vec::with_capacity(archive.len());
    for i in 0..archive.len() {
        let entry = archive.by_index(i).map_err(|e| fail(e.to_string()))?;
        let Some(name) = npyz::npz::array_name_from_file_name(entry.name()).map(String::from) else { continue };
        let (size, mut entry) = (entry.size(), entry);
        let t = read_array(&mut entry, size).map_err(|e| fail(format!("`{name}`: {e}")))?;
        out.push((name, t));
    }
    Ok(out)
}

fn cannot_read(path: &Path, why: String) -> Error {
    Error::File { path: path.display().to_string(), why }
}

/// Reads one npy file.
///
/// # Errors
/// [`Error::File`].
pub fn read_npy(path: &Path) -> Result<Tensor, Error> {
    let fail = |why: String| cannot_read(path, why);
    let mut file = open_plain(path).map_err(|e| fail(e.to_string()))?;
    let size = file.metadata().map_err(|e| fail(e.to_string()))?.len();
    read_array(&mut file, size).map_err(fail)
}

/// The longest header of an array: a dictionary with a type and a shape.
const MOST_HEADER: usize = 1 << 16;

/// Reads an array from what is said to have `size` bytes. Neither that nor what stands in the header is trusted: no
/// more is read than the array has by its header, into memory that grows with the data.
fn read_array(from: &mut impl Read, size: u64) -> Result<Tensor, String> {
    let fail = |e: std::io::Error| e.to_string();
    let mut bytes = vec![];
    from.by_ref().take(12).read_to_end(&mut bytes).map_err(fail)?;
    let header = header_end(&bytes).unwrap_or(bytes.len());
    if header > MOST_HEADER {
        return Err(format!("its header is {header} bytes long, more than {MOST_HEADER}"));
    }
    from.by_ref().take(header.saturating_sub(bytes.len()) as u64).read_to_end(&mut bytes).map_err(fail)?;
    let elements = check_size(&bytes, size)?;
    from.by_ref().take(elements.saturating_mul(8)).read_to_end(&mut bytes).map_err(fail)?;
    parse_array(&bytes)
}

/// Where the header ends, by its length; `None` for less than a length.
fn header_end(bytes: &[u8]) -> Option<usize> {
    let length = match bytes {
        [_, _, _, _, _, _, 1, _, a, b, ..] => 2 + usize::from(u16::from_le_bytes([*a, *b])),
        [_, _, _, _, _, _, _, _, a, b, c, d, ..] => 4 + u32::from_le_bytes([*a, *b, *c, *d]) as usize,
        _ => return None,
    };
    Some(length.saturating_add(8))
}

/// The elements of an array by its header, Python's text of a dictionary. `size`: bytes of the array with its header.
///
/// # Errors
/// A header that is longer than what there is, and an array of more elements than a number counts or than there are
/// bytes.
fn check_size(bytes: &[u8], size: u64) -> Result<u64, String> {
    let Some(end) = header_end(bytes) else { return Ok(0) };
    if end > bytes.len() {
        return Err(format!("its header is {} bytes long, but it holds {}", end - 8, bytes.len().saturating_sub(8)));
    }
    let data = size.saturating_sub(end as u64);
    let mut most = 0;
    let header = String::from_utf8_lossy(&bytes[8..end]);
    for (at, _) in header.match_indices("shape") {
        let list = header[at..].split_once(['(', '[']).and_then(|l| l.1.split_once([')', ']'])).map_or("", |l| l.0);
        let dims = list.split(',').filter_map(|d| d.trim().trim_end_matches('L').parse::<u64>().ok());
        let (mut empty, mut elements) = (false, 1u64);
        for d in dims {
            empty |= d == 0;
            elements = elements.checked_mul(d.max(1)).ok_or(format!("its shape ({list}) is not possible"))?;
        }
        if !empty && elements > data {
            return Err(format!("its shape is ({list}), but it holds {data} bytes"));
        }
        most = most.max(elements);
    }
    Ok(most)
}

fn parse_array(bytes: &[u8]) -> Result<Tensor, String> {
    let npy = NpyFile::new(bytes).map_err(|e| e.to_string())?;
    let shape: Vec<usize> = npy.shape().iter().map(|&d| d as usize).collect();
    let fortran = npy.order() == npyz::Order::Fortran && shape.len() > 1;
    let NpyType::Plain(ty) = npy.dtype() else { return Err("is a structured array".into()) };
    let code = ty.to_string();
    if ty.size_field() > 8 {
        return Err(format!("has the unsupported dtype {code}"));
    }
    // The evaluated expressions of the header, from the parser.
    let size = shape.iter().try_fold(ty.size_field() as usize, |n, &d| n.checked_mul(d));
    if size.is_none_or(|size| size > bytes.len()) {
        return Err(format!("its shape is {shape:?}, but the file has {} bytes of it", bytes.len()));
    }
    macro_rules! go {
        ($t:ty) => {{
            let v: Vec<$t> = npy.into_vec().map_err(|e| e.to_string())?;
            Tensor::from_vec(shape.clone(), v)
        }};
    }
    let t = match &code[1..] {
        "f4" => go!(f32),
        "f8" => go!(f64),
        "f2" => go!(f16),
        "i8" => go!(i64),
        "i4" => go!(i32),
        "i2" => go!(i16),
        "i1" => go!(i8),
        "u8" => go!(u64),
        "u4" => go!(u32),
        "u2" => go!(u16),
        "u1" => go!(u8),
        "b1" => {
            let v: Vec<bool> = npy.into_vec().map_err(|e| e.to_string())?;
            Tensor::from_f64(DType::Bool, shape.clone(), v.into_iter().map(|b| b as u8 as f64))
        }
        other => return Err(format!("has the unsupported dtype {other}")),
    };
    if fortran {
        return Err("is stored in Fortran order".into());
    }
    Ok(t)
}

/// Writes named tensors as npz, whole or not at all.
///
/// # Errors
/// [`Error::Write`].
pub fn write_npz(path: &Path, arrays: &[(String, Tensor)]) -> Result<(), Error> {
    let bytes = npz_bytes(arrays).map_err(|e| cannot_write(path, &e))?;
    write_file(path, &bytes)
}

/// Writes named tensors into an .npz file, or, where `path` has no such name, into a folder with an .npy file for each.
///
/// # Errors
/// [`Error::Write`].
pub fn write_arrays(path: &Path, arrays: &[(String, Tensor)]) -> Result<(), Error> {
    if !names_folder(path) {
        return write_npz(path, arrays);
    }
    std::fs::create_dir_all(path).map_err(|e| cannot_write(path, &e))?;
    let mut files: Vec<String> = vec![];
    for array in arrays {
        let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let base: String = array.0.chars().map(plain).collect();
        let numbered = (1..).map(|i| format!("{base}_{i}"));
        let name = std::iter::once(base.clone()).chain(numbered).find(|n| !files.contains(n)).unwrap_or_default();
        let file = path.join(format!("{name}.npy"));
        files.push(name);
        let bytes = npy_bytes(array).map_err(|e| cannot_write(&file, &e))?;
        write_file(&file, &bytes)?;
    }
    Ok(())
}

fn cannot_write(path: &Path, e: &std::io::Error) -> Error {
    Error::Write(format!("{}: {e}", path.display()))
}

fn npz_bytes(arrays: &[(String, Tensor)]) -> std::io::Result<Vec<u8>> {
    let mut buffer = Cursor::new(Vec::new());
    let mut npz = npyz::npz::NpzWriter::new(&mut buffer);
    arrays.iter().try_for_each(|(name, t)| write_array(&mut npz, name, t))?;
    drop(npz);
    Ok(buffer.into_inner())
}

/// One tensor as an .npy file, which is what an .npz file is an archive of.
fn npy_bytes(array: &(String, Tensor)) -> std::io::Result<Vec<u8>> {
    let mut archive = npyz::zip::ZipArchive::new(Cursor::new(npz_bytes(std::slice::from_ref(array))?))?;
    let mut bytes = vec![];
    archive.by_index(0)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// How an array is kept in the archive: floating-point numbers as they are, since deflating them takes far longer than
/// writing them and saves little.
fn kept(t: &Tensor) -> FileOptions {
    let float = matches!(t.dtype(), DType::F16 | DType::BF16 | DType::F32 | DType::F64);
    let method = if float { CompressionMethod::Stored } else { CompressionMethod::Deflated };
    // Sizes of 4 GiB and more need fields of their own; the header is shorter than a MiB.
    let elements = t.shape().iter().product::<usize>();
    let large = elements as u64 * 8 >= u64::from(u32::MAX) - (1 << 20);
    FileOptions::default().compression_method(method).large_file(large)
}

fn write_array<W: std::io::Write + std::io::Seek>(
    npz: &mut npyz::npz::NpzWriter<W>,
    name: &str,
    t: &Tensor,
) -> std::io::Result<()> {
    let shape: Vec<u64> = t.shape().iter().map(|&d| d as u64).collect();
    macro_rules! go {
        ($t:ty) => {{
            let mut w = npz.array(name, kept(t))?.default_dtype().shape(&shape).begin_nd()?;
            w.extend(t.as_slice::<$t>().expect("dtype").iter().copied())?;
            w.finish()
        }};
    }
    match t.dtype() {
        DType::Bool => {
            let mut w = npz.array(name, kept(t))?.default_dtype().shape(&shape).begin_nd()?;
            w.extend(t.bytes().iter().map(|&b| b != 0))?;
            w.finish()
        }
        DType::U8 => go!(u8),
        DType::I8 => go!(i8),
        DType::U16 => go!(u16),
        DType::I16 => go!(i16),
        DType::U32 => go!(u32),
        DType::I32 => go!(i32),
        DType::U64 => go!(u64),
        DType::I64 => go!(i64),
        DType::F16 => go!(f16),
        DType::F64 => go!(f64),
        DType::F32 => go!(f32),
        DType::BF16 => {
            let values = t.to_f32_vec();
            let mut w = npz.array(name, kept(t))?.default_dtype().shape(&shape).begin_nd()?;
            w.extend(values)?;
            w.finish()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_come_in_the_order_of_the_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let arrays: Named = (0..9).map(|i| (format!("in/{}:0", i * 5 % 9), Tensor::scalar(i as f32))).collect();
        write_npz(file.path(), &arrays).expect("writes");
        assert_eq!(read_npz(file.path()).expect("reads"), arrays);
    }

    #[test]
    fn floats_are_stored_and_others_deflated() {
        let counts = Tensor::from_vec(vec![4096], vec![7i64; 4096]);
        let arrays: Named = vec![("x".into(), Tensor::from_vec(vec![4096], vec![0f32; 4096])), ("n".into(), counts)];
        let bytes = npz_bytes(&arrays).expect("writes");
        let mut archive = npyz::zip::ZipArchive::new(Cursor::new(bytes)).expect("an archive");
        let size = |archive: &mut npyz::zip::ZipArchive<_>, i| archive.by_index(i).expect("an entry").compressed_size();
        assert!(size(&mut archive, 0) > 4096 * 4 && size(&mut archive, 1) < 4096);
    }

    #[test]
    fn a_folder_has_an_array_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let arrays: Named = vec![("a/b".into(), Tensor::scalar(1f32)), ("a:b".into(), Tensor::scalar(2f32))];
        write_arrays(folder.path(), &arrays).expect("writes");
        let read = |name: &str| read_npy(&folder.path().join(name)).expect("reads");
        assert_eq!([read("a_b.npy"), read("a_b_1.npy")], [arrays[0].1.clone(), arrays[1].1.clone()]);
    }

    #[test]
    fn headers_are_held_against_the_bytes() {
        let array = |shape: &str| {
            let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
            let length = u16::try_from(header.len()).expect("short").to_le_bytes();
            [&b"\x93NUMPY\x01\x00"[..], &length, header.as_bytes(), &[0; 16]].concat()
        };
        assert_eq!(read_array(&mut &array("(2, 2)")[..], 1000).expect("reads").shape(), [2, 2]);
        for shape in ["(5,)", "(2147483647, 2, 2)", "(1, 9223372036854775807, 4)", "(0, 9223372036854775807, 4)"] {
            assert!(read_array(&mut &array(shape)[..], array(shape).len() as u64).is_err(), "{shape}");
        }
    }
}
