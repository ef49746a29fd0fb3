//! Quirks of drivers: each is documented, and can be switched off by name.

use crate::command::weft;

fn quirks() -> Vec<serde_json::Value> {
    let v = weft(["devices", "--quirks", "--json", "-q"]).run().succeeded().json();
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

/// The zoo in small, of which each quirk gets some.
const ZOO: [&str; 8] = [
    "resnet18:smallest",
    "mobilenet_v2:smallest",
    "vit_b_16:smallest",
    "efficientnet_b0:smallest",
    "unet:smallest",
    "squeezenet1_1:smallest",
    "densenet121:smallest",
    "mobilenet_v3_small:smallest",
];

/// How many networks each quirk gets: with those of its neighbours in the table all of the zoo.
const FOR_EACH: usize = 3;

/// Networks of the zoo for a profile that has the quirk, or where none has it, for one that it is switched on for:
/// other shaders, or the same where the network has nothing of the kind, but never an error.
#[test]
fn each_can_be_switched_off() {
    for (i, q) in quirks().iter().enumerate() {
        let name = q["name"].as_str().expect("a name");
        let (profile, states) = match q["profiles"][0].as_str() {
            Some(profile) => (profile, &["off"][..]),
            None => ("lavapipe", &["on", "off"][..]),
        };
        for model in ZOO.iter().cycle().skip(i * FOR_EACH).take(FOR_EACH) {
            for state in states {
                let quirk = format!("{name}={state}");
                weft(["compile", model, "--target", profile, "--amp", "fp16", "--quirk", &quirk, "-q"])
                    .run()
                    .succeeded();
            }
        }
    }
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts/block.weft");
    weft(["compile", model, "--target", "navi31", "--quirk", "sink=off"]).run().refused(2, "sinks-loads");
}

/// The prefetch of a product's next step stands under a condition because of `sinks-loads`.
#[test]
fn switching_one_off_changes_kernels_and_the_cache_key() {
    let with = |quirk: &[&str]| {
        let args = ["compile", "squeezenet1_1", "--target", "navi31", "--emit", "wgsl", "-q"];
        weft(args).args(quirk).run().succeeded().stdout
    };
    let (on, off) = (with(&[]), with(&["--quirk", "sinks-loads=off"]));
    assert_ne!(on, off);
    assert_eq!(on, with(&["--quirk", "sinks-loads=on"]));
}
