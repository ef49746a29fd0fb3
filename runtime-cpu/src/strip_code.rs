//! The steps over a strip, made of a leaf's value.

use crate::along::Along;
use crate::chains;
use crate::epilogue::Known;
use crate::form::Form;
use crate::index::{Condition, Extent, Index};
use crate::program::{Leaf, Reduction, Value};
use crate::strip_program::{Code, IntWork, Operand, Place, Step, Uniform, Work};
use tensor_ir::dtype::DType;
use tensor_ir::interpreter::scalar;
use tensor_ir::tir::BinaryOp;

/// Makes the codes of a leaf.
pub(crate) struct Compiler<'a> {
    lanes: [Extent; 2],
    buffers: &'a [Known],
    pub choices: Vec<Vec<Condition>>,
    pub places: Vec<Place>,
    code: Code,
    /// Choices that hold.
    bits: usize,
    free: Vec<usize>,
    /// Values that were computed before, and whether they are integers.
    lets: Vec<(Operand, bool)>,
}

/// The value that is stored: an integer may become a longer one as it is, and a number an integer.
fn without_widening(v: &Value) -> &Value {
    match v {
        Value::Cast(from, DType::I64, a) if is_small(*from) || is_short(*from) => a,
        v => v,
    }
}

/// A number without limits that its conversion to an integer between these has itself.
fn without_limits(v: &Value, [low, high]: [f32; 2]) -> &Value {
    if let Value::Binary(op, DType::F32, a, b) = v
        && let Value::F(limit) = **b
        && (*op == BinaryOp::Min && limit >= high || *op == BinaryOp::Max && limit <= low)
    {
        return without_limits(a, [low, high]);
    }
    v
}

/// True of integers that are i32 in registers.
fn is_small(t: DType) -> bool {
    matches!(t, DType::Bool | DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32)
}

/// True of floats that are f32 in registers.
fn is_short(t: DType) -> bool {
    t.is_float() && t.size() <= 4
}

/// True of integers that are i32 in registers.
pub(crate) fn is_int_form(f: Form) -> bool {
    matches!(f, Form::I8 | Form::U8 | Form::I32 | Form::U32)
}

impl<'a> Compiler<'a> {
    pub(crate) fn new(lanes: [Extent; 2], buffers: &'a [Known]) -> Compiler<'a> {
        let (choices, places, free, lets) = (vec![], vec![], vec![], vec![]);
        Compiler { lanes, buffers, choices, places, code: Code::default(), bits: 0, free, lets }
    }
    /// Finds the conditions of selects.
    pub(crate) fn find_choices(&mut self, v: &Value) {
        if let Value::Select(c, ..) = v
            && let Value::All(list) = &**c
            && !self.choices.contains(list)
        {
            self.choices.push(list.clone());
        }
        v.operands().into_iter().for_each(|v| self.find_choices(v));
    }
    /// The steps of a leaf where these choices hold; the bit above them says that a reduction begins.
    pub(crate) fn code(&mut self, l: &Leaf, combined: Option<&Reduction>, bits: usize) -> Option<Code> {
        (self.bits, self.code) = (bits, Code::default());
        self.free.clear();
        self.lets.clear();
        for v in &l.lets {
            let lanes = self.any(v)?;
            self.lets.push(lanes);
        }
        let (mut result, is_int) = self.any(without_widening(&l.value))?;
        if let Some(r) = combined {
            let old = match bits >> self.choices.len() {
                0 => self.load(l.store.buffer, &l.store.index, is_int)?,
                _ => self.identity(r, is_int),
            };
            let op = r.combiner.operator();
            result = match is_int {
                true => self.ints(IntWork::Binary(op, r.dtype, [old, result]), &[old, result]),
                false => self.binary(op, [old, result]),
            };
        }
        self.code.is_int = is_int;
        self.code.result = Some(result);
        self.note(result);
        let mut code = std::mem::take(&mut self.code);
        chains::join(&mut code);
        Some(code)
    }
    /// The number that a reduction begins with.
    fn identity(&mut self, r: &Reduction, is_int: bool) -> Operand {
        let nothing = scalar::identity(r.combiner, r.dtype);
        self.uniform(match is_int {
            true => Uniform::Int(nothing.int() as i32),
            false => Uniform::Number(nothing.float() as f32),
        })
    }
    /// The lanes of a value, and whether they are integers.
    fn any(&mut self, v: &Value) -> Option<(Operand, bool)> {
        let is_int = self.is_int(v);
        Some((if is_int { self.int(v)? } else { self.value(v)? }, is_int))
    }
    fn is_int(&self, v: &Value) -> bool {
        match v {
            Value::I(_) | Value::All(_) => true,
            Value::F(_) | Value::D(_) | Value::Polynomial(..) => false,
            Value::Load(a) => !self.buffers[a.buffer].form.is_narrow_float(),
            Value::Index(_, t) | Value::Cast(_, t, _) => !t.is_float(),
            Value::Unary(op, t, _) => op.is_test() || !t.is_float(),
            Value::Binary(op, t, ..) => op.is_comparison() || !t.is_float(),
            Value::Select(_, a, _) => self.is_int(a),
            Value::Choose(_, _, all) => self.is_int(&all[2]),
            Value::Let(i) => self.lets.get(*i).is_some_and(|l| l.1),
        }
    }
    fn ints(&mut self, work: IntWork, operands: &[Operand]) -> Operand {
        self.step(Work::Ints(work), operands)
    }
    /// The lanes of an integer or bool of at most 32 bits.
    fn int(&mut self, v: &Value) -> Option<Operand> {
        match v {
            Value::I(x) => i32::try_from(*x).ok().map(|x| self.uniform(Uniform::Int(x))),
            Value::Load(a) => self.load(a.buffer, &a.index, true),
            Value::Index(i, DType::I32) => {
                let (i, along) = Along::of(i, self.lanes)?;
                Some(match along.is_single() {
                    true => self.uniform(Uniform::IntIndex(i)),
                    false => self.ints(IntWork::Ramp(i, along), &[]),
                })
            }
            Value::Unary(op, t, a) if is_short(*t) => {
                let a = self.value(a)?;
                Some(self.ints(IntWork::Test(*op, a), &[a]))
            }
            Value::Unary(op, t, a) if is_small(*t) => {
                let a = self.int(a)?;
                Some(self.ints(IntWork::Unary(*op, *t, a), &[a]))
            }
            Value::Binary(op, t, a, b) if is_short(*t) => {
                let both = [self.value(a)?, self.value(b)?];
                Some(self.ints(IntWork::Compare(*op, both), &both))
            }
            Value::Binary(op, t, a, b) if is_small(*t) => {
                let both = [self.int(a)?, self.int(b)?];
                Some(self.ints(IntWork::Binary(*op, *t, both), &both))
            }
            Value::Cast(from, to, a) if is_short(*from) && is_small(*to) => {
                let ends = [f64::NEG_INFINITY, f64::INFINITY].map(|x| to.saturate(x) as f32);
                let a = self.value(if to.size() == 1 && *to != DType::Bool { without_limits(a, ends) } else { a })?;
                Some(self.ints(IntWork::ToInt(*to, a), &[a]))
            }
            Value::Cast(from, to, a) if is_small(*from) && is_small(*to) => {
                let a = self.int(a)?;
                Some(self.ints(IntWork::Wrap(*to, a), &[a]))
            }
            Value::Select(c, a, b) => {
                let chosen = self.chosen(c)?;
                self.int(if chosen { a } else { b })
            }
            Value::Let(i) => self.lets.get(*i).map(|l| l.0),
            Value::Choose(op, t, sides) => self.choose_any(*op, *t, sides),
            _ => None,
        }
    }
    /// A choice of integers, or by integers.
    fn choose_any(&mut self, op: BinaryOp, t: DType, sides: &[Value; 4]) -> Option<Operand> {
        let by = |c: &mut Self, v: &Value| if is_short(t) { c.value(v) } else { c.int(v) };
        if !is_short(t) && !is_small(t) {
            return None;
        }
        let both = [by(self, &sides[0])?, by(self, &sides[1])?];
        let (a, b) = (self.any(&sides[2])?.0, self.any(&sides[3])?.0);
        let all = [both[0], both[1], a, b];
        Some(match is_short(t) {
            true => self.step(Work::Choose(op, all), &all),
            false => self.ints(IntWork::Choose(op, all), &all),
        })
    }
    /// Which side of a select by conditions is taken.
    fn chosen(&self, c: &Value) -> Option<bool> {
        let Value::All(list) = c else { return None };
        let at = self.choices.iter().position(|c| c == list)?;
        Some(self.bits >> at & 1 == 1)
    }
    /// The lanes of a float of at most 32 bits.
    fn value(&mut self, v: &Value) -> Option<Operand> {
        match v {
            Value::F(x) => Some(self.uniform(Uniform::Number(*x))),
            Value::Load(a) => self.load(a.buffer, &a.index, false),
            Value::Index(i, DType::F32) => self.index(i),
            Value::Unary(op, t, a) if is_short(*t) && !op.is_test() => {
                let a = self.value(a)?;
                if let Operand::Uniform(a) = a {
                    return Some(self.uniform(Uniform::Unary(*op, a)));
                }
                Some(self.step(Work::Unary(*op, a), &[a]))
            }
            Value::Binary(op, t, a, b) if is_short(*t) && !op.is_comparison() => {
                let both = [self.value(a)?, self.value(b)?];
                Some(self.binary(*op, both))
            }
            Value::Select(c, a, b) => {
                let chosen = self.chosen(c)?;
                self.value(if chosen { a } else { b })
            }
            Value::Cast(from, to, a) if is_short(*from) && is_short(*to) => self.value(a),
            Value::Cast(from, to, a) if is_small(*from) && *to == DType::F32 => {
                let a = self.int(a)?;
                Some(self.ints(IntWork::ToFloat(a), &[a]))
            }
            Value::Let(i) => self.lets.get(*i).map(|l| l.0),
            Value::Choose(op, t, sides) if is_short(*t) => self.choose(*op, sides),
            Value::Choose(op, t, sides) => self.choose_any(*op, *t, sides),
            Value::Polynomial(x, numbers) => {
                let x = self.value(x)?;
                match x {
                    Operand::Uniform(_) => Some(self.polynomial(x, numbers)),
                    x => Some(self.step(Work::Polynomial(x, numbers.clone()), &[x])),
                }
            }
            _ => None,
        }
    }
    fn load(&mut self, buffer: usize, index: &Index, is_int: bool) -> Option<Operand> {
        let place = Place::any(buffer, index, self.lanes)?;
        let form = self.buffers[buffer].form;
        let fits = if is_int { is_int_form(form) } else { form.is_narrow_float() };
        if !fits {
            return None;
        }
        let single = place.along.is_single();
        let at = self.places.iter().position(|p| *p == place).unwrap_or_else(|| {
            self.places.push(place);
            self.places.len() - 1
        });
        if !self.code.reads.contains(&at) {
            self.code.reads.push(at);
        }
        Some(match (single, is_int) {
            (false, _) => Operand::Place(at),
            (true, false) => self.uniform(Uniform::Load(at)),
            (true, true) => self.uniform(Uniform::IntLoad(at)),
        })
    }
    fn index(&mut self, i: &Index) -> Option<Operand> {
        let (i, along) = Along::of(i, self.lanes)?;
        Some(match along.is_single() {
            true => self.uniform(Uniform::Index(i)),
            false => self.step(Work::Ramp(i, along), &[]),
        })
    }
    fn binary(&mut self, op: BinaryOp, both: [Operand; 2]) -> Operand {
        match both {
            [Operand::Uniform(a), Operand::Uniform(b)] => self.uniform(Uniform::Binary(op, [a, b])),
            both => self.step(Work::Binary(op, both), &both),
        }
    }
    fn choose(&mut self, op: BinaryOp, sides: &[Value; 4]) -> Option<Operand> {
        let mut all = [Operand::Uniform(0); 4];
        for (to, side) in all.iter_mut().zip(sides) {
            *to = self.value(side)?;
        }
        let same = |o: &Operand| if let Operand::Uniform(i) = o { Some(*i) } else { None };
        let uniforms: Vec<usize> = all.iter().filter_map(same).collect();
        match <[usize; 4]>::try_from(uniforms) {
            Ok(all) => Some(self.uniform(Uniform::Choose(op, all))),
            Err(_) => Some(self.step(Work::Choose(op, all), &all)),
        }
    }
    /// A polynomial of what is the same in all lanes.
    fn polynomial(&mut self, x: Operand, numbers: &[f32]) -> Operand {
        let number = |c: &mut Self, i: usize| c.uniform(Uniform::Number(numbers[i]));
        let mut sum = number(self, 0);
        for i in 1..numbers.len() {
            let (product, c) = (self.binary(BinaryOp::Mul, [sum, x]), number(self, i));
            sum = self.binary(BinaryOp::Add, [product, c]);
        }
        sum
    }
    fn uniform(&mut self, u: Uniform) -> Operand {
        self.code.uniforms.push(u);
        Operand::Uniform(self.code.uniforms.len() - 1)
    }
    /// A step. Its result has a register of its own; the registers of its operands are free behind it.
    fn step(&mut self, work: Work, operands: &[Operand]) -> Operand {
        let to = self.free.pop().unwrap_or(self.code.registers);
        self.code.registers = self.code.registers.max(to + 1);
        for o in operands {
            self.note(*o);
            if let Operand::Register(r) = o
                && !self.lets.iter().any(|l| l.0 == *o)
                && !self.free.contains(r)
            {
                self.free.push(*r);
            }
        }
        self.code.steps.push(Step { work, to });
        Operand::Register(to)
    }
    /// Notes that lanes at a place are read strip by strip.
    fn note(&mut self, o: Operand) {
        if let Operand::Place(at) = o
            && !self.code.strips.contains(&at)
        {
            self.code.strips.push(at);
        }
    }
}
