//! A folder of C, built with every warning an error, and run on files of raw elements.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

const WARNINGS: [&str; 5] = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror"];

/// gcc and clang, as far as they are here; says loudly which is not.
pub fn compilers() -> &'static [&'static str] {
    static FOUND: OnceLock<Vec<&'static str>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let runs = |name: &str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
        let families = [("gcc", &["gcc", "gcc-12"][..]), ("clang", &["clang", "clang-14"][..])];
        let found = families.map(|(family, names)| {
            let first = names.iter().copied().find(|name| runs(name));
            if first.is_none() {
                eprintln!("SKIPPED: C built by {family}: there is no compiler {}", names.join(" or "));
            }
            first
        });
        let found: Vec<&str> = found.into_iter().flatten().collect();
        assert!(!found.is_empty(), "there is no C compiler; on Debian it is in the package gcc");
        found
    })
}

fn ran(command: &mut Command) -> Result<(), String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
}

/// Builds `network.c` and `main.c` of the folder as the program `network`; `options` are further arguments.
///
/// # Errors
/// What the compiler says.
pub fn build(at: &Path, compiler: &str, options: &[&str]) -> Result<(), String> {
    let files = ["network.c", "main.c", "-lm", "-o", "network"];
    let mut command = Command::new(compiler);
    ran(command.current_dir(at).args(WARNINGS).args(files).args(options)).map_err(|e| format!("{compiler}: {e}"))
}

/// Runs the program twice on the elements of each input; the elements of each of `outputs` results.
///
/// # Errors
/// What the program says.
pub fn run(at: &Path, inputs: &[&[u8]], outputs: usize) -> Result<Vec<Vec<u8>>, String> {
    let file = |e: std::io::Error| format!("{}: {e}", at.display());
    let mut command = Command::new(at.join("network"));
    command.current_dir(at).args(["-n", "2", "weights.bin"]);
    for (i, bytes) in inputs.iter().enumerate() {
        std::fs::write(at.join(format!("in{i}")), bytes).map_err(file)?;
        command.arg(format!("in{i}"));
    }
    let results: Vec<String> = (0..outputs).map(|i| format!("out{i}")).collect();
    ran(command.args(&results))?;
    results.iter().map(|name| std::fs::read(at.join(name)).map_err(file)).collect()
}
