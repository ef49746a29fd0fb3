//! DXC, Microsoft's compiler of HLSL, if it is here: it tells whether DirectX 12 accepts a kernel.

use crate::cargo::{show, succeeds};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Bytes of workgroup memory of every DirectX 12 device: kernels that take more are for other drivers.
pub const MOST_SHARED: u64 = 32 << 10;

/// The program, from the variable `DXC` or the path; none, with advice, where it is not.
pub fn find() -> Option<PathBuf> {
    let program = std::env::var_os("DXC").map_or_else(|| PathBuf::from("dxc"), PathBuf::from);
    if succeeds(&program.to_string_lossy(), &["--version"]) {
        return Some(program);
    }
    eprintln!(
        "\n!!! DXC is not here, so no compiler of DirectX reads the HLSL; it is in the Vulkan SDK, in the \
         Windows SDK and in the releases of microsoft/DirectXShaderCompiler; the variable DXC names it\n"
    );
    None
}

/// Has DXC compile a kernel to the shader model that the text is written for.
///
/// # Errors
/// Its first message.
pub fn check(dxc: &Path, file: &Path, entry: &str) -> Result<(), String> {
    let mut c = Command::new(dxc);
    c.args(["-T", "cs_6_2", "-enable-16bit-types", "-HV", "2018", "-Fo"]).arg(file.with_extension("dxil"));
    c.arg("-E").arg(entry).arg(file).stdin(Stdio::null());
    let o = c.output().map_err(|e| format!("{}: {e}", show(&c)))?;
    let said = String::from_utf8_lossy(&o.stderr);
    match o.status.success() {
        true => Ok(()),
        false => Err(format!("DXC: {}: {}", file.display(), said.lines().next().unwrap_or_default())),
    }
}
