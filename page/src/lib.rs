//! The compiler for a web page: the bytes of a model in, the files of `weft export --web` out.
//!
//! `cargo xtask page` builds it for WebAssembly, where `abi` is its interface; the rest is plain Rust that runs
//! anywhere. `web/` has the page: a Web Worker that calls this, and the page of an export around what it makes.
//!
//! Always: what a page compiles for a profile is what the command compiles for it, byte for byte. Errors are sentences.
//! Deliberately absent: files, threads, WebGPU (`rust-source/template/web/runner.js` runs plans).
#![warn(missing_docs)]

#[cfg(target_family = "wasm")]
mod abi;
mod adapter;
mod compiled;
mod files;
mod request;
mod rest;

pub use adapter::{Adapter, profile_of};
pub use compiled::{Measured, Network, report_of};
pub use files::{Files, Named};
pub use request::Request;

/// The networks that need no file, as JSON: names, descriptions and parameters.
pub fn zoo() -> String {
    let row = |m: &benches::zoo::ZooEntry| {
        let benches::zoo::ZooEntry { name, description, parameters, .. } = *m;
        serde_json::json!({ "name": name, "description": description, "parameters": parameters })
    };
    serde_json::Value::from_iter(benches::zoo::list().iter().map(row)).to_string()
}
