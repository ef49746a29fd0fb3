//! Typed attributes of ops, schedule instructions and pass options, with one text form.
//!
//! [`attr_struct!`](crate::attr_struct) declares a struct whose fields are attributes with defaults; printing leaves
//! out fields that have their default, parsing refuses unknown names.

pub(crate) mod print;
mod value;

pub use value::{Attr, AttrValue, Attrs};

use std::any::Any;
use std::fmt;

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
