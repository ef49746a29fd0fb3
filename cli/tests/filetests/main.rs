//! Runs every file of the `filetests` folder: `filetests/<area>/<name>.weft`.
//!
//! A file starts with comment lines: the verb `; test VERB ARGUMENTS`, then optional settings (`; profile NAME`,
//! `; seed N`). The input module follows. Behind the line `; ==== expect` stands the expected output as comment lines.
//! With the environment variable `WEFT_BLESS=1` (`cargo xtask bless`) the output replaces the expectation.

mod file;
mod gpu;
mod kernels;
mod run;
mod verbs;

use file::TestFile;
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filetests");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let trials = files.into_iter().map(|path| {
        let name = path.strip_prefix(&root).unwrap_or(&path).with_extension("").display().to_string();
        Trial::test(name.replace('\\', "/"), move || check(&path))
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}

/// All `.weft` files below `folder`.
fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "weft") {
            out.push(path);
        }
    }
}

fn check(path: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let test = TestFile::parse(&text)?;
    let got = verbs::run(&test)?;
    let got = got.trim_end();
    if got == test.expected.trim_end() {
        return Ok(());
    }
    if std::env::var_os("WEFT_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(path, test.with_expectation(got))?;
        return Ok(());
    }
    let diff = similar::TextDiff::from_lines(test.expected.trim_end(), got);
    let shown = diff.unified_diff().header("expected", "got").to_string();
    Err(format!("{shown}\n(`cargo xtask bless` rewrites the expectation)").into())
}
