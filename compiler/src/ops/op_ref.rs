//! A shared op, whatever its type.

use super::Op;
use crate::attr::{Attr, AttrObject, AttrStruct, AttrValue, Attrs};
use crate::int::Dim;
use crate::name::Name;
use std::fmt;
use std::sync::Arc;

/// A shared op. It knows how to make another of its kind, whether it is in the table of ops or somebody's own.
#[derive(Clone)]
pub struct OpRef {
    op: Arc<dyn Op>,
    from_attrs: fn(&Attrs) -> Result<OpRef, String>,
}
impl OpRef {
    /// Wraps an op.
    pub fn new<T: Op + AttrStruct>(op: T) -> OpRef {
        OpRef { op: Arc::new(op), from_attrs: |attrs| T::from_attrs(attrs).map(OpRef::new) }
    }
    /// An op of the same kind with these attributes.
    ///
    /// # Errors
    /// Names an attribute that the op does not have, or one of the wrong kind.
    pub fn with_attrs(&self, attrs: &Attrs) -> Result<OpRef, String> {
        (self.from_attrs)(attrs)
    }
    /// The op as `T`.
    pub fn downcast<T: 'static>(&self) -> Option<&T> {
        self.op.as_any().downcast_ref()
    }
    /// True when the op is a `T`.
    pub fn is<T: 'static>(&self) -> bool {
        self.downcast::<T>().is_some()
    }
}
impl OpRef {
    /// The op with the symbols in its attributes replaced by their values; one without a value stays.
    pub fn bind(&self, value: &dyn Fn(Name) -> Option<i64>) -> OpRef {
        fn replace(a: &Attr, value: &dyn Fn(Name) -> Option<i64>) -> Option<Attr> {
            match a {
                Attr::Expr(e) => Some(e.replace(&mut |v| value(v).map(Dim::new)).to_attr()),
                Attr::List(list) if list.iter().any(|a| matches!(a, Attr::Expr(_) | Attr::List(_))) => {
                    Some(Attr::List(list.iter().map(|a| replace(a, value).unwrap_or_else(|| a.clone())).collect()))
                }
                _ => None,
            }
        }
        let mut attrs = self.attrs();
        let mut changed = false;
        for a in attrs.values_mut() {
            if let Some(new) = replace(a, value) {
                changed |= new != *a;
                *a = new;
            }
        }
        // Attributes that hold expressions take numbers.
        let bound = if changed { self.with_attrs(&attrs).ok() } else { None };
        bound.unwrap_or_else(|| self.clone())
    }
}
impl std::ops::Deref for OpRef {
    type Target = dyn Op;
    fn deref(&self) -> &(dyn Op + 'static) {
        &*self.op
    }
}
impl fmt::Debug for OpRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.op.fmt(f)
    }
}
impl PartialEq for OpRef {
    fn eq(&self, other: &OpRef) -> bool {
        self.op.same(&*other.op as &dyn AttrObject)
    }
}
impl<T: Op + AttrStruct> From<T> for OpRef {
    fn from(op: T) -> OpRef {
        OpRef::new(op)
    }
}
