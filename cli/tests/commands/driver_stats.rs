//! Statistics of a device's compiler about kernels, and devices that compile but do not compute.
//!
//! Mesa's drivers for absent GPUs are such devices (`scripts/gpu/with-gpu.sh`). If their shims are not built, tests
//! that need them are skipped with a message.

use crate::command::{Ran, Weft, weft};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn model() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/block.weft").display().to_string()
}

/// The command on a GPU that is not there.
fn on(device: &str, arguments: &[&str]) -> Ran {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/gpu/with-gpu.sh");
    let command = Weft::of("bash").args([script.as_os_str()]).args([device, env!("CARGO_BIN_EXE_weft")]);
    command.args(arguments).env("WEFT_CACHE", folder("cache")).without("WEFT_DEVICE").run()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("driver-stats-{name}"))
}

#[test]
fn where_no_driver_can_be_asked() {
    let m = model();
    weft(["bench", &m, "--device", "interpreter", "--driver-stats"]).run().refused(5, "the interpreter has none");
    weft(["compile", &m, "--device", "interpreter", "--emit", "isa"]).run().refused(5, "the interpreter has none");
    weft(["compile", &m, "--target", "ada", "--emit", "isa"]).run().refused(2, "add --device");
}

/// Software drivers compile for the processor, and tell nothing.
#[test]
fn software_drivers_are_refused_with_the_reason() {
    let devices = weft(["devices", "--json"]).run().succeeded().json();
    let list = devices["devices"].as_array().expect("devices");
    let software = list.iter().find(|d| d["type"] == "cpu" && d["backend"] == "vulkan");
    let Some(index) = software.and_then(|d| d["index"].as_u64()) else {
        eprintln!("LEFT OUT: no software Vulkan driver here");
        return;
    };
    let n = index.to_string();
    for line in [["compile", "--emit", "isa"].as_slice(), &["bench", "--driver-stats"]] {
        let ran = weft([line, &[&model(), "--device", &n]].concat()).run();
        ran.refused(5, "its driver lacks VK_KHR_pipeline_executable_properties");
    }
}

#[test]
fn devices_that_do_not_compute() {
    if std::env::var_os("WEFT_GPU_SHIMS").is_none() {
        eprintln!(
            "LEFT OUT: WEFT_GPU_SHIMS is not set, so there are no drivers of GPUs that are not here (scripts/gpu/with-gpu.sh)"
        );
        return;
    }
    let m = model();
    for device in ["navi31", "bmg", "ada"] {
        let out = folder(device);
        let _ = std::fs::remove_dir_all(&out);
        let dir = out.display().to_string();
        let compiled = on(device, &["compile", &m, "--device", "0", "--emit", "isa", "--emit-dir", &dir, "--json"]);
        let compiled = compiled.succeeded().json();
        let kernels = compiled["kernels"].as_array().expect("kernels");
        assert!(!kernels.is_empty());
        for k in kernels {
            let file = out.join(format!("{}.isa", k["file"].as_str().expect("a file")));
            assert!(std::fs::metadata(&file).is_ok_and(|f| f.len() > 0), "{device}: {}", file.display());
        }
        assert_eq!(std::fs::read_dir(&out).expect("the folder").count(), kernels.len());
        every_kernel_is_counted(device, &compiled);

        for verb in ["run", "bench", "compare"] {
            on(device, &[verb, &m, "--device", "0"]).refused(5, "does not compute");
        }
        let stats = on(device, &["bench", &m, "--device", "0", "--driver-stats", "--json"]).succeeded().json();
        assert!(stats["not_timed"].as_str().is_some_and(|w| w.contains("does not compute")), "{stats}");
        assert!(stats["latency_ms"].is_null() && stats["per_kernel"].is_null(), "{stats}");
        assert_eq!(stats["driver_stats"]["kernels"].as_array().map(Vec::len), Some(kernels.len()));
        on(device, &["bench", &m, "--device", "0", "--driver-stats", "--ceilings"]).refused(5, "does not compute");
        on(device, &["devices"]).succeeded();
    }
}

/// Each kernel has an executable with code and a latency, and with registers as its maker counts them.
fn every_kernel_is_counted(device: &str, compiled: &Value) {
    let list = compiled["driver_stats"]["kernels"].as_array().expect("a list");
    for (k, own) in compiled["kernels"].as_array().expect("kernels").iter().zip(list) {
        assert_eq!((&k["name"], &k["file"]), (&own["name"], &own["file"]));
        for e in own["executables"].as_array().filter(|l| !l.is_empty()).expect("executables") {
            let registers = if device == "bmg" { "live_registers" } else { "registers" };
            for figure in [registers, "code_bytes", "instructions", "latency_cycles", "subgroup_size"] {
                assert!(e[figure].as_u64() > Some(0), "{device}: {figure} of {own}");
            }
            assert!(e["spills"].is_number() && !e["statistics"].as_array().expect("a list").is_empty());
            assert!(e["isa"].as_str().is_some_and(|t| !t.is_empty()));
        }
    }
}
