//! The scalar functions of tensor IR, a row each: the element types that it takes, its work, how exact it is, its value
//! (the reference that every back end is held against), and its name in C.
//!
//! Integers wrap in their type; division and remainder by 0 give 0; a shift by the width or more gives the same result
//! as shifting bit by bit, and so does one below 0. Minimum and maximum of floats keep NaN. f16 and bf16 compute in f32.

use crate::dtype::DType;

/// The element types that a function takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Domain {
    /// All of them.
    Any,
    /// Integers and floats.
    Number,
    /// Floats.
    Float,
    /// Integers and bool.
    Whole,
    /// Integers.
    Integer,
    /// Bool.
    Logic,
}

impl Domain {
    /// Whether a type is in the domain.
    pub fn takes(self, dtype: DType) -> bool {
        match self {
            Domain::Any => true,
            Domain::Number => dtype != DType::Bool,
            Domain::Float => dtype.is_float(),
            Domain::Whole => !dtype.is_float(),
            Domain::Integer => dtype.is_int(),
            Domain::Logic => dtype == DType::Bool,
        }
    }
}

/// How much a function takes, compared with an addition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// As much.
    Addition,
    /// As a division.
    Division,
    /// As an exponential.
    Exponential,
}

/// f32 and f64.
pub trait Real: Copy + PartialOrd {
    /// A function of one value. Tests give 0 or 1.
    fn unary(op: UnaryOp, x: Self) -> Self;
    /// A function of two values. Comparisons give 0 or 1, functions that take no floats NaN.
    fn binary(op: BinaryOp, a: Self, b: Self) -> Self;
}

/// i64, and u64 for values of that type.
trait Whole {
    /// A power that wraps; with an exponent below 0 it is rounded towards 0.
    fn power(self, exponent: Self) -> Self;
    /// `self / 2^by` rounded down, for any `by`.
    fn shifted_right(self, by: Self) -> Self;
}

impl Whole for u64 {
    fn power(self, exponent: u64) -> u64 {
        let (mut result, mut base, mut e) = (1u64, self, exponent);
        while e > 0 {
            result = if e & 1 == 1 { result.wrapping_mul(base) } else { result };
            (base, e) = (base.wrapping_mul(base), e >> 1);
        }
        result
    }
    fn shifted_right(self, by: u64) -> u64 {
        if by < 64 { self >> by } else { 0 }
    }
}

impl Whole for i64 {
    fn power(self, exponent: i64) -> i64 {
        match (exponent, self) {
            (..0, 1) => 1,
            (..0, -1) => 1 - 2 * (exponent & 1),
            (..0, _) => 0,
            _ => (self as u64).power(exponent as u64) as i64,
        }
    }
    fn shifted_right(self, by: i64) -> i64 {
        self >> if (0..64).contains(&by) { by } else { 63 }
    }
}

/// Something to do with a function of one number; [`UnaryOp::with`] gives it the function, so that it is compiled anew
/// for each and loops become vectors.
pub trait WithUnary<T> {
    /// The result.
    type Out;
    /// Does it.
    fn with(self, f: impl Fn(T) -> T) -> Self::Out;
}

/// The same with a function of two numbers.
pub trait WithBinary<T, R> {
    /// The result.
    type Out;
    /// Does it.
    fn with(self, f: impl Fn(T, T) -> R) -> Self::Out;
}

/// Declares the functions of one value: domain, work, whether floats are `exact` or `rounded`, the name in C of the
/// function of doubles, `bool` where that is the result, the value of floats, and of integers (as i64, before it is
/// wrapped).
macro_rules! unary_functions {
    ($($(#[$doc:meta])* $op:ident: $domain:ident, $work:ident, $exact:ident $(, c $c:literal)? $(=> $result:ident)?;
        |$x:ident| $real:expr $(; |$i:ident, $t:ident| $int:expr)?;)*) => {
        /// One-operand functions. Result dtype is the operand's, except the tests (bool).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
        pub enum UnaryOp { $($(#[$doc])* $op),* }
        impl UnaryOp {
            /// Every function.
            pub const ALL: &'static [UnaryOp] = &[$(UnaryOp::$op),*];
            /// The element types that it takes.
            pub fn domain(self) -> Domain {
                match self { $(UnaryOp::$op => Domain::$domain),* }
            }
            /// Its work.
            pub fn work(self) -> Work {
                match self { $(UnaryOp::$op => Work::$work),* }
            }
            /// True if every way of computing it gives the same number, of floats too.
            pub fn is_exact(self) -> bool {
                match self { $(UnaryOp::$op => is_exact!($exact)),* }
            }
            /// True of the tests, whose result is bool.
            pub fn is_test(self) -> bool {
                match self { $(UnaryOp::$op => false $(|| stringify!($result) == "bool")?),* }
            }
            /// The name in C of the function of doubles; with an `f` behind it, of floats. `None` where C has an
            /// operator or nothing.
            pub fn c_name(self) -> Option<&'static str> {
                match self { $(UnaryOp::$op => None $(.or(Some($c)))?),* }
            }
            /// Its value for an integer or bool of `dtype`, wrapped; 0 if it takes none.
            #[inline(always)]
            pub fn of_int(self, dtype: DType, x: i64) -> i64 {
                let y = match self { $(UnaryOp::$op => 0 $(+ { let ($i, $t) = (x, dtype); let _ = $t; $int })?),* };
                dtype.wrap(y)
            }
            /// Does something with the function on floats.
            #[inline(always)]
            pub fn with<T: Real, W: WithUnary<T>>(self, w: W) -> W::Out {
                match self { $(UnaryOp::$op => w.with(|x| T::unary(UnaryOp::$op, x))),* }
            }
        }
        unary_functions!(@real f32 $($op |$x| $real;)*);
        unary_functions!(@real f64 $($op |$x| $real;)*);
    };
    (@real $real:ident $($op:ident |$x:ident| $value:expr;)*) => {
        impl UnaryOp {
            #[inline(always)]
            fn $real(self, x: $real) -> $real {
                #[allow(dead_code)]
                type T = $real;
                match self { $(UnaryOp::$op => { let $x = x; $value })* }
            }
        }
    };
}

macro_rules! is_exact {
    (exact) => {
        true
    };
    (rounded) => {
        false
    };
}

unary_functions! {
    /// `-x`.
    Neg: Number, Addition, exact; |x| -x; |x, _t| x.wrapping_neg();
    /// `|x|`.
    Abs: Number, Addition, exact, c "fabs"; |x| x.abs(); |x, t| if t.is_signed() { x.wrapping_abs() } else { x };
    /// `e^x`.
    Exp: Float, Exponential, rounded, c "exp"; |x| x.exp();
    /// Natural logarithm.
    Log: Float, Exponential, rounded, c "log"; |x| x.ln();
    /// Square root.
    Sqrt: Float, Division, rounded, c "sqrt"; |x| x.sqrt();
    /// Sine.
    Sin: Float, Exponential, rounded, c "sin"; |x| x.sin();
    /// Cosine.
    Cos: Float, Exponential, rounded, c "cos"; |x| x.cos();
    /// Tangent.
    Tan: Float, Exponential, rounded, c "tan"; |x| x.tan();
    /// Arc sine.
    Asin: Float, Exponential, rounded, c "asin"; |x| x.asin();
    /// Arc cosine.
    Acos: Float, Exponential, rounded, c "acos"; |x| x.acos();
    /// Arc tangent.
    Atan: Float, Exponential, rounded, c "atan"; |x| x.atan();
    /// Hyperbolic sine.
    Sinh: Float, Exponential, rounded, c "sinh"; |x| x.sinh();
    /// Hyperbolic cosine.
    Cosh: Float, Exponential, rounded, c "cosh"; |x| x.cosh();
    /// Hyperbolic tangent.
    Tanh: Float, Exponential, rounded, c "tanh"; |x| x.tanh();
    /// Inverse hyperbolic sine; of large values `log(2 |x|)`, since Rust's own squares them.
    Asinh: Float, Exponential, rounded, c "asinh";
        |x| if x.abs() > 1e10 { (x.abs().ln() + T::ln(2.0)).copysign(x) } else { x.asinh() };
    /// Inverse hyperbolic cosine; of large values likewise.
    Acosh: Float, Exponential, rounded, c "acosh"; |x| if x > 1e10 { x.ln() + T::ln(2.0) } else { x.acosh() };
    /// Inverse hyperbolic tangent; Rust's own loses digits below 0.
    Atanh: Float, Exponential, rounded, c "atanh"; |x| x.abs().atanh().copysign(x);
    /// Largest integer not above `x`.
    Floor: Float, Addition, exact, c "floor"; |x| x.floor();
    /// Smallest integer not below `x`.
    Ceil: Float, Addition, exact, c "ceil"; |x| x.ceil();
    /// Nearest integer, halves to even.
    Round: Float, Addition, exact, c "rint"; |x| x.round_ties_even();
    /// Without the fraction.
    Trunc: Float, Addition, exact, c "trunc"; |x| x.trunc();
    /// -1, 0 or 1; zeros and NaN stay.
    Sign: Number, Addition, exact, c "weft_sign"; |x| if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x };
        |x, t| if t.is_signed() { x.signum() } else { i64::from(x != 0) };
    /// Logical negation.
    Not: Logic, Addition, exact; |x| u8::from(x == 0.0).into(); |x, _t| i64::from(x == 0);
    /// Negation of every bit.
    BitNot: Integer, Addition, exact; |_x| T::NAN; |x, _t| !x;
    /// True for NaN.
    IsNan: Float, Addition, exact => bool; |x| u8::from(x.is_nan()).into();
    /// True for both infinities.
    IsInf: Float, Addition, exact => bool; |x| u8::from(x.is_infinite()).into();
    /// Rounds to a value that f16 holds (nearest, ties to even, infinity beyond its range), and stays in its type.
    QuantizeF16: Float, Exponential, exact; |x| DType::F16.round(x as f64) as T;
    /// The same for bf16.
    QuantizeBf16: Float, Exponential, exact; |x| DType::BF16.round(x as f64) as T;
}

impl UnaryOp {
    /// Name in text: the variant in lower case.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Declares the functions of two values: domain, work, whether floats are `exact` or `rounded`, the infix operator in
/// text and C with its strength in text (0: only in C), the value of floats, and of i64 or u64 (before it is wrapped).
/// Comparisons have one value for all.
macro_rules! binary_functions {
    ($($(#[$doc:meta])* $op:ident: $domain:ident, $work:ident, $exact:ident $(, infix $symbol:literal $level:literal)?;
        |$a:ident, $b:ident| $real:expr; |$i:ident, $j:ident| $int:expr;)*
     @comparisons $($(#[$cdoc:meta])* $cop:ident: infix $csymbol:literal; |$p:ident, $q:ident| $cvalue:expr;)*) => {
        /// Two-operand functions. Operands have one dtype; comparisons and logic give bool.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
        pub enum BinaryOp { $($(#[$doc])* $op,)* $($(#[$cdoc])* $cop),* }
        impl BinaryOp {
            /// Every function.
            pub const ALL: &'static [BinaryOp] = &[$(BinaryOp::$op,)* $(BinaryOp::$cop),*];
            /// The element types that it takes.
            pub fn domain(self) -> Domain {
                match self { $(BinaryOp::$op => Domain::$domain,)* $(BinaryOp::$cop => Domain::Any),* }
            }
            /// Its work.
            pub fn work(self) -> Work {
                match self { $(BinaryOp::$op => Work::$work,)* $(BinaryOp::$cop => Work::Addition),* }
            }
            /// True if every way of computing it gives the same number, of floats too.
            pub fn is_exact(self) -> bool {
                match self { $(BinaryOp::$op => is_exact!($exact),)* $(BinaryOp::$cop => true),* }
            }
            /// True when the result is bool whatever the operands.
            pub fn is_comparison(self) -> bool {
                match self { $(BinaryOp::$op => false,)* $(BinaryOp::$cop => true),* }
            }
            /// The operator that stands between the operands in C and, where its strength is above 0, in text.
            pub fn infix(self) -> Option<(&'static str, u8)> {
                match self {
                    $(BinaryOp::$op => None $(.or(Some(($symbol, $level))))?,)*
                    $(BinaryOp::$cop => Some(($csymbol, 1))),*
                }
            }
            /// A comparison; false for any other function.
            #[inline(always)]
            pub fn compare<T: PartialOrd>(self, a: T, b: T) -> bool {
                match self { $(BinaryOp::$op => false,)* $(BinaryOp::$cop => { let ($p, $q) = (a, b); $cvalue })* }
            }
            /// Does something with the function on floats.
            #[inline(always)]
            pub fn with<T: Real, W: WithBinary<T, T>>(self, w: W) -> W::Out {
                match self {
                    $(BinaryOp::$op => w.with(|a, b| T::binary(BinaryOp::$op, a, b)),)*
                    $(BinaryOp::$cop => w.with(|a, b| T::binary(BinaryOp::$cop, a, b))),*
                }
            }
            /// Does something with the function on integers of `dtype`.
            #[inline(always)]
            pub fn with_ints<W: WithBinary<i64, i64>>(self, dtype: DType, w: W) -> W::Out {
                match self {
                    $(BinaryOp::$op => w.with(|a, b| BinaryOp::$op.of_ints(dtype, a, b)),)*
                    $(BinaryOp::$cop => w.with(|a, b| BinaryOp::$cop.of_ints(dtype, a, b))),*
                }
            }
            /// Does something with a comparison; `None` for any other function.
            #[inline(always)]
            pub fn with_comparison<T: PartialOrd, W: WithBinary<T, bool>>(self, w: W) -> Option<W::Out> {
                match self {
                    $(BinaryOp::$op => None,)*
                    $(BinaryOp::$cop => Some(w.with(|a, b| BinaryOp::$cop.compare(a, b)))),*
                }
            }
        }
        binary_functions!(@real f32 $($op |$a, $b| $real;)*);
        binary_functions!(@real f64 $($op |$a, $b| $real;)*);
        binary_functions!(@int i64 $($op |$i, $j| $int;)*);
        binary_functions!(@int u64 $($op |$i, $j| $int;)*);
    };
    (@real $real:ident $($op:ident |$a:ident, $b:ident| $value:expr;)*) => {
        impl Real for $real {
            #[inline(always)]
            fn unary(op: UnaryOp, x: $real) -> $real {
                op.$real(x)
            }
            #[inline(always)]
            fn binary(op: BinaryOp, a: $real, b: $real) -> $real {
                #[allow(dead_code)]
                type T = $real;
                match op {
                    $(BinaryOp::$op => { let ($a, $b) = (a, b); $value })*
                    comparison => u8::from(comparison.compare(a, b)).into(),
                }
            }
        }
    };
    (@int $int:ident $($op:ident |$a:ident, $b:ident| $value:expr;)*) => {
        impl BinaryOp {
            #[inline(always)]
            #[allow(unused_comparisons, clippy::absurd_extreme_comparisons)]
            fn $int(self, a: $int, b: $int) -> $int {
                match self {
                    $(BinaryOp::$op => { let ($a, $b) = (a, b); $value })*
                    comparison => comparison.compare(a, b) as $int,
                }
            }
        }
    };
}

binary_functions! {
    /// Sum; of bools "or".
    Add: Any, Addition, rounded, infix "+" 2; |a, b| a + b; |a, b| a.wrapping_add(b);
    /// Difference.
    Sub: Number, Addition, rounded, infix "-" 2; |a, b| a - b; |a, b| a.wrapping_sub(b);
    /// Product; of bools "and".
    Mul: Any, Addition, rounded, infix "*" 3; |a, b| a * b; |a, b| a.wrapping_mul(b);
    /// Quotient; of integers rounded towards 0.
    Div: Number, Division, rounded, infix "/" 3; |a, b| a / b; |a, b| if b == 0 { 0 } else { a.wrapping_div(b) };
    /// Remainder with the divisor's sign.
    FloorMod: Number, Division, rounded; |a, b| {
        let r = a % b;
        if r != 0.0 && ((r < 0.0) != (b < 0.0)) { r + b } else { r }
    };
    |a, b| {
        let r = if b == 0 { 0 } else { a.wrapping_rem(b) };
        if r != 0 && ((r < 0) != (b < 0)) { r + b } else { r }
    };
    /// Remainder with the dividend's sign.
    TruncMod: Number, Division, rounded; |a, b| a % b; |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) };
    /// Power; of integers with an exponent below 0: 0, but for bases of 1 and -1.
    Pow: Number, Exponential, rounded; |a, b| a.powf(b); |a, b| a.power(b);
    /// The smaller one, NaN if one is; of bools "and".
    Min: Any, Addition, exact; |a, b| if a.is_nan() || a < b { a } else { b }; |a, b| a.min(b);
    /// The larger one, NaN if one is; of bools "or".
    Max: Any, Addition, exact; |a, b| if a.is_nan() || a > b { a } else { b }; |a, b| a.max(b);
    /// Logical "and".
    And: Logic, Addition, exact; |_a, _b| T::NAN; |a, b| (a != 0 && b != 0) as _;
    /// Logical "or".
    Or: Logic, Addition, exact; |_a, _b| T::NAN; |a, b| (a != 0 || b != 0) as _;
    /// True if exactly one is.
    Xor: Logic, Addition, exact; |_a, _b| T::NAN; |a, b| ((a != 0) != (b != 0)) as _;
    /// "And" of each bit.
    BitAnd: Whole, Addition, exact, infix "&" 0; |_a, _b| T::NAN; |a, b| a & b;
    /// "Or" of each bit.
    BitOr: Whole, Addition, exact, infix "|" 0; |_a, _b| T::NAN; |a, b| a | b;
    /// Bits that differ.
    BitXor: Whole, Addition, exact, infix "^" 0; |_a, _b| T::NAN; |a, b| a ^ b;
    /// `a * 2^b`.
    Shl: Integer, Addition, exact; |_a, _b| T::NAN; |a, b| if (0..64).contains(&b) { a << b } else { 0 };
    /// `a / 2^b` rounded down.
    Shr: Integer, Addition, exact; |_a, _b| T::NAN; |a, b| a.shifted_right(b);
    @comparisons
    /// Below.
    Lt: infix "<"; |a, b| a < b;
    /// Below or equal.
    Le: infix "<="; |a, b| a <= b;
    /// Above.
    Gt: infix ">"; |a, b| a > b;
    /// Above or equal.
    Ge: infix ">="; |a, b| a >= b;
    /// Equal.
    Eq: infix "=="; |a, b| a == b;
    /// Not equal; NaN is not equal to itself.
    Ne: infix "!="; |a, b| a != b;
}

impl BinaryOp {
    /// Name in text: the variant in lower case.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
    /// Its value for two integers or bools of `dtype` (u64 as its bits), wrapped; comparisons give 0 or 1.
    #[inline(always)]
    pub fn of_ints(self, dtype: DType, a: i64, b: i64) -> i64 {
        dtype.wrap(match dtype {
            DType::U64 => self.u64(a as u64, b as u64) as i64,
            _ => self.i64(a, b),
        })
    }
}
