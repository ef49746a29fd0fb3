//! Files of C as a shared object of this process.

use crate::program::File;
use libloading::Library;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What every file is compiled with. GCC fuses multiply-adds only when told.
const OPTIONS: [&str; 7] =
    ["-std=c11", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared"];

/// Checks that there is a C compiler of this name.
///
/// # Errors
/// None that runs, and where to get one.
pub fn check_compiler(compiler: &str) -> Result<(), String> {
    let found = Command::new(compiler).arg("--version").output();
    let runs = found.is_ok_and(|out| out.status.success());
    if runs { Ok(()) } else { Err(format!("there is no C compiler `{compiler}`; on Debian it is in the package gcc")) }
}

/// How a shared object is built of `network.c`.
pub struct Build<'a> {
    /// The C compiler.
    pub compiler: &'a str,
    /// How much it optimises: `-O3` for kernels, `-O1` for C that calls a library.
    pub level: &'a str,
    /// Keeps the files; none: they are deleted when the object is loaded.
    pub folder: Option<PathBuf>,
    /// Further arguments, behind the file: libraries.
    pub libraries: Vec<OsString>,
}

impl Build<'_> {
    /// Writes the files, builds the object and loads it.
    ///
    /// # Errors
    /// What the compiler says; files that cannot be written.
    pub fn load(&self, files: &[File]) -> Result<Library, String> {
        let own = tempfile::tempdir().map_err(|e| e.to_string())?;
        let at = self.folder.as_deref().unwrap_or(own.path());
        let at_fault = |e: std::io::Error| format!("{}: {e}", at.display());
        std::fs::create_dir_all(at).map_err(at_fault)?;
        files.iter().try_for_each(|f| std::fs::write(at.join(f.name), &f.bytes)).map_err(at_fault)?;
        let object = own.path().join("network.so");
        self.compile(at, &object)?;
        // SAFETY: the object has no initialisers; it was built just now of files that the caller wrote.
        unsafe { Library::new(&object) }.map_err(|e| e.to_string())
    }
    fn compile(&self, at: &Path, object: &Path) -> Result<(), String> {
        let mut command = Command::new(self.compiler);
        command
            .current_dir(at)
            .args(OPTIONS)
            .args([self.level, "network.c", "-lm"])
            .args(&self.libraries)
            .arg("-o")
            .arg(object);
        let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
        match out.status.success() {
            true => Ok(()),
            false => Err(format!("the C compiler: {}", String::from_utf8_lossy(&out.stderr))),
        }
    }
}

/// Memory in lines of 64 bytes, as `network.h` asks.
pub struct Lines(Vec<Line>);

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[allow(dead_code, reason = "C reads it")] [u8; 64]);

impl Lines {
    /// Zeros.
    pub fn of(bytes: usize) -> Lines {
        Lines(vec![Line([0; 64]); bytes.div_ceil(64).max(1)])
    }
    /// These bytes.
    pub fn with(bytes: &[u8]) -> Lines {
        let line = |part: &[u8]| {
            let mut line = [0; 64];
            line[..part.len()].copy_from_slice(part);
            Line(line)
        };
        Lines(bytes.chunks(64).map(line).chain([Line([0; 64])]).collect())
    }
    /// The first byte.
    pub fn start(&self) -> *const std::ffi::c_void {
        self.0.as_ptr().cast()
    }
    /// The first byte, to be written.
    pub fn start_mut(&mut self) -> *mut std::ffi::c_void {
        self.0.as_mut_ptr().cast()
    }
}
