//! Networks of open sizes from exporters: one compilation, and results equal to ONNX Runtime's at several sizes.
//!
//! `tests/models/open` has for each network `model.onnx` and folders of inputs and results, in the form of ONNX's own
//! test cases. The networks are those of published models in small, with random weights: a sentence encoder with mean
//! pooling, BERT with token types, a decoder with rotary embeddings, grouped heads and a cache of keys and values that
//! begins empty, the skips of a detector's neck, a recurrent loop as Keras exports it.

use crate::command;
use std::path::{Path, PathBuf};

/// Each network with the ranges of its dimensions.
const NETWORKS: [(&str, &[&str]); 15] = [
    ("encoder", &["batch=1..4", "sequence=1..64"]),
    ("token_types", &["batch=1..4", "sequence=1..64"]),
    ("decoder_cache", &["batch=1..4", "sequence=1..32", "past=0..64", "total=1..96"]),
    ("neck", &["batch=1..2", "height=8..64:4", "width=8..64:4"]),
    ("counted_loop", &["steps=1..64", "batch=1..4"]),
    ("counted_loop_limit", &["steps=1..64", "batch=1..4"]),
    ("empty_cache", &["p=0..8"]),
    ("expand_where", &["t=1..64"]),
    ("expand_constant_of_shape", &["t=1..64"]),
    ("scaled_up", &["h=1..64", "w=1..64"]),
    ("scaled_down", &["h=2..64", "w=2..64"]),
    ("split_shape", &["n=1..8", "t=1..64"]),
    ("padded_to_multiples", &["h=1..64", "w=1..64"]),
    ("loop_over_rows", &["t=1..64"]),
    ("align_corners", &["H=1..32", "W=1..32", "h=1..16", "w=1..16"]),
];

fn folder(network: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/models/open").join(network)
}

fn weft(verb: &str, network: &str, ranges: &[&str], more: &[&str]) -> command::Ran {
    let command = command::weft([verb]).args([folder(network).join("model.onnx")]);
    command.args(ranges.iter().flat_map(|range| ["--dim", range])).args(more).run()
}

fn is_case(path: &Path) -> bool {
    path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("test_data_set_"))
}

/// The sizes that a network has cases for.
fn cases(network: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder(network)).expect("the folder is there");
    let mut list: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).filter(|p| is_case(p)).collect();
    list.sort();
    list
}

#[test]
fn one_compilation_is_right_at_each_size() {
    for (network, ranges) in NETWORKS {
        let compiled = weft("compile", network, ranges, &["--target", "lavapipe", "--json"]);
        let json = compiled.succeeded().json();
        assert!(json.get("parts").is_none(), "{network}: {}", json["parts"]);
        let cases = cases(network);
        assert!(cases.len() >= 3, "{network}");
        for case in cases {
            let dir = case.to_str().expect("a path");
            for device in [&[][..], &["--device", "interpreter"]] {
                let out = weft("run", network, ranges, &[&["--test-dir", dir], device].concat());
                let said = out.succeeded().stdout;
                assert!(said.starts_with("pass"), "{network} {dir}: {said}");
            }
        }
    }
}

#[test]
fn a_size_that_the_model_does_not_take_names_the_node() {
    // Half of 9, rounded up and doubled again, is not 9: the skip does not fit.
    let ranges = ["batch=1..2", "height=8..64", "width=8..64"];
    weft("compile", "neck", &ranges, &["--target", "lavapipe"]).succeeded();
    let dir = folder("neck").join("refused_9x16");
    for device in [&[][..], &["--device", "interpreter"]] {
        let out = weft("run", "neck", &ranges, &[&["--test-dir", dir.to_str().expect("a path")], device].concat());
        let said = out.refused(3, "/Concat_36").stderr;
        // What the compiler makes of it is nothing to someone who has the model alone.
        assert!(!said.contains("for ") && !said.contains("kernel") && !said.contains("@t_"), "{said}");
    }
}

#[test]
fn sizes_beyond_a_range_are_refused_on_every_device() {
    for device in [&[][..], &["--device", "interpreter"]] {
        for (ranges, why) in [
            (["steps=2..4", "batch=1..4"], "`steps` is 5, and was declared to be from 2 to 4"),
            (["steps=1..40:3", "batch=1..4"], "`steps` is 5, and was declared to be from 1 to 40 in steps of 3"),
        ] {
            let dir = folder("counted_loop").join("test_data_set_5");
            let dir = dir.to_str().expect("a path");
            let out = weft("run", "counted_loop", &ranges, &[&["--test-dir", dir], device].concat());
            out.refused(3, why);
        }
    }
}
