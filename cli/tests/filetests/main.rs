//! Runs every file of the `filetests` folder: `filetests/<area>/<name>.weft`.
//!
//! A file starts with comment lines: the verb `; test VERB ARGUMENTS`, then optional settings (`; profile NAME`,
//! `; seed N`). The input module follows. Behind the line `; ==== expect` stands the expected output as comment lines.
//! With the environment variable `WEFT_BLESS=1` (`cargo xtask bless`) the output replaces the expectation.

mod file;
mod gpu;
mod kernels;
mod run;
mod symbols;
mod targets;
mod verbs;

use file::TestFile;
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    targets::register();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../filetests");
    let mut found = Found::default();
    found.collect(&root);
    found.files.sort();
    let name = |path: &Path| {
        let inside = path.strip_prefix(&root).unwrap_or(path).with_extension("").display().to_string();
        if inside.is_empty() { "filetests".to_string() } else { inside.replace('\\', "/") }
    };
    let tests = found.files.iter().map(|path| {
        let path = path.clone();
        Trial::test(name(&path), move || check(&path))
    });
    let faults = found.faults.iter().map(|(path, why)| {
        let why = format!("{}: {why}", path.display());
        Trial::test(name(path), move || Err(why.into()))
    });
    let open = found.files.iter().filter(|path| has_symbols(path)).map(|path| {
        let path = path.clone();
        Trial::test(format!("symbols/{}", name(&path)), move || check_symbols(&path))
    });
    libtest_mimic::run(&Arguments::from_args(), tests.chain(open).chain(faults).collect()).exit_code()
}

/// What the folder of the tests holds.
#[derive(Default)]
struct Found {
    files: Vec<PathBuf>,
    /// Folders that hold nothing to run, and files that nothing runs: a test that was lost must not pass.
    faults: Vec<(PathBuf, String)>,
}

impl Found {
    /// All `.weft` files below `folder`.
    fn collect(&mut self, folder: &Path) {
        let before = self.files.len();
        match std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
            Err(e) => return self.faults.push((folder.into(), format!("cannot be read: {e}"))),
            Ok(entries) => {
                for path in entries.into_iter().map(|e| e.path()) {
                    if path.is_dir() {
                        self.collect(&path);
                    } else if path.extension().is_some_and(|e| e == "weft") {
                        self.files.push(path);
                    } else {
                        self.faults.push((path, "is no .weft file".into()));
                    }
                }
            }
        }
        if self.files.len() == before {
            self.faults.push((folder.into(), "holds no test".into()));
        }
    }
}

/// True for a file whose graph functions have symbols that can change names.
fn has_symbols(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    TestFile::parse(&text).is_ok_and(|t| symbols::open_module(&t).is_some())
}

fn check_symbols(path: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let test = TestFile::parse(&text)?;
    let module = symbols::open_module(&test).ok_or("no symbols")?;
    Ok(symbols::exchanged(&test, &module)?)
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
