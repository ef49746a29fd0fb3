//! Storage words of elements: halves, bytes and bools are packed and unpacked at stores and loads.

use crate::builder::{Kind, Value};
use crate::error::EmitError;
use crate::kernel::KernelEmitter;
use crate::layout::{StorageLayout, Word};
use naga::{BinaryOperator as B, MathFunction as M};
use tensor_ir::dtype::DType;
use tensor_ir::int::Int;
use tensor_ir::profile::HalfWords;
use tensor_ir::tir::BufferId;

impl KernelEmitter<'_> {
    pub fn decode_native(&mut self, v: Value, word: Word, buffer: BufferId) -> Value {
        if self.f.buffers[buffer].dtype == DType::Bool {
            let zero = self.b.constant(Kind::U32, v.lanes, 0.0);
            return self.b.binary(B::NotEqual, v, zero);
        }
        if word == Word::F16 { self.b.convert(v, Kind::F32) } else { v }
    }

    /// `count` elements of `buffer` from `first` on of packed words.
    pub fn decode_packed(&mut self, words: Value, word: Word, buffer: BufferId, first: u32, count: u8) -> Value {
        if word == Word::JoinedHalves {
            let halves = self.halves_of(words, first, count);
            return self.b.convert(halves, Kind::F32);
        }
        let pack = word.pack();
        let mut parts = Vec::with_capacity(count as usize);
        let mut e = first;
        while e < first + u32::from(count) {
            let w = self.b.component(words, e / pack);
            let take = (pack - e % pack).min(first + u32::from(count) - e);
            let all = self.unpack(w, word);
            let all = self.decode_native(all, word, buffer);
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

    /// `count` halves of words from `first` on, in the way that the driver's compiler sees through.
    pub fn halves_of(&mut self, words: Value, first: u32, count: u8) -> Value {
        use naga::valid::Capabilities as C;
        let by_integers = self.profile.half_words() == Some(HalfWords::Integers);
        let sixteen = self.b.constant(Kind::U32, 1, 16.0);
        let mut parts = Vec::with_capacity(count as usize);
        let mut of_word = None;
        for e in first..first + u32::from(count) {
            let word = self.b.component(words, e / 2);
            if by_integers {
                let low = if e % 2 == 1 { self.b.binary(B::ShiftRight, word, sixteen) } else { word };
                parts.push(self.b.convert(low, Kind::U16));
                continue;
            }
            let both = match of_word.filter(|(w, _)| *w == e / 2) {
                Some((_, both)) => both,
                None => self.unpack(word, Word::Halves),
            };
            of_word = Some((e / 2, both));
            parts.push(self.b.component(both, e % 2));
        }
        let all = self.b.compose(&parts);
        self.b.capabilities |= C::SHADER_FLOAT16;
        if !by_integers {
            return self.b.convert(all, Kind::F16);
        }
        self.b.capabilities |= C::SHADER_INT16;
        self.b.bitcast(all, Kind::F16)
    }

    /// All elements of a word as a vector.
    pub fn unpack(&mut self, w: Value, word: Word) -> Value {
        match word {
            Word::Halves => {
                self.b.capabilities |= naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
                let v = self.b.math(M::Unpack2x16float, &[w]);
                Value { kind: Kind::F32, lanes: 2, ..v }
            }
            Word::JoinedHalves => {
                let halves = self.halves_of(w, 0, 2);
                self.b.convert(halves, Kind::F32)
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
    pub fn decode_one_of(&mut self, w: Value, word: Word, buffer: BufferId, sub: &Int) -> Result<Value, EmitError> {
        let sub = self.int(sub)?;
        let sub = Value { handle: sub, kind: Kind::I32, lanes: 1 };
        let sub = self.b.bitcast(sub, Kind::U32);
        let bits = self.b.constant(Kind::U32, 1, if word.pack() == 2 { 16.0 } else { 8.0 });
        let by = self.b.mul(sub, bits);
        let low = self.b.binary(B::ShiftRight, w, by);
        let all = self.unpack(low, word);
        let one = self.b.component(all, 0);
        Ok(self.decode_native(one, word, buffer))
    }

    /// A value as storage words.
    pub fn encode(&mut self, v: Value, layout: &StorageLayout, buffer: BufferId) -> Value {
        let t = self.f.buffers[buffer].dtype;
        let v = if t == DType::Bool {
            let (one, zero) = (self.b.constant(Kind::U32, v.lanes, 1.0), self.b.constant(Kind::U32, v.lanes, 0.0));
            self.b.select(v, one, zero)
        } else {
            v
        };
        match layout.word {
            Word::F16 => self.b.convert(v, Kind::F16),
            Word::RoundedHalf => self.b.quantize_half(v),
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
            Word::JoinedHalves => unreachable!("only words are stored to joined halves"),
        }
    }

    pub fn pack_word(&mut self, v: Value, word: Word) -> Value {
        let one = |v: Value| Value { kind: Kind::U32, lanes: 1, ..v };
        match word {
            Word::Halves => self.b.pack_halves(v, false),
            Word::BrainHalves => self.b.pack_halves(v, true),
            Word::Bytes { signed } => {
                let fun = if signed { M::Pack4xI8 } else { M::Pack4xU8 };
                one(self.b.math(fun, &[v]))
            }
            _ => v,
        }
    }
}
