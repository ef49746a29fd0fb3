//! Interned names: symbols, loop variables, functions, constants, values, nodes.
//!
//! A [`Name`] is a `Copy` handle of a string in one process-wide table. Equal strings have equal handles; ordering is
//! by the string, so that sorted output does not depend on the order of interning.

use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::{LazyLock, RwLock};

/// An interned string.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name(u32);

struct Interner {
    map: FxHashMap<&'static str, u32>,
    strings: Vec<&'static str>,
}

static INTERNER: LazyLock<RwLock<Interner>> =
    LazyLock::new(|| RwLock::new(Interner { map: FxHashMap::default(), strings: Vec::new() }));

impl Name {
    /// Interns `text`.
    pub fn new(text: &str) -> Name {
        if let Some(&id) = INTERNER.read().expect("interner lock").map.get(text) {
            return Name(id);
        }
        let mut table = INTERNER.write().expect("interner lock");
        if let Some(&id) = table.map.get(text) {
            return Name(id);
        }
        let leaked: &'static str = Box::leak(text.to_owned().into_boxed_str());
        let id = table.strings.len() as u32;
        table.strings.push(leaked);
        table.map.insert(leaked, id);
        Name(id)
    }

    /// The string itself.
    pub fn as_str(self) -> &'static str {
        INTERNER.read().expect("interner lock").strings[self.0 as usize]
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}
impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Name {
    fn cmp(&self, other: &Name) -> std::cmp::Ordering {
        if self.0 == other.0 {
            return std::cmp::Ordering::Equal;
        }
        let table = INTERNER.read().expect("interner lock");
        table.strings[self.0 as usize].cmp(table.strings[other.0 as usize])
    }
}
impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name::new(text)
    }
}
impl From<String> for Name {
    fn from(text: String) -> Name {
        Name::new(&text)
    }
}
impl serde::Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}
impl<'de> serde::Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Name, D::Error> {
        Ok(Name::new(&String::deserialize(d)?))
    }
}
