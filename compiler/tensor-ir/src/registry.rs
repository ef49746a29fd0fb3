//! Tables that other crates can add rows to: ops with their ONNX importers, schedule instructions, schedule rules,
//! fusion rules and quirks.
//!
//! Rows are added before anything is parsed, by the function of each table: `ops::register_op`,
//! `schedule::register_instruction`, `schedule::rules::register`, `register_fusion_rule` and `quirks::register`.
//! `cli::Extensions` and `weft::Extensions` take rows of all tables. `cli/examples` has one of each, tested by
//! `cli/tests/own_parts.rs` and `own_pass.rs`.

use std::sync::{PoisonError, RwLock};

/// A table of named rows: the rows of this crate, and rows that other crates have added.
pub struct Table<T: 'static> {
    own: &'static [T],
    more: RwLock<Vec<&'static T>>,
}

impl<T: Send + Sync + 'static> Table<T> {
    /// A table with the rows of this crate.
    pub const fn new(own: &'static [T]) -> Table<T> {
        Table { own, more: RwLock::new(Vec::new()) }
    }
    /// Adds a row for as long as the program runs. To be called before anything is parsed or compiled.
    ///
    /// # Errors
    /// When `same` holds for a row that is there.
    pub fn add(&self, row: T, same: impl Fn(&T) -> bool) -> Result<(), String> {
        let mut more = self.more.write().unwrap_or_else(PoisonError::into_inner);
        if self.own.iter().chain(more.iter().copied()).any(same) {
            return Err("a row of this name is in the table".into());
        }
        more.push(Box::leak(Box::new(row)));
        Ok(())
    }
    /// The rows of this crate.
    pub const fn own(&self) -> &'static [T] {
        self.own
    }
    /// The rows that were added, in order.
    pub fn added(&self) -> Vec<&'static T> {
        self.more.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// All rows, those of this crate first.
    pub fn iter(&self) -> impl Iterator<Item = &'static T> + use<T> {
        self.own.iter().chain(self.added())
    }
}
