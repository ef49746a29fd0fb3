//! Decoders with weights of 4 bits keep them packed on every profile, and a step of one token has products for one row,
//! also where the length is open.
//!
//! `scripts/decoders.py packed tests/models/decoders` writes the files.

use crate::command;
use compiler::profile::DeviceProfile;
use serde_json::Value;

/// Products of each file: four of attention, three behind it, and the logits.
const PRODUCTS: usize = 8;

/// Rules that take one element after another, which reads a word for each weight.
const ONE_BY_ONE: [&str; 3] = ["direct", "lanes", "loop-by-loop"];

/// Profiles for the forms that differ little from the first.
const SOME: [&str; 6] = ["baseline", "lavapipe", "navi31", "dg2", "ada", "cpu"];

const ONE_TOKEN: &str =
    "--dim batch_size=1 --dim sequence_length=1 --dim past_sequence_length=7 --dim total_sequence_length=8";
const OPEN: &str = "--dim batch_size=1 --dim sequence_length=1..128 --dim past_sequence_length=0..256 \
                    --dim total_sequence_length=1..384";

/// The groups that multiply packed weights.
fn packed_products(file: &str, profile: &str, sizes: &str) -> Vec<Value> {
    let file = format!("{}/tests/models/decoders/{file}.onnx", env!("CARGO_MANIFEST_DIR"));
    let on = if profile == "cpu" { "--device" } else { "--target" };
    let v = command::line(&format!("explain {file} {on} {profile} {sizes} --json")).run().succeeded().json();
    let multiplies = |g: &&Value| {
        let ops: Vec<&str> = g["ops"].as_array().expect("ops").iter().filter_map(Value::as_str).collect();
        ops.contains(&"dequantize_blocks") && ops.iter().any(|o| o.contains("matmul"))
    };
    v["groups"].as_array().expect("groups").iter().filter(multiplies).cloned().collect()
}

#[test]
fn weights_stay_packed_and_one_row_has_its_rules() {
    let named: Vec<String> = DeviceProfile::all().into_iter().map(|p| p.name).collect();
    let all: Vec<&str> = named.iter().map(String::as_str).chain(["cpu"]).collect();
    let files = [("zeros", &all[..]), ("halves", &SOME[..]), ("old", &SOME[..]), ("tied", &SOME[..])];
    for (file, profiles) in files {
        for profile in profiles {
            for sizes in [ONE_TOKEN, OPEN] {
                let groups = packed_products(file, profile, sizes);
                assert_eq!(groups.len(), PRODUCTS, "{file} for {profile}, {sizes}");
                for g in &groups {
                    let rule = g["rule"].as_str().expect("a rule");
                    assert!(!ONE_BY_ONE.contains(&rule), "{file} for {profile}, {sizes}: {g}");
                    // The kernels are for the least sizes: what one token runs.
                    let kernel = g["dispatches"][0]["kernel"].as_str().expect("a kernel");
                    let tiled = rule == "matmul-tiled" && !kernel.contains("[sequence_length<2]");
                    assert!(!tiled, "one row is a tile of many in {file} for {profile}, {sizes}: {g}");
                }
            }
        }
    }
}

/// The table of `tied` is a constant of the embedding, and of the logits behind a reshape. (A processor has it twice:
/// its product reads panels of columns, where the embedding reads rows.)
#[test]
fn a_tied_table_is_stored_once() {
    let file = format!("{}/tests/models/decoders/tied.onnx", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::metadata(&file).expect("the file").len() as f64;
    for profile in SOME.into_iter().filter(|p| *p != "cpu") {
        let line = format!("compile {file} --target {profile} {ONE_TOKEN} --json");
        let v = command::line(&line).run().succeeded().json();
        let weights = v["memory"]["weights"].as_u64().expect("bytes") as f64;
        assert!(weights <= 1.15 * bytes, "{profile}: {weights} of {bytes} bytes");
    }
}
