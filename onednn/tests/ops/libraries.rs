//! The libraries that are tested: the system's, and version 3 from a wheel.

use compiler::external::{ExternalTarget, TargetOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A wheel with version 3 of the library, which needs no other package.
const WHEEL: &str = "onednn-cpu-gomp==2023.2.0";

/// The targets with their options: each library in each style that it has.
pub fn externals() -> Vec<String> {
    let mut list = vec![];
    if has_second() {
        list.push("dnnl:min_macs=0".to_string());
        list.push("dnnl:min_macs=0:threads=2".to_string());
        list.push("dnnl:min_macs=0:style=c".to_string());
    }
    static THIRD: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    match THIRD.get_or_init(third) {
        Ok(path) => {
            let option = format!("library={}", path.display());
            assert!(opens(&option), "{option} is there, and does not open");
            list.push(format!("dnnl:min_macs=0:{option}"));
        }
        Err(why) => eprintln!("SKIPPED: version 3 of the library: {why}"),
    }
    list
}

/// Whether version 2 is here; says loudly if it is not.
pub fn has_second() -> bool {
    let has = opens("") && opens("style=c");
    if !has {
        eprintln!("SKIPPED: version 2 of the library: there is no libdnnl.so.2 (on Debian the package libdnnl2)");
    }
    has
}

fn opens(options: &str) -> bool {
    let target = &onednn::TARGET;
    let options = TargetOptions::parse("dnnl", target.options(), options).expect("options");
    target.check(&options).is_ok()
}

/// Version 3: fetched once.
fn third() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("onednn-3");
    let library = folder.join("onednn_cpu_gomp-2023.2.0.data/data/lib/libdnnl.so.3");
    if library.is_file() {
        return Ok(library);
    }
    std::fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let place = folder.to_str().ok_or("a folder without a name")?;
    ran("python3", &["-m", "pip", "download", WHEEL, "--no-deps", "--quiet", "-d", place])
        .or_else(|_| ran("pip3", &["download", WHEEL, "--no-deps", "--quiet", "-d", place]))?;
    let wheel = std::fs::read_dir(&folder)
        .map_err(|e| e.to_string())?
        .filter_map(|e| Some(e.ok()?.path()))
        .find(|p| p.extension().is_some_and(|e| e == "whl"))
        .ok_or("pip left no wheel")?;
    // Unpacked beside it: a test that runs at the same time finds all of it or nothing.
    let part = tempfile::tempdir_in(&folder).map_err(|e| e.to_string())?;
    let to = part.path().to_str().ok_or("a folder without a name")?;
    ran("python3", &["-m", "zipfile", "-e", wheel.to_str().ok_or("a file without a name")?, to])?;
    let data = "onednn_cpu_gomp-2023.2.0.data";
    if let Err(e) = std::fs::rename(part.path().join(data), folder.join(data))
        && !library.is_file()
    {
        return Err(e.to_string());
    }
    Ok(library)
}

fn ran(program: &str, args: &[&str]) -> Result<(), String> {
    let out = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    match out.status.success() {
        true => Ok(()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&out.stderr).trim())),
    }
}
