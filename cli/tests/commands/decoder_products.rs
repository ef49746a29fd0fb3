//! Decoders with weights of 4 bits keep them packed on every profile, and a step of one token has products for one row,
//! also where the length is open.
//!
//! `scripts/decoders.py packed tests/models/decoders` writes the files.

use crate::command;
use compiler::profile::DeviceProfile;
use serde_json::Value;
use std::collections::BTreeSet;

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
                // Products of the same rows may be one, whose weights are joined as they are packed.
                let origins = groups.iter().flat_map(|g| g["origins"].as_array().expect("origins"));
                let products: BTreeSet<&str> =
                    origins.filter_map(Value::as_str).filter(|o| o.contains("MatMulNBits")).collect();
                assert_eq!(products.len(), PRODUCTS, "{file} for {profile}, {sizes}");
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

/// The table of `tied` is a constant of the embedding, and of the logits behind a reshape. On a processor the product
/// reads panels of columns, and the embedding takes its rows out of these.
#[test]
fn a_tied_table_is_stored_once() {
    let file = format!("{}/tests/models/decoders/tied.onnx", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::metadata(&file).expect("the file").len() as f64;
    for profile in SOME {
        let on = if profile == "cpu" { "--device" } else { "--target" };
        let line = format!("compile {file} {on} {profile} {ONE_TOKEN} --json");
        let v = command::line(&line).run().succeeded().json();
        let weights = v["memory"]["weights"].as_u64().expect("bytes") as f64;
        assert!(weights <= 1.15 * bytes, "{profile}: {weights} of {bytes} bytes");
    }
    command::line(&format!("compare {file} --device cpu {ONE_TOKEN}")).run().succeeded();
}

/// Data of products that the model allows to be rounded to 8 bits is rounded on a processor, and said to be.
#[test]
fn rows_are_rounded_where_the_model_allows_it() {
    let text = "
const @w : u32[32,8] = random(1)
const @s : f32[32,2] = random(2)
graph @main(%x: f32[2,64]) -> (y: f32[2,32]) {
  %w = const @w
  %s = const @s
  %0 = dequantize_blocks %w, %s {block=32, size=64, rounds=true}
  %1 = transpose %0 {perm=[1, 0]}
  %2 = matmul %x, %1
  return %2
}
";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rounds.weft");
    std::fs::write(&file, text).expect("a file");
    let file = file.display();
    let said = command::line(&format!("compare {file} --device cpu")).run().succeeded();
    assert!(said.said().contains("rounded to 8 bits in blocks"), "{}", said.said());
    let exact = command::line(&format!("compare {file} --device cpu --disable-pass round-rows")).run().succeeded();
    assert!(!exact.said().contains("rounded"), "{}", exact.said());
}

/// A product of open rows with plain weights in the order `[k, n]` has kernels for one row where the estimate says that
/// they pay: all of its kernels read the constant in one order then, as it is or with the reduction innermost.
#[test]
fn one_row_of_plain_weights_has_kernels_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    for (k, n, dtype, profiles) in [
        (1024, 512, "f32", &["ada", "navi31", "dg2", "bmg", "apple", "baseline"][..]),
        (1024, 2816, "f32", &["ada", "navi31"]),
        (2816, 1024, "f16", &["ada", "dg2", "bmg", "baseline"]),
    ] {
        let text = format!(
            "const @w : {dtype}[{k},{n}] = random(1)
graph @main(%x: {dtype}[n,{k}]) -> (y: {dtype}[n,{n}]) {{
  %w = const @w
  %0 = matmul %x, %w
  return %0
}}
"
        );
        let file = folder.path().join(format!("{dtype}_{k}_{n}.weft"));
        std::fs::write(&file, text).expect("a file");
        for profile in profiles {
            let line = format!("explain {} --target {profile} --dim n=1..128 --json", file.display());
            let v = command::line(&line).run().succeeded().json();
            let kernel = v["groups"][0]["dispatches"][0]["kernel"].as_str().expect("a kernel");
            assert!(kernel.contains("[n<2]"), "{profile}, {dtype} {k} x {n}: {kernel}");
        }
    }
}

/// Convolutions read weights of 4 bits as they are packed.
#[test]
fn convolutions_decode_their_weights() {
    let text = "
const @w : u32[32,18] = random(1)
const @s : f32[32,1] = random(2)
graph @main(%x: f32[1,16,12,12]) -> (y: f32[1,32,12,12]) {
  %w = const @w
  %s = const @s
  %0 = dequantize_blocks %w, %s {block=144, size=144}
  %1 = reshape %0 {shape=[32, 3, 3, 16]}
  %2 = transpose %1 {perm=[0, 3, 1, 2]}
  %3 = conv %x, %2 {pads=[1, 1, 1, 1]}
  return %3
}
";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("packed.weft");
    std::fs::write(&file, text).expect("a file");
    for profile in SOME {
        let on = if profile == "cpu" { "--device" } else { "--target" };
        let line = format!("compile {} {on} {profile} --json", file.display());
        let v = command::line(&line).run().succeeded().json();
        assert_eq!(v["memory"]["weights"].as_u64(), Some(32 * 18 * 4 + 32 * 4), "{profile}");
    }
    command::line(&format!("compare {} --device cpu", file.display())).run().succeeded();
}
