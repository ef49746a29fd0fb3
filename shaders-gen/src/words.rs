//! Operations on packed words without unpacking: products of two words of bytes, and copies of bytes or halves between
//! buffers.

use crate::access::{Form, resolve};
use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::joined::{LANES, is_of_words, word_of_constant};
use crate::kernel::KernelEmitter;
use crate::layout::Word;
use crate::tree::Leaf;
use naga::MathFunction as M;
use tensor_ir::dtype::DType;
use tensor_ir::int::Int;
use tensor_ir::tir::{BufferId, Expr, Scope};

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

    /// Stores a leaf that only copies packed words. Returns false for any other leaf.
    pub fn copied_word(&mut self, leaf: &Leaf) -> Result<bool, EmitError> {
        let (buffer, layout) = (&self.f.buffers[leaf.buffer], self.layout(leaf.buffer));
        let Some(lane) = leaf.lane else { return Ok(false) };
        let (of_bytes, t) = (matches!(layout.word, Word::Bytes { .. }), buffer.dtype);
        if !of_bytes && !matches!(layout.word, Word::F16 | Word::JoinedHalves) {
            return Ok(false);
        }
        let layouts = &self.layouts;
        let packed = |b: BufferId| match layouts[&b].word {
            Word::Bytes { .. } => of_bytes,
            Word::JoinedHalves => !of_bytes,
            _ => false,
        };
        if leaf.value.loads().is_empty() && !of_bytes
            || !is_of_words(self.f, &leaf.value, (lane, t), &packed, self.ranges)
        {
            return Ok(false);
        }
        let access = resolve(buffer, &leaf.indices, leaf.lane, self.ranges);
        let Form::Run { base, count: LANES, align } = &access.form else { return Ok(false) };
        if of_bytes || layout.word == Word::JoinedHalves {
            if *align < i64::from(LANES) {
                return Ok(false);
            }
            let words = self.word_value(&leaf.value, t)?;
            self.store_word(leaf.buffer, base, words, &access)?;
            return Ok(true);
        }
        let words = self.word_value(&leaf.value, t)?;
        let halves = self.halves_of(words, 0, LANES);
        self.store_run(leaf.buffer, base, LANES, *align, halves, &access)?;
        self.b.forget(&|b| b == leaf.buffer);
        Ok(true)
    }

    fn word_value(&mut self, e: &Expr, t: DType) -> Result<Value, EmitError> {
        match e {
            Expr::Load(b, ix) => {
                let access = resolve(&self.f.buffers[*b], ix, self.lane, self.ranges);
                let Form::Run { base, .. } = &access.form else { unreachable!("asked before") };
                if self.layouts[b].word == Word::JoinedHalves || self.layouts[b].width > 1 {
                    return self.load_words(*b, base, &access);
                }
                let at = self.inside(*b, base, &access);
                self.load_word(*b, &at)
            }
            Expr::Select(c, a, b) => {
                let (condition, yes, no) = (self.value(c)?, self.word_value(a, t)?, self.word_value(b, t)?);
                Ok(self.b.select(condition, yes, no))
            }
            Expr::Const(s, _) => {
                let word = word_of_constant(*s, t).unwrap_or_else(|| unreachable!("asked before"));
                let lanes = if t == DType::F16 { LANES / 2 } else { 1 };
                Ok(self.b.constant(Kind::U32, lanes, f64::from(word)))
            }
            _ => unreachable!("asked before"),
        }
    }
}
