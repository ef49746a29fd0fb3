//! Typed attributes of ops, schedule instructions and pass options, with one text form.
//!
//! [`attr_struct!`](crate::attr_struct) declares a struct whose fields are attributes with defaults; printing leaves
//! out fields that have their default, parsing refuses unknown names.

pub(crate) mod print;

use crate::dtype::DType;
use crate::int::Int;
use crate::name::Name;
use indexmap::IndexMap;
use std::any::Any;
use std::fmt;

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

/// A struct of attributes: what [`attr_struct!`](crate::attr_struct) derives.
pub trait AttrStruct: Sized + Default + Clone + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// Name in text: `conv`, `split`.
    const NAME: &'static str;
    /// Fields that differ from their defaults, in declaration order.
    fn to_attrs(&self) -> Attrs;
    /// All fields, in declaration order.
    fn all_attrs(&self) -> Attrs;
    /// Builds the struct.
    ///
    /// # Errors
    /// Names an unknown attribute, or one of the wrong kind.
    fn from_attrs(attrs: &Attrs) -> Result<Self, String>;
}

/// The object-safe face of an attribute struct, which ops and instructions have in common; implemented for all of them.
pub trait AttrObject: Any + fmt::Debug + Send + Sync {
    /// Name in text.
    fn name(&self) -> &'static str;
    /// Attributes that differ from their defaults.
    fn attrs(&self) -> Attrs;
    /// All attributes, those with their default values too.
    fn every_attr(&self) -> Attrs;
    /// For downcasts.
    fn as_any(&self) -> &dyn Any;
    /// Equality.
    fn same(&self, other: &dyn AttrObject) -> bool;
}
impl<T: AttrStruct> AttrObject for T {
    fn name(&self) -> &'static str {
        T::NAME
    }
    fn attrs(&self) -> Attrs {
        self.to_attrs()
    }
    fn every_attr(&self) -> Attrs {
        self.all_attrs()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn same(&self, other: &dyn AttrObject) -> bool {
        other.as_any().downcast_ref::<T>() == Some(self)
    }
}

/// Declares a documented struct of attributes: `attr_struct! { /// doc pub struct Conv("conv") { /// doc pub group: i64
/// = 1, } }`.
#[macro_export]
macro_rules! attr_struct {
    ($(#[$doc:meta])* pub struct $name:ident($text:literal) { $($(#[$fdoc:meta])* pub $field:ident : $ty:ty = $default:expr),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Debug)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty),* }
        impl Default for $name {
            fn default() -> Self { $name { $($field: $default),* } }
        }
        impl $crate::attr::AttrStruct for $name {
            const NAME: &'static str = $text;
            #[allow(unused_variables, unused_mut, clippy::let_and_return)]
            fn to_attrs(&self) -> $crate::attr::Attrs {
                let default = Self::default();
                let mut out = $crate::attr::Attrs::new();
                $(if self.$field != default.$field {
                    let name = $crate::attr::field_name(stringify!($field));
                    out.insert(name.to_string(), $crate::attr::AttrValue::to_attr(&self.$field));
                })*
                out
            }
            #[allow(unused_mut, clippy::let_and_return)]
            fn all_attrs(&self) -> $crate::attr::Attrs {
                let mut out = $crate::attr::Attrs::new();
                $(out.insert(
                    $crate::attr::field_name(stringify!($field)).to_string(),
                    $crate::attr::AttrValue::to_attr(&self.$field),
                );)*
                out
            }
            #[allow(unused_variables, unused_mut, clippy::never_loop)]
            fn from_attrs(attrs: &$crate::attr::Attrs) -> Result<Self, String> {
                let mut out = Self::default();
                for (key, value) in attrs {
                    $(if key == $crate::attr::field_name(stringify!($field)) {
                        out.$field = $crate::attr::AttrValue::from_attr(value)
                            .ok_or_else(|| $crate::attr::wrong_value::<$ty>($text, key, value))?;
                        continue;
                    })*
                    return Err(format!("`{}` has no attribute `{key}`{}", $text,
                        $crate::attr::known(&[$($crate::attr::field_name(stringify!($field))),*])));
                }
                Ok(out)
            }
        }
    };
}

/// Declares an enum that is an attribute value: `attr_enum! { /// doc pub enum Mode { Nearest = "nearest", Linear =
/// "linear" } }`.
#[macro_export]
macro_rules! attr_enum {
    ($(#[$doc:meta])* pub enum $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$vdoc])* $variant),* }
        impl $name {
            /// Every variant.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// Name in text.
            pub fn name(self) -> &'static str { match self { $($name::$variant => $text),* } }
            /// The variant of that name.
            pub fn parse(text: &str) -> Option<$name> { match text { $($text => Some($name::$variant),)* _ => None } }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.name()) }
        }
        impl $crate::attr::AttrValue for $name {
            fn to_attr(&self) -> $crate::attr::Attr { $crate::attr::Attr::Str(self.name().to_string()) }
            fn from_attr(attr: &$crate::attr::Attr) -> Option<$name> {
                if let $crate::attr::Attr::Str(text) = attr { $name::parse(text) } else { None }
            }
            fn choices() -> Vec<&'static str> {
                $name::ALL.iter().map(|v| v.name()).collect()
            }
        }
    };
}

/// Name of an attribute in text: the field's, without the `r#` of a Rust keyword.
pub fn field_name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// An error message for a wrong value of an attribute. It lists the valid values if there are few.
pub fn wrong_value<T: AttrValue>(owner: &str, key: &str, value: &Attr) -> String {
    let shown = print::print_value(value);
    match T::choices().as_slice() {
        [] => format!("attribute `{key}` of `{owner}` has the wrong kind of value: {shown}"),
        list => format!("attribute `{key}` of `{owner}` is one of {}, not {shown}", list.join(", ")),
    }
}

/// `; known: a, b` for an error message.
pub fn known(names: &[&str]) -> String {
    if names.is_empty() { "; it has none".into() } else { format!("; known: {}", names.join(", ")) }
}
