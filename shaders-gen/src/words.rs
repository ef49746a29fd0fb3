//! Packed words of bytes as they are: products of two words, and copies from one packed buffer to another.

use crate::access::{Form, resolve};
use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::layout::Word;
use crate::tree::Leaf;
use compiler::dtype::DType;
use compiler::int::Int;
use compiler::tir::{BufferId, Expr, Scalar, Scope};
use naga::MathFunction as M;

/// Elements of a word.
const BYTES: u8 = 4;

impl KernelEmitter<'_> {
    /// True when a leaf is an operation that a subgroup does as a whole.
    pub fn is_of_subgroup(&self, leaf: &Leaf) -> bool {
        let fragment = |b: BufferId| matches!(self.f.buffers[b].scope, Scope::Fragment(_));
        !leaf.tensor.is_empty() && (fragment(leaf.buffer) || leaf.value.loads().iter().any(|l| fragment(l.0)))
    }

    /// The sum of the products of the bytes of two words, which a leaf adds to its element.
    pub fn packed_dot(&mut self, leaf: &Leaf) -> Result<Value, EmitError> {
        let loads = leaf.value.loads();
        let (&[(a, ia), (b, ib)], &[(var, _)]) = (loads.as_slice(), leaf.tensor.as_slice()) else {
            let text = format!("kernel `{}`: block `{}` is no product of packed words", self.kernel, leaf.block);
            return Err(EmitError::unsupported(text));
        };
        let first = |ix: &[Int]| ix.iter().map(|i| i.substitute(var, &Int::new(0))).collect::<Vec<Int>>();
        let words = [self.packed_word(a, &first(ia))?, self.packed_word(b, &first(ib))?];
        let signed = self.f.buffers[a].dtype == DType::I8;
        let sum = self.b.math(if signed { M::Dot4I8Packed } else { M::Dot4U8Packed }, &words);
        let kind = if signed { Kind::I32 } else { Kind::U32 };
        Ok(self.b.bitcast(Value { kind, ..sum }, Kind::I32))
    }

    /// The word whose first byte stands at `indices`.
    fn packed_word(&mut self, buffer: BufferId, indices: &[Int]) -> Result<Value, EmitError> {
        let access = resolve(&self.f.buffers[buffer], indices, None, self.ranges);
        let (Form::One(i), Word::Bytes { .. }) = (&access.form, self.layouts[&buffer].word) else {
            let name = self.f.buffers[buffer].name;
            return Err(EmitError::unsupported(format!("kernel `{}`: `{name}` has no packed words", self.kernel)));
        };
        let i = self.inside(buffer, i, &access);
        self.load_word(buffer, &i)
    }

    /// Stores a leaf whose lanes are the bytes of one word, and which computes no byte anew: the word is copied. False for any other.
    pub fn copied_word(&mut self, leaf: &Leaf) -> Result<bool, EmitError> {
        let layout = self.layout(leaf.buffer);
        let Word::Bytes { .. } = layout.word else { return Ok(false) };
        let access = resolve(&self.f.buffers[leaf.buffer], &leaf.indices, leaf.lane, self.ranges);
        let Form::Run { base, count: BYTES, align } = &access.form else { return Ok(false) };
        if *align < i64::from(BYTES) || !self.is_of_words(&leaf.value, self.f.buffers[leaf.buffer].dtype) {
            return Ok(false);
        }
        let word = self.word_value(&leaf.value)?;
        self.store_word(leaf.buffer, base, word, &access)?;
        Ok(true)
    }

    /// True when the lanes of a value are the bytes of words that are loaded, one of two such, or constants.
    fn is_of_words(&mut self, e: &Expr, t: DType) -> bool {
        let Some(lane) = self.lane else { return false };
        match e {
            Expr::Const(Scalar::Int(_), own) => *own == t,
            Expr::Load(b, ix) => {
                let buffer = &self.f.buffers[*b];
                let packed = buffer.dtype == t && matches!(self.layouts[b].word, Word::Bytes { .. });
                let form = resolve(buffer, ix, Some(lane), self.ranges).form;
                packed && matches!(form, Form::Run { count: BYTES, align, .. } if align >= i64::from(BYTES))
            }
            Expr::Select(c, a, b) => {
                let mut differs = false;
                c.visit_ints(&mut |i| differs |= i.uses(lane.var));
                !differs && c.loads().is_empty() && self.is_of_words(a, t) && self.is_of_words(b, t)
            }
            _ => false,
        }
    }

    fn word_value(&mut self, e: &Expr) -> Result<Value, EmitError> {
        match e {
            Expr::Load(b, ix) => {
                let access = resolve(&self.f.buffers[*b], ix, self.lane, self.ranges);
                let Form::Run { base, .. } = &access.form else { unreachable!("asked before") };
                let at = self.inside(*b, base, &access);
                self.load_word(*b, &at)
            }
            Expr::Select(c, a, b) => {
                let (condition, yes, no) = (self.value(c)?, self.word_value(a)?, self.word_value(b)?);
                Ok(self.b.select(condition, yes, no))
            }
            Expr::Const(Scalar::Int(v), _) => {
                let word = u32::from_le_bytes([*v as u8; 4]);
                Ok(self.b.constant(Kind::U32, 1, f64::from(word)))
            }
            _ => unreachable!("asked before"),
        }
    }
}
