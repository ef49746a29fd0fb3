//! Elements and storage words: halves, bytes and bools are packed and unpacked around loads and stores.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::layout::{Layout, Word};
use compiler::dtype::DType;
use compiler::int::Int;
use compiler::tir::BufferId;
use naga::{BinaryOperator as B, MathFunction as M};

impl KernelEmitter<'_> {
    pub fn decode_native(&mut self, v: Value, word: Word, buffer: BufferId) -> Value {
        if self.f.buffers[buffer].dtype == DType::Bool {
            let zero = self.b.constant(Kind::U32, v.lanes, 0.0);
            return self.b.binary(B::NotEqual, v, zero);
        }
        if word == Word::F16 { self.b.convert(v, Kind::F32) } else { v }
    }

    /// `count` elements from `first` on of packed words.
    pub fn decode_packed(&mut self, words: Value, word: Word, first: u32, count: u8) -> Value {
        let pack = word.pack();
        let mut parts = Vec::with_capacity(count as usize);
        let mut e = first;
        while e < first + u32::from(count) {
            let w = self.b.component(words, e / pack);
            let take = (pack - e % pack).min(first + u32::from(count) - e);
            let all = self.unpack(w, word);
            if take == u32::from(count) && take == pack {
                return all;
            }
            for c in 0..take {
                parts.push(self.b.component(all, e % pack + c));
            }
            e += take;
        }
        self.b.compose(&parts)
    }

    /// All elements of a word as a vector.
    pub fn unpack(&mut self, w: Value, word: Word) -> Value {
        match word {
            Word::Halves => {
                self.b.capabilities |= naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
                let v = self.b.math(M::Unpack2x16float, &[w]);
                Value { kind: Kind::F32, lanes: 2, ..v }
            }
            Word::BrainHalves => {
                let (shift, mask) =
                    (self.b.constant(Kind::U32, 1, 16.0), self.b.constant(Kind::U32, 1, 4_294_901_760.0));
                let low = self.b.binary(B::ShiftLeft, w, shift);
                let high = self.b.binary(B::And, w, mask);
                let v = self.b.compose(&[low, high]);
                self.b.bitcast(v, Kind::F32)
            }
            Word::Bytes { signed } => {
                let fun = if signed { M::Unpack4xI8 } else { M::Unpack4xU8 };
                let v = self.b.math(fun, &[w]);
                Value { kind: if signed { Kind::I32 } else { Kind::U32 }, lanes: 4, ..v }
            }
            _ => w,
        }
    }

    /// Element `sub` of a packed word, at run time.
    pub fn decode_one_of(&mut self, w: Value, word: Word, sub: &Int) -> Result<Value, EmitError> {
        let sub = self.int(sub)?;
        let sub = Value { handle: sub, kind: Kind::I32, lanes: 1 };
        let sub = self.b.bitcast(sub, Kind::U32);
        let bits = self.b.constant(Kind::U32, 1, if word.pack() == 2 { 16.0 } else { 8.0 });
        let by = self.b.mul(sub, bits);
        let low = self.b.binary(B::ShiftRight, w, by);
        let all = self.unpack(low, word);
        Ok(self.b.component(all, 0))
    }

    /// A value as storage words.
    pub fn encode(&mut self, v: Value, layout: &Layout, buffer: BufferId) -> Value {
        let t = self.f.buffers[buffer].dtype;
        let v = if t == DType::Bool {
            let (one, zero) = (self.b.constant(Kind::U32, v.lanes, 1.0), self.b.constant(Kind::U32, v.lanes, 0.0));
            self.b.select(v, one, zero)
        } else {
            v
        };
        match layout.word {
            Word::F16 => self.b.convert(v, Kind::F16),
            Word::RoundedHalf => {
                self.b.capabilities |= naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
                self.b.math(M::QuantizeToF16, &[v])
            }
            Word::Halves | Word::BrainHalves | Word::Bytes { .. } => {
                let pack = layout.word.pack() as u8;
                let mut words = Vec::new();
                for k in (0..v.lanes).step_by(pack as usize) {
                    let part = self.b.slice(v, u32::from(k), pack);
                    words.push(self.pack_word(part, layout.word));
                }
                self.b.compose(&words)
            }
            Word::F32 | Word::I32 | Word::U32 => v,
        }
    }

    pub fn pack_word(&mut self, v: Value, word: Word) -> Value {
        let one = |v: Value| Value { kind: Kind::U32, lanes: 1, ..v };
        match word {
            Word::Halves => {
                self.b.capabilities |= naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
                one(self.b.math(M::Pack2x16float, &[v]))
            }
            Word::BrainHalves => {
                // Rounds to nearest even on the upper 16 bits; a NaN keeps its upper bits.
                let bits = self.b.bitcast(v, Kind::U32);
                let shift = self.b.constant(Kind::U32, 2, 16.0);
                let (one_bit, bias) = (self.b.constant(Kind::U32, 2, 1.0), self.b.constant(Kind::U32, 2, 32767.0));
                let upper = self.b.binary(B::ShiftRight, bits, shift);
                let odd = self.b.binary(B::And, upper, one_bit);
                let sum = self.b.add(bits, bias);
                let sum = self.b.add(sum, odd);
                let rounded = self.b.binary(B::ShiftRight, sum, shift);
                let mask = self.b.constant(Kind::U32, 2, f64::from(0x7fff_ffffu32));
                let magnitude = self.b.binary(B::And, bits, mask);
                let inf = self.b.constant(Kind::U32, 2, f64::from(0x7f80_0000u32));
                let nan = self.b.binary(B::Greater, magnitude, inf);
                let halves = self.b.select(nan, upper, rounded);
                let (low, high) = (self.b.component(halves, 0), self.b.component(halves, 1));
                let by = self.b.constant(Kind::U32, 1, 16.0);
                let high = self.b.binary(B::ShiftLeft, high, by);
                self.b.binary(B::InclusiveOr, low, high)
            }
            Word::Bytes { signed } => {
                let fun = if signed { M::Pack4xI8 } else { M::Pack4xU8 };
                one(self.b.math(fun, &[v]))
            }
            _ => v,
        }
    }
}
