//! Pictures of compilations, without a window.
//!
//! [`picture`] describes a module's graph, [`layout`] places a graph, [`scene`] combines both, and [`svg`] and
//! [`report`] write files. [`explain`] says in words, tables and records what a trace holds.
//! A canvas paints a [`scene::Scene`].
//!
//! Deliberately absent: fonts (painters measure text), events, and the shader generator.

#![warn(missing_docs)]

mod category;
pub mod changes;
mod data_layout;
pub mod document;
pub mod driver_table;
pub mod explain;
pub mod figures;
pub mod layers;
pub mod layout;
pub mod left;
pub mod maps;
mod meaning;
pub mod memory;
pub mod names;
pub mod near;
pub mod picture;
pub mod query;
pub mod reasons;
pub mod report;
pub mod scene;
pub mod svg;
pub mod timeline;
pub mod words;

#[cfg(test)]
mod tests;
