//! npz and npy files.

use crate::error::{CliError, CliResult};
use crate::models::{open_plain, read_plain};
use compiler::dtype::DType;
use compiler::tensor::{Tensor, ensure_room};
use half::f16;
use npyz::{DType as NpyType, NpyFile, WriterBuilder};
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

/// Named tensors in file order.
pub type Named = Vec<(String, Tensor)>;

/// Reads every array of an npz file.
pub fn read_npz(path: &Path) -> CliResult<Named> {
    let fail = |why: String| CliError::input(format!("cannot read {}: {why}", path.display()));
    let file = BufReader::new(open_plain(path).map_err(|e| fail(e.to_string()))?);
    let mut npz = npyz::npz::NpzArchive::new(file).map_err(|e| fail(e.to_string()))?;
    let names: Vec<String> = npz.array_names().map(String::from).collect();
    let mut out = Vec::with_capacity(names.len());
    for name in names {
        let npy =
            npz.by_name(&name).map_err(|e| fail(e.to_string()))?.ok_or_else(|| fail(format!("no array `{name}`")))?;
        let t = read_array(npy).map_err(|e| fail(format!("`{name}`: {e}")))?;
        out.push((name, t));
    }
    Ok(out)
}

/// Reads one npy file.
pub fn read_npy(path: &Path) -> CliResult<Tensor> {
    let fail = |why: String| CliError::input(format!("cannot read {}: {why}", path.display()));
    let bytes = read_plain(path).map_err(|e| fail(e.to_string()))?;
    let npy = NpyFile::new(Cursor::new(bytes)).map_err(|e| fail(e.to_string()))?;
    read_array(npy).map_err(fail)
}

fn read_array<R: Read>(npy: NpyFile<R>) -> Result<Tensor, String> {
    let shape: Vec<usize> = npy.shape().iter().map(|&d| d as usize).collect();
    let fortran = npy.order() == npyz::Order::Fortran && shape.len() > 1;
    let NpyType::Plain(ty) = npy.dtype() else { return Err("is a structured array".into()) };
    let code = ty.to_string();
    let bytes = shape.iter().try_fold(ty.size_field() as usize, |n, &d| n.checked_mul(d));
    ensure_room(bytes.unwrap_or(usize::MAX))?;
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
pub fn write_npz(path: &Path, arrays: &[(String, Tensor)]) -> CliResult<()> {
    let fail = |why: String| CliError::usage(format!("cannot write {}: {why}", path.display()));
    let mut buffer = Cursor::new(Vec::new());
    {
        let mut npz = npyz::npz::NpzWriter::new(&mut buffer);
        for (name, t) in arrays {
            write_array(&mut npz, name, t).map_err(|e| fail(e.to_string()))?;
        }
    }
    crate::output::write_file(path, buffer.get_ref())
}

fn write_array<W: std::io::Write + std::io::Seek>(
    npz: &mut npyz::npz::NpzWriter<W>,
    name: &str,
    t: &Tensor,
) -> std::io::Result<()> {
    let shape: Vec<u64> = t.shape().iter().map(|&d| d as u64).collect();
    macro_rules! go {
        ($t:ty) => {{
            let mut w = npz.array(name, Default::default())?.default_dtype().shape(&shape).begin_nd()?;
            w.extend(t.as_slice::<$t>().expect("dtype").iter().copied())?;
            w.finish()
        }};
    }
    match t.dtype() {
        DType::Bool => {
            let mut w = npz.array(name, Default::default())?.default_dtype().shape(&shape).begin_nd()?;
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
            let mut w = npz.array(name, Default::default())?.default_dtype().shape(&shape).begin_nd()?;
            w.extend(values)?;
            w.finish()
        }
    }
}
