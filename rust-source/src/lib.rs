//! A crate on `wgpu` alone, or a web page on WebGPU alone, from a plan: an application ships a network without Weft.
//!
//! Kernels are the WGSL of the shader generator, a file each. The plan around them becomes tables (`tables`): buffers,
//! kernels and a row for each dispatch. [`program()`] writes them in Rust (`network`), where inputs and outputs are
//! structures with a field each (`names`); [`page()`] as JSON (`web`). What all networks share is the text of
//! `template/`.
//!
//! Pages run loops; a page that has the compiler beside it runs steps on the host too.
//!
//! Deliberately absent: graphs, ops, files; calls of the plan; in crates loops, steps on the host and open sizes;
//! kernels on matrix units, whose shapes and subgroup sizes only a session can check.
#![warn(missing_docs)]

mod names;
mod network;
mod tables;
mod web;

pub use tables::{WeightPart, weight_parts};
pub use web::{Group, network, page};

use crate::tables::{Abilities, Tables};
use std::fmt::Write as _;
use tensor_ir::plan::{Plan, PlanBuffer};
use tensor_ir::profile::DeviceProfile;

/// A file of the crate.
pub struct File {
    /// Its path in the folder.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The crates that it needs, for `Cargo.toml`.
const DEPENDENCIES: &str = "\
wgpu = { version = \"30.0.1\", default-features = false, features = [\"std\", \"wgsl\", \"vulkan\", \"metal\", \"dx12\"] }
pollster = \"1.0.1\"
";

/// The name of the package for a model.
pub fn package(model: &str) -> String {
    format!("{}-network", names::identifier(model, "a").trim_end_matches('_').replace('_', "-"))
}

/// The files of a crate for a plan whose kernels [`shaders_gen::Emitter`] made for `profile`. `packed` has the bytes of
/// a constant's buffer as kernels read them; `model` is the model's name.
///
/// # Errors
/// Steps that run on the host, loops and calls, kernels that take sizes or use matrix units, by name; what `packed`
/// says.
pub fn program(
    plan: &Plan,
    profile: &DeviceProfile,
    packed: &dyn Fn(&PlanBuffer) -> Result<Vec<u8>, String>,
    model: &str,
) -> Result<Vec<File>, String> {
    let tables = Tables::of(plan, profile, Some(packed), Abilities::default())?;
    if let Some(k) = tables.kernels.iter().find(|k| k.size_bytes > 0) {
        return Err(format!("kernel `{}` takes sizes that only a run knows", k.name));
    }
    let network = network::source(&tables, profile, model);
    let package = package(model);
    let mut manifest = String::new();
    let _ = write!(
        manifest,
        "[package]
name = \"{package}\"
version = \"0.1.0\"
edition = \"2024\"
description = \"A network for wgpu, written by Weft\"
publish = false

[dependencies]
{DEPENDENCIES}
# Shaders are parsed when the network opens, which takes long without optimisation.
[profile.dev.package.\"*\"]
opt-level = 2
"
    );
    let main = format!(
        "//! Runs the network on files of raw elements.\n\nuse {} as network;{}",
        package.replace('-', "_"),
        include_str!("../template/main.rs")
    );
    let text = |path: &str, text: String| File { path: path.into(), bytes: text.into_bytes() };
    let mut files = vec![
        text("Cargo.toml", manifest),
        text("src/lib.rs", include_str!("../template/lib.rs").into()),
        text("src/main.rs", main),
        text("src/device.rs", include_str!("../template/device.rs").into()),
        text("src/tensor.rs", include_str!("../template/tensor.rs").into()),
        text("src/network.rs", network),
    ];
    let kernels = plan.kernels.iter().zip(&tables.kernels);
    files.extend(kernels.map(|(k, row)| text(&format!("kernels/{}.wgsl", row.file), k.emitted.wgsl.clone())));
    files.push(File { path: "weights.bin".into(), bytes: tables.blob });
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crate_asks_for_the_versions_of_the_workspace() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let workspace = std::fs::read_to_string(path).expect("the workspace's manifest");
        let version = |name: &str, text: &str| {
            let line = text.lines().find(|l| l.starts_with(&format!("{name} = "))).expect(name);
            line.split('"').nth(1).expect("a version").to_string()
        };
        for name in ["wgpu", "pollster"] {
            assert_eq!(version(name, DEPENDENCIES), version(name, &workspace));
        }
    }

    #[test]
    fn names_of_packages() {
        let all = ["squeezenet1_1", "my model (2)", "2d", "type", "ünet", ""].map(package);
        let want =
            ["squeezenet1-1-network", "my-model-2-network", "a2d-network", "type-network", "net-network", "a-network"];
        assert_eq!(all, want);
    }
}
