//! A pattern language over the graph. A pattern is a value: it matches, prints itself, and reports why it did not
//! match.
//!
//! A pattern is matched against a value and looks at the nodes behind it. In the printed form:
//!
//! | pattern | printed | matches |
//! |---|---|---|
//! | [`any`] | `*` | every value |
//! | [`constant`] | `const` | a constant of the module |
//! | [`number`] | `0.5` | a small constant all of whose elements are that number |
//! | [`near`] | `~1.4142` | the same, but for the last digits |
//! | [`param`] | `param` | an argument of a block |
//! | [`op`] | `add(*, const)` | the result of that op on exactly such operands |
//! | [`op_from`] | `conv(*, const, ..)` | the same; further operands are free |
//! | [`commuted`] | `add{*, const}` | the result of that op on two such operands, in either order |
//! | [`is`] | `relu(..)` | the result of that op on anything |
//! | [`either`] | `(relu(*) \| clip(*))` | the first alternative that matches |
//! | [`Pattern::optional`] | `relu?(conv(..))` | the pattern, with or without that op around it |
//! | [`Pattern::attr`], [`Pattern::when`] ... | `conv(..)[group=1]` | a value that also passes the test: attributes, types, shapes, uses |
//! | [`Pattern::result`] | `split(..).1` | that result of a node |
//! | [`Pattern::named`], [`var`] | `w:const`, `x` | remembers the value under a name; a name that occurs twice is one value |
//! | [`dominator`] | `conv(..) => relu(..)* => mul(*, const)` | see there |
//!
//! Ops are types, never names: `op::<Relu>([any()])`; or properties: `any_op([any()]).property("idempotent", |op|
//! op.is_idempotent())`. A match is a [`Found`]: the named values, and the nodes that the pattern spells out. What did
//! not match is a [`Mismatch`], which prints as ``no match for conv(x, w:const): `relu_3` is relu, not conv``.
//!
//! ```
//! use compiler::ops::{binary::Add, matmul::MatMul, unary::Relu};
//! use compiler::pattern::{Plain, commuted, constant, op, var};
//!
//! let dense = commuted::<Add>(op::<MatMul>([var("x"), constant().named("w")]), constant().named("bias"));
//! let pattern = dense.optional(|p| op::<Relu>([p]));
//! assert_eq!(pattern.to_string(), "relu?(add{matmul(x, w:const), bias:const})");
//!
//! let m = compiler::text::parse_module(
//!     "const @w : f32[4,2] = random(1)\nconst @b : f32[2] = [1.0, 2.0]\ngraph @main(%x: f32[3,4]) -> (y: f32[3,2]) {\n  \
//!      %w = const @w\n  %b = const @b\n  %0 = matmul %x, %w : f32[3,2]\n  %1 = add %b, %0 : f32[3,2]\n  return %1\n}\n",
//! ).unwrap();
//! let (graph, result) = (Plain::new(&m, m.main()), m.main().results()[0]);
//! let found = pattern.matches(&graph, result).unwrap();
//! assert_eq!(found.value("x"), m.main().params()[0]);
//! let miss = op::<Relu>([var("x")]).matches(&graph, result).unwrap_err();
//! assert_eq!(miss.to_string(), "no match for relu(x): `add_3` is add, not relu");
//! ```
//!
//! [`Pattern::parse`] reads the printed form, but for tests that are closures.
//!
//! Deliberately absent: replacement templates (a rewrite is Rust, see `passes::rules`) and patterns over the order of
//! nodes.

mod matcher;
mod parse;
mod print;
mod subject;
#[cfg(test)]
mod tests;

pub use matcher::{Found, Mismatch};
pub use subject::{Plain, Subject};

use crate::attr::AttrStruct;
use crate::dtype::DType;
use crate::graph::{TensorType, ValueId};
use crate::ops::Op;
use std::any::TypeId;
use std::sync::Arc;

/// A pattern; cheap to clone.
#[derive(Clone)]
pub struct Pattern(Arc<Kind>);

/// A test of a value that has matched so far.
type Test = dyn Fn(&dyn Subject, ValueId) -> bool + Send + Sync;

enum Kind {
    Any,
    Constant,
    /// A number, and how far from it relative to its size a constant may be.
    Number(f64, f64),
    Param,
    Op {
        name: &'static str,
        id: TypeId,
        operands: Operands,
    },
    /// A result of any op.
    AnyOp(Operands),
    Either(Vec<Pattern>),
    Optional {
        with: Pattern,
        without: Pattern,
    },
    When {
        inner: Pattern,
        text: String,
        test: Box<Test>,
    },
    Result {
        inner: Pattern,
        index: usize,
    },
    Named {
        inner: Pattern,
        name: &'static str,
    },
    Dominator {
        parent: Pattern,
        path: Pattern,
        child: Pattern,
    },
}

enum Operands {
    /// Exactly these; an absent operand matches nothing.
    Exactly(Vec<Pattern>),
    /// These first, then any.
    From(Vec<Pattern>),
    /// Two in either order.
    Commuted([Pattern; 2]),
    Free,
}

fn make(kind: Kind) -> Pattern {
    Pattern(Arc::new(kind))
}
fn make_op<T: Op + AttrStruct>(operands: Operands) -> Pattern {
    make(Kind::Op { name: T::NAME, id: TypeId::of::<T>(), operands })
}

/// Every value.
pub fn any() -> Pattern {
    make(Kind::Any)
}
/// Every value, remembered under a name.
pub fn var(name: &'static str) -> Pattern {
    any().named(name)
}
/// A constant of the module of any size; its data are not read.
pub fn constant() -> Pattern {
    make(Kind::Constant)
}
/// A constant of at most 64 KiB, all of whose elements are `value`.
pub fn number(value: f64) -> Pattern {
    make(Kind::Number(value, 0.0))
}
/// As [`number`], within a relative distance of 1e-4: for constants such as the root of 2, written with few digits.
pub fn near(value: f64) -> Pattern {
    make(Kind::Number(value, 1e-4))
}
/// An argument of a block: a parameter of the function, or of a region.
pub fn param() -> Pattern {
    make(Kind::Param)
}
/// A result of a `T` on exactly these operands.
pub fn op<T: Op + AttrStruct>(operands: impl IntoIterator<Item = Pattern>) -> Pattern {
    make_op::<T>(Operands::Exactly(operands.into_iter().collect()))
}
/// A result of a `T` on these operands and any further ones.
pub fn op_from<T: Op + AttrStruct>(operands: impl IntoIterator<Item = Pattern>) -> Pattern {
    make_op::<T>(Operands::From(operands.into_iter().collect()))
}
/// A result of a `T` on two operands, in either order.
pub fn commuted<T: Op + AttrStruct>(a: Pattern, b: Pattern) -> Pattern {
    make_op::<T>(Operands::Commuted([a, b]))
}
/// A result of a `T` on any operands.
pub fn is<T: Op + AttrStruct>() -> Pattern {
    make_op::<T>(Operands::Free)
}
/// A result of some op on exactly these operands; [`Pattern::property`] says which.
pub fn any_op(operands: impl IntoIterator<Item = Pattern>) -> Pattern {
    make(Kind::AnyOp(Operands::Exactly(operands.into_iter().collect())))
}
/// A result of some op on these operands and any further ones.
pub fn any_op_from(operands: impl IntoIterator<Item = Pattern>) -> Pattern {
    make(Kind::AnyOp(Operands::From(operands.into_iter().collect())))
}
/// The first of several patterns that matches.
pub fn either(alternatives: impl IntoIterator<Item = Pattern>) -> Pattern {
    make(Kind::Either(alternatives.into_iter().collect()))
}
/// A region of the graph between two nodes, after TVM's dominator pattern. The value matches `child`. Every chain of
/// operands from it leads through any number of results that match `path` to one result that matches `parent`, or ends
/// in a constant. The parent and all nodes in between have no users outside. So moving something from the child to the
/// parent does not affect other nodes. Names inside `path` are not kept; [`Found::between`] has the path's nodes.
pub fn dominator(parent: Pattern, path: Pattern, child: Pattern) -> Pattern {
    make(Kind::Dominator { parent, path, child })
}

impl Pattern {
    /// Remembers the value under `name`. When the name occurs twice, both must be the same value.
    pub fn named(self, name: &'static str) -> Pattern {
        make(Kind::Named { inner: self, name })
    }
    /// Either `wrap(self)` or `self`.
    pub fn optional(self, wrap: impl FnOnce(Pattern) -> Pattern) -> Pattern {
        make(Kind::Optional { with: wrap(self.clone()), without: self })
    }
    /// The `index`-th result of its node; an op alone matches each of them.
    pub fn result(self, index: usize) -> Pattern {
        make(Kind::Result { inner: self, index })
    }
    /// A value that also passes `test`, which `text` describes.
    pub fn when(
        self,
        text: impl Into<String>,
        test: impl Fn(&dyn Subject, ValueId) -> bool + Send + Sync + 'static,
    ) -> Pattern {
        make(Kind::When { inner: self, text: text.into(), test: Box::new(test) })
    }
    /// The result of a `T` whose attributes pass `test`.
    pub fn attr<T: Op>(self, text: impl Into<String>, test: impl Fn(&T) -> bool + Send + Sync + 'static) -> Pattern {
        self.when(text, move |s, v| {
            let f = s.function();
            f.def_node(v).and_then(|n| f.nodes[n].op.downcast::<T>()).is_some_and(&test)
        })
    }
    /// The result of an op with a property, which `text` names.
    pub fn property(self, text: impl Into<String>, test: impl Fn(&dyn Op) -> bool + Send + Sync + 'static) -> Pattern {
        self.when(text, move |s, v| {
            let f = s.function();
            f.def_node(v).is_some_and(|n| test(&*f.nodes[n].op))
        })
    }
    /// A value whose type passes `test`.
    pub fn ty(self, text: impl Into<String>, test: impl Fn(&TensorType) -> bool + Send + Sync + 'static) -> Pattern {
        self.when(text, move |s, v| test(s.function().ty(v)))
    }
    /// A value with element type `dtype`.
    pub fn dtype(self, dtype: DType) -> Pattern {
        self.ty(dtype.to_string(), move |t| t.dtype == dtype)
    }
    /// A value with floating-point elements.
    pub fn float(self) -> Pattern {
        self.ty("float", |t| t.dtype.is_float())
    }
    /// A value with `rank` dimensions.
    pub fn rank(self, rank: usize) -> Pattern {
        self.ty(format!("rank {rank}"), move |t| t.rank() == rank)
    }
    /// A value with these dimensions; `None` for any.
    pub fn shape(self, shape: &[Option<i64>]) -> Pattern {
        let list: Vec<String> = shape.iter().map(|d| d.map_or("?".into(), |d| d.to_string())).collect();
        let shape = shape.to_vec();
        self.ty(format!("shape {}", list.join("x")), move |t| {
            t.rank() == shape.len() && t.shape.iter().zip(&shape).all(|(d, s)| s.is_none_or(|s| d.is(s)))
        })
    }
    /// A value with exactly one use, as operand or block result.
    pub fn used_once(self) -> Pattern {
        self.when("used once", |s, v| s.num_uses(v) == 1)
    }
    /// The types of ops at the root; `None` when the root may be anything. For tables of rules.
    pub fn roots(&self) -> Option<Vec<TypeId>> {
        match &*self.0 {
            Kind::Any | Kind::Param | Kind::AnyOp(_) => None,
            Kind::Constant | Kind::Number(..) => Some(vec![TypeId::of::<crate::ops::control::Const>()]),
            Kind::Op { id, .. } => Some(vec![*id]),
            Kind::Either(list) => {
                Some(list.iter().map(Pattern::roots).collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
            }
            Kind::Optional { with, without } => Some([with.roots()?, without.roots()?].concat()),
            Kind::When { inner, .. } | Kind::Result { inner, .. } | Kind::Named { inner, .. } => inner.roots(),
            Kind::Dominator { child, .. } => child.roots(),
        }
    }
}
