//! Values of attributes.

use crate::dtype::DType;
use crate::int::Int;
use crate::name::Name;
use indexmap::IndexMap;

/// An attribute value in text form.
#[derive(Clone, PartialEq, Debug)]
pub enum Attr {
    /// `3`
    Int(i64),
    /// `0.5`, `1e-5`, `inf`, `nan`
    Float(f64),
    /// `true`
    Bool(bool),
    /// `"text"` or a bare identifier
    Str(String),
    /// `[...]`
    List(Vec<Attr>),
    /// `f32`
    DType(DType),
    /// An integer expression, printed in backquotes: `` `n*2` ``
    Expr(Int),
}

/// Attributes by name, in declaration order.
pub type Attrs = IndexMap<String, Attr>;

/// A Rust type that is an attribute value.
pub trait AttrValue: Sized + Clone + PartialEq {
    /// To the text form.
    fn to_attr(&self) -> Attr;
    /// From the text form; `None` when the kind of value is wrong.
    fn from_attr(attr: &Attr) -> Option<Self>;
    /// All values, if there are few; empty otherwise.
    fn choices() -> Vec<&'static str> {
        vec![]
    }
}
/// Any value, in text form.
impl AttrValue for Attr {
    fn to_attr(&self) -> Attr {
        self.clone()
    }
    fn from_attr(attr: &Attr) -> Option<Attr> {
        Some(attr.clone())
    }
}
impl AttrValue for i64 {
    fn to_attr(&self) -> Attr {
        Attr::Int(*self)
    }
    fn from_attr(attr: &Attr) -> Option<i64> {
        if let Attr::Int(v) = attr { Some(*v) } else { None }
    }
}
impl AttrValue for usize {
    fn to_attr(&self) -> Attr {
        Attr::Int(*self as i64)
    }
    fn from_attr(attr: &Attr) -> Option<usize> {
        if let Attr::Int(v) = attr { usize::try_from(*v).ok() } else { None }
    }
}
impl AttrValue for f64 {
    fn to_attr(&self) -> Attr {
        Attr::Float(*self)
    }
    fn from_attr(attr: &Attr) -> Option<f64> {
        match attr {
            Attr::Float(v) => Some(*v),
            Attr::Int(v) => Some(*v as f64),
            _ => None,
        }
    }
}
impl AttrValue for bool {
    fn to_attr(&self) -> Attr {
        Attr::Bool(*self)
    }
    fn from_attr(attr: &Attr) -> Option<bool> {
        if let Attr::Bool(v) = attr { Some(*v) } else { None }
    }
}
impl AttrValue for String {
    fn to_attr(&self) -> Attr {
        Attr::Str(self.clone())
    }
    fn from_attr(attr: &Attr) -> Option<String> {
        if let Attr::Str(v) = attr { Some(v.clone()) } else { None }
    }
}
impl AttrValue for Name {
    fn to_attr(&self) -> Attr {
        Attr::Str(self.to_string())
    }
    fn from_attr(attr: &Attr) -> Option<Name> {
        if let Attr::Str(v) = attr { Some(Name::new(v)) } else { None }
    }
}
impl AttrValue for DType {
    fn to_attr(&self) -> Attr {
        Attr::DType(*self)
    }
    fn from_attr(attr: &Attr) -> Option<DType> {
        if let Attr::DType(v) = attr { Some(*v) } else { None }
    }
}
impl AttrValue for Int {
    fn to_attr(&self) -> Attr {
        match self.as_const() {
            Some(c) => Attr::Int(c),
            None => Attr::Expr(self.clone()),
        }
    }
    fn from_attr(attr: &Attr) -> Option<Int> {
        match attr {
            Attr::Int(v) => Some(Int::new(*v)),
            Attr::Expr(e) => Some(e.clone()),
            _ => None,
        }
    }
}
impl<T: AttrValue> AttrValue for Vec<T> {
    fn choices() -> Vec<&'static str> {
        T::choices()
    }
    fn to_attr(&self) -> Attr {
        Attr::List(self.iter().map(T::to_attr).collect())
    }
    fn from_attr(attr: &Attr) -> Option<Vec<T>> {
        if let Attr::List(v) = attr { v.iter().map(T::from_attr).collect() } else { None }
    }
}
impl<T: AttrValue> AttrValue for Option<T> {
    fn choices() -> Vec<&'static str> {
        T::choices()
    }
    /// `None` equals the usual default and is then not printed; printed alone it is the empty list.
    fn to_attr(&self) -> Attr {
        self.as_ref().map_or(Attr::List(vec![]), T::to_attr)
    }
    fn from_attr(attr: &Attr) -> Option<Option<T>> {
        match attr {
            Attr::List(v) if v.is_empty() => Some(None),
            a => T::from_attr(a).map(Some),
        }
    }
}
