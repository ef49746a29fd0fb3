//! Quirks of drivers: each is documented, and can be switched off by name.

use std::process::Command;

fn weft(args: &[&str]) -> (i32, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_weft")).args(args).output().expect("the command runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr);
    (out.status.code().unwrap_or(-1), text)
}

fn quirks() -> Vec<serde_json::Value> {
    let (code, text) = weft(&["devices", "--quirks", "--json", "-q"]);
    assert_eq!(code, 0, "{text}");
    let v: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    v["quirks"].as_array().expect("a list").clone()
}

#[test]
fn each_is_documented() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/drivers.md")).expect("the page");
    let missing: Vec<String> = quirks()
        .iter()
        .map(|q| format!("| `{}` |", q["name"].as_str().unwrap_or("")))
        .filter(|row| !page.contains(row))
        .collect();
    assert!(missing.is_empty(), "docs/drivers.md has no row {missing:?}");
}

/// A small network for a profile that has the quirk: other shaders, or none that this network has, but never an error.
#[test]
fn each_can_be_switched_off() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts/block.weft");
    for q in quirks() {
        let name = q["name"].as_str().expect("a name");
        let Some(profile) = q["profiles"][0].as_str() else { continue };
        let off = format!("{name}=off");
        let (code, text) = weft(&["compile", model, "--target", profile, "--amp", "fp16", "--quirk", &off, "-q"]);
        assert_eq!(code, 0, "{name} on {profile}: {text}");
    }
    let (code, text) = weft(&["compile", model, "--target", "navi31", "--quirk", "sink=off"]);
    assert!(code == 2 && text.contains("sinks-loads"), "{text}");
}

/// The prefetch of a product's next step stands under a condition because of `sinks-loads`.
#[test]
fn switching_one_off_changes_kernels_and_the_cache_key() {
    let with = |quirk: &[&str]| {
        let args = ["compile", "resnet18:smallest", "--target", "navi31", "--emit", "wgsl", "-q"];
        let (code, text) = weft(&[&args[..], quirk].concat());
        assert_eq!(code, 0, "{text}");
        text
    };
    let (on, off) = (with(&[]), with(&["--quirk", "sinks-loads=off"]));
    assert_ne!(on, off);
    assert_eq!(on, with(&["--quirk", "sinks-loads=on"]));
}
