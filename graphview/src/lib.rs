//! Pictures of compilations, without a window.
//!
//! [`picture`] says what a module's graph consists of, [`layout`] places a graph, [`scene`] puts both together, [`svg`] and
//! [`report`] write it down. Whoever has a canvas paints a [`scene::Scene`].
//!
//! Deliberately absent: fonts (painters measure text), events, and the shader generator.

#![warn(missing_docs)]

pub mod changes;
pub mod layout;
pub mod picture;
pub mod query;
pub mod report;
pub mod scene;
pub mod svg;
pub mod timeline;

#[cfg(test)]
mod tests;
