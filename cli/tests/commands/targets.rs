//! Compiles for other devices and by requested rules, and runs the result on the present device.

use crate::command::weft;
use std::path::PathBuf;

fn block() -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/block.weft").display().to_string()
}

fn json(args: &[&str]) -> serde_json::Value {
    weft(args).run().succeeded().json()
}

/// The rules of a compilation's groups.
fn rules(compiled: &serde_json::Value) -> Vec<&str> {
    let groups = compiled["groups"].as_array().expect("groups");
    groups.iter().filter_map(|g| g["rule"].as_str()).collect()
}

#[test]
fn schedules_of_every_profile_run_on_the_device_that_is_here() {
    let profiles = json(&["devices", "--profiles", "--json"]);
    let names = profiles["profiles"].as_array().expect("profiles").iter().filter_map(|p| p["name"].as_str());
    for name in names {
        let found = json(&["compare", &block(), "--target", name, "--device", "0", "--json"]);
        assert_eq!(found["pass"], true, "{name}");
        assert!(found["device"]["name"] != "interpreter", "{name}");
    }
}

#[test]
fn a_rule_asked_for_by_name_takes_what_it_can() {
    let plain = json(&["compile", &block(), "--target", "lavapipe", "--json"]);
    assert!(!rules(&plain).contains(&"matmul-tiled"), "{plain}");
    for rule in ["matmul-tiled", "direct", "elementwise,direct"] {
        let asked = json(&["compile", &block(), "--target", "lavapipe", "--rules", rule, "--json"]);
        let first = rule.split(',').next_back().expect("a rule");
        assert!(rules(&asked).contains(&first), "{rule}: {:?}", rules(&asked));
        let found = json(&["compare", &block(), "--device", "0", "--rules", rule, "--json"]);
        assert_eq!(found["pass"], true, "{rule}");
    }
}

#[test]
fn an_unknown_rule_is_refused_with_the_list() {
    let asked = weft(["compile", &block(), "--target", "lavapipe", "--rules", "matmul-tilde"]);
    let said = asked.run().refused(2, "matmul-tilde").stderr;
    assert!(said.contains("matmul-tiled") && said.contains("rows"), "{said}");
}

#[test]
fn a_target_named_with_a_device_is_limited_to_it() {
    let alone = json(&["compile", &block(), "--target", "hopper", "--json"]);
    assert_eq!(alone["profile"], "hopper");
    let both = json(&["compile", &block(), "--target", "hopper", "--device", "0", "--json"]);
    assert!(both["profile"].as_str().is_some_and(|p| p.starts_with("hopper on ")), "{}", both["profile"]);
    // Those of a GPU, not of the software device that runs them.
    assert_eq!(rules(&both), rules(&alone));
    let here = json(&["compile", &block(), "--target", "lavapipe", "--json"]);
    assert_ne!(rules(&both), rules(&here));
}

/// The instruction set of the processor is a part of its name.
#[test]
fn an_instruction_set_is_asked_for_by_name() {
    let found = json(&["compare", &block(), "--device", "cpu:portable", "--json"]);
    assert_eq!(found["pass"], true, "{found}");
    assert!(found["device"]["driver"].as_str().is_some_and(|d| d.contains("portable")), "{found}");
    let message = "no instruction set has the name `cpu:mmx`; there are cpu:avx512, cpu:avx2, cpu:neon, cpu:portable";
    weft(["run", &block(), "--device", "cpu:mmx"]).run().refused(5, message);
}
