//! Constants of a module.

use super::{ModuleParser, Parser, Result};
use crate::dtype::DType;
use crate::fault::Fault;
use crate::graph::{Constant, Module};
use crate::name::Name;
use crate::tensor::{ConstData, DataSource, Tensor};
use bytes::Bytes;
use half::{bf16, f16};
use std::sync::Arc;
use tensor_ir::text::RandomData;
use tensor_ir::text::lexer::Tok;
use tensor_ir::text::parse::describe;

/// Largest constant that text may fill with an initialiser.
const MAX_BYTES: usize = 64 << 20;

/// The data of a constant that was declared without it.
pub(super) struct MissingData(pub Name);
impl DataSource for MissingData {
    fn read(&self) -> Result<Bytes, Fault> {
        Err(format!("constant @{} is declared without data", self.0).into())
    }
}

impl ModuleParser<'_> {
    /// After `const`: `@name : f32[2] = [1.0, 2.0]`.
    pub(super) fn constant(&mut self, m: &mut Module) -> Result<()> {
        let at = self.at();
        let name = self.global()?;
        self.check_fresh(m, name, at)?;
        self.expect_punct(":")?;
        let at = self.at();
        let ty = self.tensor_type()?;
        let Some(shape) = ty.const_shape() else {
            return self.error_at(at, "a constant's dimensions are numbers");
        };
        let bytes = shape.iter().try_fold(ty.dtype.size(), |a, &d| a.checked_mul(d));
        let Some(bytes) = bytes.filter(|&b| i64::try_from(b).is_ok()) else {
            return self.error_at(at, "the constant is too large");
        };
        let data = if self.eat_punct("=") {
            let at = self.at();
            if bytes > MAX_BYTES {
                return self.error_at(at, format!("text fills constants of at most {MAX_BYTES} bytes"));
            }
            initial(self, ty.dtype, &shape)?
        } else {
            ConstData::Lazy(Arc::new(MissingData(name)))
        };
        m.constants.insert(name, Constant { dtype: ty.dtype, shape, data });
        Ok(())
    }
}

fn initial(p: &mut Parser<'_>, dtype: DType, shape: &[usize]) -> Result<ConstData> {
    let at = p.at();
    let count: usize = shape.iter().product();
    let data = match p.advance() {
        Tok::Punct("[") => {
            let mut data = Vec::new();
            let items = p.list("]", |p| element(p, dtype, &mut data))?.len();
            if items != count {
                return p.error_at(at, format!("the type has {count} elements, the list {items}"));
            }
            data
        }
        Tok::Word(w) if w == "zeros" => vec![0; count * dtype.size()],
        Tok::Word(w) if w == "splat" => {
            p.expect_punct("(")?;
            let mut one = Vec::new();
            element(p, dtype, &mut one)?;
            p.expect_punct(")")?;
            one.repeat(count)
        }
        Tok::Word(w) if w == "random" => {
            p.expect_punct("(")?;
            let seed = p.integer()?;
            p.expect_punct(")")?;
            return Ok(ConstData::Lazy(Arc::new(RandomData::new(dtype, shape.to_vec(), seed))));
        }
        Tok::Word(w) if w == "hex" => {
            p.expect_punct("(")?;
            let at = p.at();
            let digits = p.string()?;
            p.expect_punct(")")?;
            let bytes = decode_hex(&digits);
            let fits = |b: &Vec<u8>| b.len() == count * dtype.size();
            match bytes.filter(fits) {
                Some(b) => b,
                None => {
                    return p.error_at(at, format!("{} hexadecimal digits are needed", count * dtype.size() * 2));
                }
            }
        }
        tok => {
            let found = describe(&tok);
            return p.error_at(
                at,
                format!("expected `[values]`, `zeros`, `splat(v)`, `random(seed)` or `hex(\"...\")`, found {found}"),
            );
        }
    };
    match Tensor::from_bytes(dtype, shape.to_vec(), Bytes::from(data)) {
        Ok(t) => Ok(ConstData::Inline(t.bytes().clone())),
        Err(message) => p.error_at(at, message),
    }
}

/// Appends the little-endian bytes of one element.
fn element(p: &mut Parser<'_>, dtype: DType, out: &mut Vec<u8>) -> Result<()> {
    match dtype {
        DType::Bool => {
            let at = p.at();
            match p.advance() {
                Tok::Word(w) if w == "true" || w == "false" => out.push((w == "true").into()),
                tok => return p.error_at(at, format!("expected `true` or `false`, found {}", describe(&tok))),
            }
        }
        DType::U8 => out.extend(p.integer::<u8>()?.to_le_bytes()),
        DType::I8 => out.extend(p.integer::<i8>()?.to_le_bytes()),
        DType::U16 => out.extend(p.integer::<u16>()?.to_le_bytes()),
        DType::I16 => out.extend(p.integer::<i16>()?.to_le_bytes()),
        DType::U32 => out.extend(p.integer::<u32>()?.to_le_bytes()),
        DType::I32 => out.extend(p.integer::<i32>()?.to_le_bytes()),
        DType::U64 => out.extend(p.integer::<u64>()?.to_le_bytes()),
        DType::I64 => out.extend(p.integer::<i64>()?.to_le_bytes()),
        // The shortest text of an f16 is that of the equal f32; f32 and f64 are read as what they are, without a
        // second rounding.
        DType::F16 => {
            let text = float_text(p)?;
            let x = if text == "nan" { f16::NAN } else { f16::from_f32(text.parse().unwrap_or(0.0)) };
            out.extend(x.to_le_bytes());
        }
        DType::BF16 => {
            let text = float_text(p)?;
            let x = if text == "nan" { bf16::NAN } else { bf16::from_f32(text.parse().unwrap_or(0.0)) };
            out.extend(x.to_le_bytes());
        }
        DType::F32 => {
            let text = float_text(p)?;
            let x = if text == "nan" { f32::NAN } else { text.parse().unwrap_or(0.0) };
            out.extend(x.to_le_bytes());
        }
        DType::F64 => {
            let text = float_text(p)?;
            let x = if text == "nan" { f64::NAN } else { text.parse().unwrap_or(0.0) };
            out.extend(x.to_le_bytes());
        }
    }
    Ok(())
}

/// Text of a float in the form that Rust parses.
fn float_text(p: &mut Parser<'_>) -> Result<String> {
    let at = p.at();
    let sign = if p.eat_punct("-") { "-" } else { "" };
    match p.advance() {
        Tok::Int(s) | Tok::Float(s) => Ok(format!("{sign}{s}")),
        Tok::Word(w) if w == "inf" => Ok(format!("{sign}inf")),
        Tok::Word(w) if w == "nan" && sign.is_empty() => Ok(w),
        tok => p.error_at(at, format!("expected a number, found {}", describe(&tok))),
    }
}

fn decode_hex(digits: &str) -> Option<Vec<u8>> {
    let nibble = |b: &u8| (*b as char).to_digit(16).map(|d| d as u8);
    let nibbles: Vec<u8> = digits.as_bytes().iter().map(nibble).collect::<Option<_>>()?;
    nibbles.len().is_multiple_of(2).then(|| nibbles.chunks_exact(2).map(|c| c[0] << 4 | c[1]).collect())
}
