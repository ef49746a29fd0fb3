//! Index expressions, conditions and values in C.

use tensor_ir::arena::Id;
use tensor_ir::dtype::DType;
use tensor_ir::int::{Bounds, Cond, CondOp, Int, IntNode, flatten_index, range, simplify};
use tensor_ir::interpreter::scalar::{Num, identity};
use tensor_ir::name::Name;
use tensor_ir::tir::{BinaryOp, Buffer, BufferId, Combiner, Encoding, Scope, TensorFunction, UnaryOp};

/// Prints what blocks of a function compute.
pub(crate) struct Values<'f> {
    pub f: &'f TensorFunction,
    pub bounds: Bounds,
}

/// What a value is computed in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Float,
    Double,
    Int,
}

fn class(t: DType) -> Class {
    match t {
        DType::F64 => Class::Double,
        t if t.is_float() => Class::Float,
        _ => Class::Int,
    }
}

/// The C type of an element in memory. Halves outside of global memory are floats.
pub(crate) fn element_type(b: &Buffer) -> &'static str {
    stored_type(b.dtype, b.encoding, b.scope == Scope::Global)
}

/// The C type of an element of a plan's buffer, or of a kernel's memory.
pub(crate) fn stored_type(dtype: DType, encoding: Encoding, global: bool) -> &'static str {
    match (encoding, dtype) {
        (Encoding::ByteQuad, DType::I8) => "int8_t",
        (Encoding::ByteQuad, _) => "uint8_t",
        (_, DType::F16 | DType::BF16) if global => "uint16_t",
        (_, DType::F16 | DType::BF16 | DType::F32) => "float",
        (_, DType::F64) => "double",
        (Encoding::Narrow, _) => "int32_t",
        (_, DType::I64) => "int64_t",
        (_, DType::U64) => "uint64_t",
        (_, DType::U32 | DType::U16 | DType::U8 | DType::Bool) => "uint32_t",
        _ => "int32_t",
    }
}

/// A C identifier: letters, digits and `_`.
pub(crate) fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// The variable of a loop.
pub(crate) fn variable(name: Name) -> String {
    format!("i_{}", identifier(name.as_str()))
}

/// A buffer's variable. The number keeps names apart that differ in other characters only.
pub(crate) fn buffer_name(id: BufferId, b: &Buffer) -> String {
    format!("b{}_{}", id.index(), identifier(b.name.as_str()))
}

/// `x` in the width of an integer type.
fn wrapped(t: DType, x: &str) -> String {
    match t {
        DType::Bool => format!("(int64_t)({x} != 0)"),
        DType::I64 | DType::U64 => x.to_string(),
        t => format!("(int64_t)({})({x})", int_type(t)),
    }
}

/// An index as a value.
pub(crate) fn wrapped_index(t: DType, i: &str) -> String {
    match class(t) {
        Class::Float => format!("(float)({i})"),
        Class::Double => format!("(double)({i})"),
        Class::Int => wrapped(t, &format!("(int64_t)({i})")),
    }
}

/// The C type that a value is computed in.
pub(crate) fn value_type(t: DType) -> &'static str {
    match class(t) {
        Class::Float => "float",
        Class::Double => "double",
        Class::Int => "int64_t",
    }
}

fn int_type(t: DType) -> &'static str {
    match t {
        DType::U8 | DType::Bool => "uint8_t",
        DType::I8 => "int8_t",
        DType::U16 => "uint16_t",
        DType::I16 => "int16_t",
        DType::U32 => "uint32_t",
        DType::I32 => "int32_t",
        DType::U64 => "uint64_t",
        _ => "int64_t",
    }
}

/// A number of a type.
pub(crate) fn number(n: Num, t: DType) -> String {
    let float = |x: f64, text: String| match x {
        x if x.is_nan() => "NAN".to_string(),
        f64::INFINITY => "INFINITY".to_string(),
        f64::NEG_INFINITY => "(-INFINITY)".to_string(),
        x if x.is_sign_negative() => format!("({text})"),
        _ => text,
    };
    match class(t) {
        Class::Float => float(n.float(), format!("{:?}f", n.float() as f32)),
        Class::Double => float(n.float(), format!("{:?}", n.float())),
        Class::Int if n.int() == i64::MIN => "INT64_MIN".into(),
        Class::Int => format!("INT64_C({})", n.int()),
    }
}

impl Values<'_> {
    /// An index.
    pub fn int(&self, i: &Int) -> Result<String, String> {
        let both = |a: &Int, b: &Int| Ok::<_, String>((self.int(a)?, self.int(b)?));
        let plain = |a: &Int, b: &Int| self.is_natural(a) && b.as_const().is_some_and(|b| b > 0);
        Ok(match i.node() {
            IntNode::Const(c) if *c < 0 => format!("({c})"),
            IntNode::Const(c) => c.to_string(),
            IntNode::Var(v) => variable(*v),
            IntNode::Add(a, b) => both(a, b).map(|(a, b)| format!("({a} + {b})"))?,
            IntNode::Sub(a, b) => both(a, b).map(|(a, b)| format!("({a} - {b})"))?,
            IntNode::Mul(a, b) => both(a, b).map(|(a, b)| format!("{a} * {b}"))?,
            IntNode::Div(a, b) if plain(a, b) => both(a, b).map(|(a, b)| format!("({a} / {b})"))?,
            IntNode::Mod(a, b) if plain(a, b) => both(a, b).map(|(a, b)| format!("({a} % {b})"))?,
            IntNode::Div(a, b) => both(a, b).map(|(a, b)| format!("weft_floor_div({a}, {b})"))?,
            IntNode::Mod(a, b) => both(a, b).map(|(a, b)| format!("weft_floor_mod({a}, {b})"))?,
            IntNode::Min(a, b) => both(a, b).map(|(a, b)| format!("weft_min({a}, {b})"))?,
            IntNode::Max(a, b) => both(a, b).map(|(a, b)| format!("weft_max({a}, {b})"))?,
            IntNode::Load(b, ix) => format!("(int64_t){}", self.element(*b, ix)?),
        })
    }
    fn is_natural(&self, i: &Int) -> bool {
        range(i, &self.bounds).is_some_and(|r| r.0 >= 0)
    }
    /// The place of an element.
    pub fn place(&self, b: BufferId, ix: &[Int]) -> Result<String, String> {
        let buffer = &self.f.buffers[b];
        let flat = simplify(&flatten_index(ix, &buffer.shape), &self.bounds);
        let text = self.int(&flat)?;
        match ix.iter().any(Int::reads_buffer) {
            false => Ok(text),
            // Data decide it.
            true => Ok(format!("weft_max(weft_min({text}, {} - 1), 0)", self.size(&buffer.numel())?)),
        }
    }
    /// A number of elements or iterations.
    pub fn size(&self, i: &Int) -> Result<i64, String> {
        i.as_const().filter(|n| *n >= 0).ok_or_else(|| format!("the size {i} is open"))
    }
    /// An element as it stands in memory.
    pub fn element(&self, b: BufferId, ix: &[Int]) -> Result<String, String> {
        Ok(format!("{}[{}]", buffer_name(b, &self.f.buffers[b]), self.place(b, ix)?))
    }
    /// An element as a value.
    pub fn load(&self, b: BufferId, ix: &[Int]) -> Result<String, String> {
        let (buffer, element) = (&self.f.buffers[b], self.element(b, ix)?);
        Ok(match (class(buffer.dtype), buffer.dtype) {
            (Class::Float, DType::F16) if element_type(buffer) == "uint16_t" => format!("weft_from_half({element})"),
            (Class::Float, DType::BF16) if element_type(buffer) == "uint16_t" => format!("weft_from_bf16({element})"),
            (Class::Float | Class::Double, _) => element,
            (Class::Int, _) => format!("(int64_t){element}"),
        })
    }
    /// A value as it stands in memory.
    pub fn stored(&self, b: BufferId, value: String) -> String {
        let buffer = &self.f.buffers[b];
        match (element_type(buffer), buffer.dtype) {
            ("uint16_t", DType::F16) => format!("weft_to_half({value})"),
            ("uint16_t", _) => format!("weft_to_bf16({value})"),
            ("float" | "double", _) => value,
            (ty, _) => format!("({ty})({value})"),
        }
    }
    /// Whether all conditions hold.
    pub fn conditions(&self, list: &[Cond]) -> Result<String, String> {
        let one = |c: &Cond| {
            let op = match c.op {
                CondOp::Lt => "<",
                CondOp::Ge => ">=",
                CondOp::Eq => "==",
            };
            Ok(format!("{} {op} {}", self.int(&c.lhs)?, self.int(&c.rhs)?))
        };
        let all = list.iter().map(one).collect::<Result<Vec<_>, String>>()?;
        Ok(if all.is_empty() { "1".into() } else { all.join(" && ") })
    }
    /// The neutral number of a combiner.
    pub fn identity(&self, c: Combiner, t: DType) -> String {
        number(identity(c, t), t)
    }
    /// Two values combined.
    pub fn combined(&self, c: Combiner, t: DType, a: &str, b: &str) -> Result<String, String> {
        binary(c.operator(), t, a, b)
    }
}

pub(crate) fn unary(op: UnaryOp, t: DType, a: &str) -> Result<String, String> {
    let suffix = if class(t) == Class::Float { "f" } else { "" };
    Ok(match (op, class(t)) {
        (UnaryOp::Not, _) => format!("(int64_t)({a} == 0)"),
        (UnaryOp::IsNan, _) => format!("(int64_t)(isnan({a}) != 0)"),
        (UnaryOp::IsInf, _) => format!("(int64_t)(isinf({a}) != 0)"),
        (UnaryOp::QuantizeF16, Class::Float | Class::Double) => format!("weft_from_half(weft_to_half((float)({a})))"),
        (UnaryOp::QuantizeBf16, Class::Float | Class::Double) => format!("weft_from_bf16(weft_to_bf16((float)({a})))"),
        (UnaryOp::Neg, Class::Int) => wrapped(t, &format!("(int64_t)(0 - (uint64_t)({a}))")),
        (UnaryOp::Neg, _) => format!("(-{a})"),
        (UnaryOp::BitNot, Class::Int) => wrapped(t, &format!("(~{a})")),
        (UnaryOp::Abs, Class::Int) if t.is_signed() => wrapped(t, &format!("weft_int_abs({a})")),
        (UnaryOp::Sign, Class::Int) if t.is_signed() => format!("weft_int_sign({a})"),
        (UnaryOp::Sign, Class::Int) => format!("(int64_t)({a} != 0)"),
        (UnaryOp::Abs, Class::Int) => a.into(),
        (op, _) => match op.c_name().filter(|_| op.domain().takes(t)) {
            Some(name) => format!("{name}{suffix}({a})"),
            None => return Err(format!("{} of {t} has no C", op.name())),
        },
    })
}

pub(crate) fn binary(op: BinaryOp, t: DType, a: &str, b: &str) -> Result<String, String> {
    match class(t) {
        _ if !op.domain().takes(t) => Err(format!("{} of {t} has no C", op.name())),
        Class::Float => of_floats(op, "f", a, b),
        Class::Double => of_floats(op, "", a, b),
        Class::Int => of_integers(op, t, a, b),
    }
}

/// The operator of a function that C writes between its operands.
fn operator(op: BinaryOp) -> Result<&'static str, String> {
    op.infix().map(|i| i.0).ok_or_else(|| format!("{} is no operator of C", op.name()))
}

/// A function of floats; C's functions of their type end in `suffix`.
fn of_floats(op: BinaryOp, suffix: &str, a: &str, b: &str) -> Result<String, String> {
    use BinaryOp::*;
    Ok(match op {
        Add | Sub | Mul | Div => format!("({a} {} {b})", operator(op)?),
        FloorMod => format!("weft_floor_mod_{}({a}, {b})", if suffix.is_empty() { "d" } else { suffix }),
        TruncMod => format!("fmod{suffix}({a}, {b})"),
        Pow => format!("pow{suffix}({a}, {b})"),
        Min | Max => format!("weft_f{}{suffix}({a}, {b})", op.name()),
        Lt | Le | Gt | Ge | Eq | Ne => format!("(int64_t)({a} {} {b})", operator(op)?),
        And | Or | Xor | BitAnd | BitOr | BitXor | Shl | Shr => {
            return Err(format!("{} of floats has no C", op.name()));
        }
    })
}

/// A function of integers and bools.
fn of_integers(op: BinaryOp, t: DType, a: &str, b: &str) -> Result<String, String> {
    use BinaryOp::*;
    let large = t == DType::U64;
    let sign = if large { "u" } else { "i" };
    Ok(match op {
        Add | Sub | Mul => wrapped(t, &format!("(int64_t)((uint64_t)({a}) {} (uint64_t)({b}))", operator(op)?)),
        Div => wrapped(t, &format!("weft_{sign}div({a}, {b})")),
        FloorMod => wrapped(t, &format!("weft_{sign}mod({a}, {b})")),
        TruncMod => wrapped(t, &format!("weft_{sign}rem({a}, {b})")),
        Pow => wrapped(t, &format!("weft_ipow({a}, {b}, {})", i32::from(large))),
        Min | Max => format!("weft_{sign}{}({a}, {b})", op.name()),
        And => format!("(int64_t)({a} != 0 && {b} != 0)"),
        Or => format!("(int64_t)({a} != 0 || {b} != 0)"),
        Xor => format!("(int64_t)(({a} != 0) != ({b} != 0))"),
        BitAnd | BitOr | BitXor => format!("({a} {} {b})", operator(op)?),
        Shl => wrapped(t, &format!("weft_shl({a}, {b})")),
        Shr => format!("weft_{sign}shr({a}, {b})"),
        Lt | Le | Gt | Ge | Eq | Ne if large => {
            format!("(int64_t)((uint64_t)({a}) {} (uint64_t)({b}))", operator(op)?)
        }
        Lt | Le | Gt | Ge | Eq | Ne => format!("(int64_t)({a} {} {b})", operator(op)?),
    })
}

pub(crate) fn cast(from: DType, to: DType, a: &str) -> String {
    match (class(from), class(to)) {
        (_, Class::Int) if to == DType::Bool => format!("(int64_t)({a} != 0)"),
        (Class::Int, Class::Int) => wrapped(to, a),
        (_, Class::Int) => format!("weft_to_{}((double)({a}))", int_type(to)),
        (from_class, class) => {
            let ty = if class == Class::Float { "float" } else { "double" };
            let unsigned = if from_class == Class::Int && from == DType::U64 { "(uint64_t)" } else { "" };
            format!("({ty}){unsigned}({a})")
        }
    }
}
