//! Bundles: one file for several devices, run elsewhere without the model; damaged files; devices that it has no plan for.

use crate::command::{Ran, has_adapter, line};
use compiler::compile::{CompileOptions, compile};
use compiler::cost::code_digest;
use compiler::profile::DeviceProfile;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The last bytes of a bundle: offset, length and checksum of the index, and a mark.
const TRAILER: usize = 28;

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bundles-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn run(at: &Path, words: &str) -> Ran {
    line(words).at(at).env("WEFT_CACHE", "off").run()
}

fn succeeds(at: &Path, words: &str) -> Ran {
    run(at, words).succeeded()
}

fn refused(at: &Path, words: &str, code: i32, why: &str) {
    run(at, words).refused(code, why);
}

/// The devices that are here: `cpu`, and a driver if there is one.
fn devices() -> Vec<&'static str> {
    if has_adapter() { vec!["cpu", "0"] } else { vec!["cpu"] }
}

/// What a run printed of its results, and its times.
fn results(at: &Path, words: &str) -> (String, String) {
    let ran = succeeds(at, words);
    (ran.stdout, ran.stderr)
}

#[test]
fn a_bundle_runs_elsewhere_without_the_model() {
    let (at, away) = (folder("made"), folder("moved"));
    succeeds(&at, "export squeezenet1_1:smallest -o net.onnx");
    succeeds(&at, "compile net.onnx -o net.bundle --for ada,navi31,bmg,lavapipe,cpu");
    // The content says what it is, not the name.
    std::fs::rename(at.join("net.bundle"), away.join("network")).expect("moves");
    for device in devices() {
        let model = results(&at, &format!("run net.onnx --device {device} -v"));
        let bundle = results(&away, &format!("run network --device {device} -v --require-compiled"));
        assert_eq!(model.0, bundle.0);
        assert!(model.1.contains("passes") && model.1.contains("scheduling"), "{}", model.1);
        assert!(!bundle.1.contains("passes") && !bundle.1.contains("scheduling"), "{}", bundle.1);
        succeeds(&away, &format!("bench network --device {device} --runs 2 --warmup 1"));
    }
    // The weights are packed in the file, and the interpreter reads them as they were.
    let [model, bundle] = ["net.onnx", "network"]
        .map(|n| results(if n == "network" { &away } else { &at }, &format!("run {n} --device interpreter")).0);
    assert_eq!(model, bundle);
    let explained = results(&away, "explain network --target bmg -q").0;
    assert!(explained.starts_with("net for bmg ("), "{explained}");
    refused(&away, "explain network --target hopper", 5, "there are: ada, navi31, bmg, lavapipe, cpu");
}

#[test]
fn plans_are_those_of_a_compilation_and_weights_stand_once() {
    let at = folder("digests");
    let profiles = ["ada", "navi31", "lavapipe", "cpu"];
    succeeds(&at, &format!("compile squeezenet1_1:smallest -o all.bundle --for {}", profiles.join(",")));
    let all = succeeds(&at, "inspect all.bundle --json").json();
    for (i, name) in profiles.iter().enumerate() {
        let module = benches::zoo::build("squeezenet1_1:smallest", 1, 0).expect("a network");
        let profile = match *name {
            "cpu" => weft::Device::cpu(0).expect("the processor").profile(),
            name => DeviceProfile::named(name).expect("a profile"),
        };
        let emitter = weft::emitter(&profile);
        let c = compile(module, &CompileOptions::default(), &profile, emitter, &mut |_, _, _| ()).expect("compiles");
        let entry = &all["entries"][i];
        assert_eq!((&entry["profile"], &entry["digest"]), (&(*name).into(), &code_digest(&c.plan).to_string().into()));
        let [weights, own] = ["weights", "own_weights"].map(|key| entry[key].as_u64().expect("bytes"));
        assert_eq!(entry["is_read"], true);
        assert!(if i == 0 { own == weights } else { own < weights }, "{name}: {entry:#}");
    }
    let sum = |list: &Value, key: &str, of: &dyn Fn(&Value) -> bool| -> u64 {
        list.as_array().expect("a list").iter().filter(|v| of(v)).map(|v| v[key].as_u64().expect("bytes")).sum()
    };
    let parts = sum(&all["parts"], "bytes", &|p| p["kind"] == "constant");
    assert_eq!(parts, sum(&all["entries"], "own_weights", &|_| true), "{all:#}");
    succeeds(&at, "compile squeezenet1_1:smallest -o one.bundle --for ada");
    let one = succeeds(&at, "inspect one.bundle --json").json();
    let bytes = |v: &Value| v.as_u64().expect("bytes");
    let (weights, plan) = (bytes(&one["entries"][0]["weights"]), bytes(&one["entries"][0]["plan"]));
    assert!(weights > 4_000_000 && bytes(&one["bytes"]) <= weights * 11 / 10 + plan, "{one:#}");
}

#[test]
fn calls_loops_host_steps_and_open_sizes_are_kept() {
    let at = folder("forms");
    let texts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut models: Vec<(String, &str)> = ["loop", "recursion", "closures", "called"]
        .map(|name| (texts.join(format!("{name}.weft")).display().to_string(), ""))
        .to_vec();
    models.push(("encoder:smallest".into(), " --dim batch=1..4 --dim sequence=4..32"));
    models.push(("squeezenet1_1:smallest".into(), " --amp fp16"));
    for (model, options) in &models {
        succeeds(&at, &format!("compile {model} -o m.bundle --for cpu,lavapipe{options}"));
        for device in devices() {
            let plain = results(&at, &format!("run {model} --device {device}{options}")).0;
            let bundle = results(&at, &format!("run m.bundle --device {device} -v --require-compiled"));
            assert_eq!(plain, bundle.0, "{model} on {device}");
            assert!(!bundle.1.contains("scheduling"), "{model} on {device}: {}", bundle.1);
        }
    }
    let found = format!("compile {} -o f.bundle --for cpu", texts.join("found.weft").display());
    refused(&at, &found, 4, "the model has none before a run");
    assert!(!at.join("f.bundle").exists());
}

#[test]
fn a_device_without_a_plan_compiles_or_is_refused() {
    let at = folder("anew");
    succeeds(&at, "compile squeezenet1_1:smallest -o ada.bundle --for ada");
    let model = results(&at, "run squeezenet1_1:smallest --device cpu").0;
    let anew = results(&at, "run ada.bundle --device cpu");
    assert_eq!(model, anew.0);
    assert!(anew.1.contains("bundle: compiling, since no plan suits"), "{}", anew.1);
    let why = "no plan suits cpu (ada: its processor has other registers)";
    refused(&at, "run ada.bundle --device cpu --require-compiled", 5, why);
    refused(&at, "run squeezenet1_1:smallest --device cpu --require-compiled", 2, "");
    // Kernels that another build has made in another form.
    succeeds(&at, "compile squeezenet1_1:smallest -o cpu.bundle --for cpu");
    let bytes = std::fs::read(at.join("cpu.bundle")).expect("reads");
    let other = with_index(&bytes, |index| index["entries"][0]["form"] = "plan 0, tensor function 0".into());
    std::fs::write(at.join("old.bundle"), other).expect("writes");
    let anew = results(&at, "run old.bundle --device cpu");
    assert_eq!(model, anew.0);
    assert!(anew.1.contains("the kernels for cpu were made by another build (plan 0"), "{}", anew.1);
    let inspected = results(&at, "inspect old.bundle").0;
    assert!(inspected.contains("cpu: this build does not read its kernels (plan 0"), "{inspected}");
    assert!(!results(&at, "inspect cpu.bundle").0.contains("does not read"));
    refused(&at, "run old.bundle --device cpu --require-compiled", 5, "");
}

/// A network with kernels, host steps (doubles), a branch and a constant that is packed.
const MIXED: &str = "const @w : f32[32,48] = random(1)
const @v : f64[48] = random(2)
graph @main(%x: f32[8,32], %c: bool[]) -> (y: f32[8,48], z: f64[8,48]) {
  %w = const @w : f32[32,48]
  %v = const @v : f64[48]
  %0 = matmul %x, %w : f32[8,48]
  %1 = softmax %0 {axes=[1]} : f32[8,48]
  %2 = if %c : f32[8,48] {
    %3 = relu %1 : f32[8,48]
    yield %3
  } {
    %4 = neg %1 : f32[8,48]
    yield %4
  }
  %5 = cast %2 {to=f64} : f64[8,48]
  %6 = add %5, %v : f64[8,48]
  %7 = cumsum %6 {axis=1} : f64[8,48]
  return %2, %7
}
";

/// The file with one bit of a plan changed, and checksums that are right.
fn with_flipped_bit(bytes: &[u8], place: u64) -> Vec<u8> {
    let mut forged = bytes.to_vec();
    let index = with_index(bytes, |index| {
        let plan = index["entries"][0]["plan"].as_u64().expect("a plan") as usize;
        let part = &mut index["parts"][plan];
        let [offset, size] = ["offset", "bytes"].map(|key| part[key].as_u64().expect("a number") as usize);
        let bit = (place % (8 * size as u64)) as usize;
        forged[offset + bit / 8] ^= 1 << (bit % 8);
        part["crc32"] = crc32fast::hash(&forged[offset..offset + size]).into();
    });
    // The parts are in front of the index, whose length may have changed.
    let parts = index_at(bytes);
    [&forged[..parts], &index[parts..]].concat()
}

/// Whoever makes checksums that are right gets an error of the file, or results, never an error of Weft's.
#[test]
fn a_forged_plan_is_an_error_of_the_file() {
    let at = folder("forged");
    std::fs::write(at.join("net.weft"), MIXED).expect("writes");
    for device in devices() {
        let profile = if device == "cpu" { "cpu" } else { "lavapipe" };
        succeeds(&at, &format!("compile net.weft -o net.bundle --for {profile}"));
        let bytes = std::fs::read(at.join("net.bundle")).expect("reads");
        let (mut place, mut refused) = (0x2545_f491_4f6c_dd1d_u64, 0);
        for n in 0..48 {
            place ^= place << 13;
            place ^= place >> 7;
            place ^= place << 17;
            std::fs::write(at.join("forged.bundle"), with_flipped_bit(&bytes, place)).expect("writes");
            let ran = run(&at, &format!("run forged.bundle --device {device}"));
            assert!(matches!(ran.code, Some(0 | 3 | 4)), "flip {n} on {device}: {:?}\n{}", ran.code, ran.said());
            refused += usize::from(ran.code != Some(0));
        }
        assert!(refused > 4, "{refused} of 48 are refused on {device}");
    }
}

/// A loop of 2^31 iterations gets one bit of its number changed, so that it has 19 milliards.
#[test]
fn a_forged_loop_is_refused() {
    let at = folder("forged-loop");
    let text = "graph @main(%x: f32[4]) -> (y: f32[4]) {
  %y = loop _, _, %x {trips=2147483648} : f32[4] (%i: i64[], %a: f32[4]) {
    %1 = sin %a : f32[4]
    yield %1
  }
  return %y
}
";
    std::fs::write(at.join("net.weft"), text).expect("writes");
    for profile in ["cpu", "lavapipe"] {
        succeeds(&at, &format!("compile net.weft -o net.bundle --for {profile}"));
        let bytes = std::fs::read(at.join("net.bundle")).expect("reads");
        let index: serde_json::Value =
            serde_json::from_slice(&bytes[index_at(&bytes)..bytes.len() - TRAILER]).expect("JSON");
        let part = &index["parts"][index["entries"][0]["plan"].as_u64().expect("a plan") as usize];
        let offset = part["offset"].as_u64().expect("a number") as usize;
        let number = bytes[offset..].windows(5).position(|w| w == [0x80, 0x80, 0x80, 0x80, 8]).expect("the number");
        std::fs::write(at.join("forged.bundle"), with_flipped_bit(&bytes, 8 * (number as u64 + 4) + 6))
            .expect("writes");
        let device = if profile == "cpu" { "cpu" } else { "0" };
        if devices().contains(&device) {
            let said = run(&at, &format!("run forged.bundle --device {device}")).ended(3).said();
            assert!(said.contains("a loop without a condition has 4294967296 iterations or more"), "{said}");
        }
    }
}

/// `tests/bundles` says how the bundle was made.
#[test]
fn a_bundle_of_an_earlier_build_is_read() {
    let there = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundles");
    let listed = succeeds(&there, "inspect earlier.bundle --json").json();
    for (device, profile) in devices().into_iter().zip(["cpu", "lavapipe"]) {
        let entry = listed["entries"].as_array().expect("entries").iter().find(|e| e["profile"] == profile);
        let is_read = entry.expect("the profile")["is_read"] == true;
        let model = numbers(&results(&there, &format!("run net.weft --device {device}")).0);
        let (text, said) = results(&there, &format!("run earlier.bundle --device {device} -v"));
        // A machine without these registers or this driver has no plan in it.
        let suits = !said.contains("no plan suits");
        assert_eq!(said.contains("bundle: compiling"), !suits || !is_read, "{said}");
        assert_eq!(said.contains("scheduling"), !suits || !is_read, "{said}");
        // The kernels of then need not add up in the order of today's.
        let bundle = numbers(&text);
        assert_eq!(model.len(), bundle.len());
        assert!(model.iter().zip(&bundle).all(|(a, b)| (a - b).abs() <= 2e-3), "{model:?} {bundle:?}");
        assert!(model.len() >= 3 && model.iter().any(|v| *v > 0.1), "{text}");
    }
    let explained = results(&there, "explain earlier.bundle --target lavapipe -q").0;
    assert!(explained.contains("for lavapipe"), "{explained}");
}

/// The numbers with a point in the table of results that a run prints.
fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().filter(|w| w.contains('.')).filter_map(|w| w.parse().ok()).collect()
}

#[test]
fn options_of_a_compilation_are_refused() {
    let at = folder("options");
    succeeds(&at, "compile squeezenet1_1:smallest -o net.bundle --for cpu");
    refused(&at, "run net.bundle --device cpu --amp fp16", 2, "--amp does not apply to net.bundle");
    refused(&at, "run net.bundle --device cpu --dump x", 2, "--dump");
    refused(&at, "compile net.bundle --device cpu", 3, "net.bundle is a bundle");
    refused(&at, "compile squeezenet1_1:smallest --for cpu --device cpu", 2, "-o F.bundle");
    let ran = run(&at, "compile squeezenet1_1:smallest -o x.bundle --for nothing").refused(5, "no profile `nothing`");
    assert!(ran.stderr.contains("apple, cpu"), "{}", ran.stderr);
    refused(&at, "compile squeezenet1_1:smallest --licence x --device cpu", 2, "--licence is for a bundle");
    refused(&at, "run squeezenet1_1:smallest --allow-native --device cpu", 2, "");
    refused(&at, "compile squeezenet1_1:smallest -o x.bundle --for cpu --emit wgsl", 2, "");
    assert!(!at.join("x.bundle").exists());
}

#[test]
fn the_licence_is_kept() {
    let at = folder("licence");
    succeeds(&at, "compile squeezenet1_1:smallest -o none.bundle --for cpu");
    assert!(succeeds(&at, "inspect none.bundle --json").json()["licence"].is_null());
    std::fs::write(at.join("LICENCE"), "\nYou may.\nIn full.\n").expect("writes");
    succeeds(&at, "compile squeezenet1_1:smallest -o net.bundle --for cpu --licence LICENCE");
    assert_eq!(succeeds(&at, "inspect net.bundle --json").json()["licence"], "\nYou may.\nIn full.\n");
    assert!(results(&at, "inspect net.bundle").0.contains("licence: You may. (--json has the text)"));
    refused(&at, "compile squeezenet1_1:smallest -o x.bundle --for cpu --licence none", 3, "--licence none: ");
    // What an ONNX file says of it: field 14 holds pairs of a key and a value.
    succeeds(&at, "export squeezenet1_1:smallest -o net.onnx");
    let mut bytes = std::fs::read(at.join("net.onnx")).expect("reads");
    bytes.extend(b"\x72\x0e\x0a\x07License\x12\x03MIT");
    std::fs::write(at.join("net.onnx"), bytes).expect("writes");
    succeeds(&at, "compile net.onnx -o onnx.bundle --for cpu");
    assert_eq!(succeeds(&at, "inspect onnx.bundle --json").json()["licence"], "MIT");
}

/// The target `c` has a compiler build what it runs, and the bundle says which compiler.
#[cfg(target_os = "linux")]
#[test]
fn code_of_the_machine_is_run_where_it_is_allowed() {
    let at = folder("native");
    succeeds(&at, "compile squeezenet1_1:smallest -o c.bundle --for cpu --external c");
    assert_eq!(succeeds(&at, "inspect c.bundle --json").json()["native"], serde_json::json!(["c"]));
    let ran = run(&at, "run c.bundle --device cpu").refused(2, "runs code of this machine through c");
    assert!(ran.stderr.contains("--allow-native"), "{}", ran.stderr);
    let allowed = results(&at, "run c.bundle --device cpu --allow-native").0;
    assert_eq!(results(&at, "run squeezenet1_1:smallest --device cpu --external c").0, allowed);
    // The interpreter runs the regions' references, and the target `interpreter` is no code of the machine.
    succeeds(&at, "run c.bundle --device interpreter");
    succeeds(&at, "compile squeezenet1_1:smallest -o i.bundle --for cpu --external interpreter:ops=relu");
    assert_eq!(succeeds(&at, "inspect i.bundle --json").json()["native"], serde_json::json!([]));
    succeeds(&at, "run i.bundle --device cpu");
}

/// Where the index begins.
fn index_at(bytes: &[u8]) -> usize {
    let trailer = &bytes[bytes.len() - TRAILER..];
    u64::from_le_bytes(trailer[..8].try_into().expect("8 bytes")) as usize
}

/// The bundle with another index, whose checksum is right.
fn with_index(bytes: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let (trailer, offset) = (&bytes[bytes.len() - TRAILER..], index_at(bytes));
    let mut index = serde_json::from_slice(&bytes[offset..bytes.len() - TRAILER]).expect("an index");
    change(&mut index);
    let index = serde_json::to_vec(&index).expect("JSON");
    let mut out = bytes[..offset].to_vec();
    out.extend_from_slice(&index);
    out.extend_from_slice(&(offset as u64).to_le_bytes());
    out.extend_from_slice(&(index.len() as u64).to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(&index).to_le_bytes());
    out.extend_from_slice(&trailer[20..]);
    out
}

#[test]
fn damage_is_found_in_every_part() {
    let at = folder("damage");
    succeeds(&at, "compile squeezenet1_1:smallest -o net.bundle --for lavapipe,cpu");
    let whole = std::fs::read(at.join("net.bundle")).expect("reads");
    let index = succeeds(&at, "inspect net.bundle --json").json();
    let says = |bytes: &[u8], words: &str| {
        std::fs::write(at.join("bad.bundle"), bytes).expect("writes");
        refused(&at, "inspect bad.bundle", 3, words);
    };
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        bytes
    };
    let parts = index["parts"].as_array().expect("parts");
    assert!(parts.iter().any(|p| p["kind"] == "constant") && parts.len() > 20);
    for p in parts {
        let (offset, bytes) = (p["offset"].as_u64().expect("offset"), p["bytes"].as_u64().expect("bytes"));
        let words = format!("its part `{}` of {} is damaged", p["kind"].as_str().unwrap(), p["name"].as_str().unwrap());
        says(&flipped((offset + bytes / 2) as usize), &words);
    }
    // A run finds it too, in the parts that it reads.
    let plan = parts.iter().find(|p| p["kind"] == "plan" && p["name"] == "cpu").expect("a plan");
    std::fs::write(at.join("bad.bundle"), flipped(plan["offset"].as_u64().unwrap() as usize)).expect("writes");
    refused(&at, "run bad.bundle --device cpu", 3, "its part `plan` of cpu is damaged");
    // The last one is of the kernels of the last profile.
    let constant = parts.iter().rfind(|p| p["kind"] == "constant").expect("a constant");
    std::fs::write(at.join("bad.bundle"), flipped(constant["offset"].as_u64().unwrap() as usize)).expect("writes");
    refused(&at, "run bad.bundle --device cpu", 3, "its part `constant` of");
    // The index, its trailer, the version, the beginning.
    let end = whole.len();
    says(&flipped(end - TRAILER - 5), "the index of the bundle is damaged");
    for byte in end - TRAILER..end - 8 {
        says(&flipped(byte), "the index of the bundle is damaged");
    }
    says(&flipped(end - 3), "the bundle is truncated");
    let mut later = whole.clone();
    later[8] = 9;
    says(&later, "the bundle has version 9, this build reads version 1");
    says(&whole[..end / 2], "the bundle is truncated");
    says(&whole[..10], "this is no bundle");
    says(&flipped(3), "ONNX");
    // Parts that are missing.
    says(&with_index(&whole, |i| drop(i["parts"].as_array_mut().expect("parts").pop())), "is missing");
    says(&with_index(&whole, |i| i["parts"][2]["offset"] = (end as u64).into()), "is missing: the file ends before it");
    says(&with_index(&whole, |i| i["parts"][2]["bytes"] = u64::MAX.into()), "is missing: the file ends before it");
}
