//! `cargo xtask page`: the compiler in a web page, a folder of static files; and pages in a browser.

mod browser;
mod build;
mod compiler;
mod dawn;
mod exports;
mod large;
mod tasks;
mod trace;
mod trained;

use crate::cargo::build_weft;
use crate::heading::heading;
pub use build::compiles;
pub use exports::check;

/// One line for the usage.
pub const HELP: &str = "[--toolchain DIR] [--serve [PORT]] [--test [MODEL ...]] [--full] builds the compiler's page; --serve shows it on this machine, --test drives it and pages of `weft export --web` in headless Chromium; --full: with whole networks, held against ONNX Runtime, and a model of 1.5 GB";

/// The arguments.
#[derive(Debug, Default, PartialEq)]
struct Options {
    toolchain: Option<String>,
    serve: Option<u16>,
    /// The models of exported pages that are driven.
    test: Option<Vec<String>>,
    /// What takes long is driven too.
    full: bool,
}

/// Runs the command.
///
/// # Errors
/// A toolchain without the target; the first page that failed.
pub fn run(args: &[String]) -> Result<(), String> {
    let o = options(args)?;
    heading("cargo build --package weft-command");
    let weft = build_weft(false)?;
    let folder = build::build(&weft, o.toolchain.as_deref())?;
    if let Some(models) = &o.test {
        exports::check(&weft, models)?;
        dawn::check(&weft)?;
        compiler::check(&weft, &folder)?;
        tasks::check(&folder)?;
        if o.full {
            trained::check(&weft, &folder)?;
            large::check(&weft, &folder)?;
        }
    }
    o.serve.map_or(Ok(()), |port| browser::serve(&folder, port))
}

fn options(args: &[String]) -> Result<Options, String> {
    let mut o = Options::default();
    let mut rest = args.iter().peekable();
    while let Some(a) = rest.next() {
        match a.as_str() {
            "--toolchain" => {
                let folder = rest.next().ok_or("--toolchain needs a folder with `rustc` and `wasm-ld`")?;
                o.toolchain = Some(folder.clone());
            }
            "--serve" => {
                let port = rest.next_if(|p| !p.starts_with("--")).map_or(Ok(8080), |p| p.parse());
                o.serve = Some(port.map_err(|_| "--serve takes a port")?);
            }
            "--test" => {
                o.test = Some(std::iter::from_fn(|| rest.next_if(|m| !m.starts_with("--")).cloned()).collect());
            }
            "--full" => o.full = true,
            other => return Err(format!("unknown argument {other}; usage: cargo xtask page {HELP}")),
        }
    }
    Ok(o)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments() {
        let parse = |text: &str| options(&text.split_whitespace().map(String::from).collect::<Vec<_>>());
        assert_eq!(parse(""), Ok(Options::default()));
        let all = parse("--serve 9000 --test a b --toolchain d --full").expect("these are arguments");
        assert_eq!((all.serve, all.toolchain.as_deref(), all.full), (Some(9000), Some("d"), true));
        assert_eq!(all.test, Some(vec!["a".to_string(), "b".to_string()]));
        assert_eq!(parse("--serve").map(|o| o.serve), Ok(Some(8080)));
        assert!(parse("--serve x").is_err() && parse("model").is_err() && parse("--toolchain").is_err());
    }
}
