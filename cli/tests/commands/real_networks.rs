//! Compares networks with ONNX Runtime's results, by the real command on a device: a trained network from the
//! repository, and one of the zoo with stored results (`benches/models/README.md` has their sources).

use crate::command::weft;
use std::path::PathBuf;

/// What every run takes: NCHW in f32, NHWC in f16.
const MODES: [[&str; 4]; 2] = [["--layout", "nchw", "--amp", "off"], ["--layout", "nhwc", "--amp", "fp16"]];

fn stored(name: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../benches/models").join(name).display().to_string()
}

/// Compares a model on a device with stored results, in every mode.
fn agrees(model: &[&str], results: &str) {
    for mode in MODES {
        let command = weft(["compare"]).args(model).args(["--against", &stored(results), "--json"]);
        let ran = command.args(mode).run().succeeded();
        let (json, said) = (ran.json(), ran.stderr);
        assert_eq!(json["pass"], true, "{model:?} {mode:?}");
        assert!(json["device"]["name"] != "interpreter", "{model:?} {mode:?} ran on no device: {said}");
        assert!(json["outputs"].as_array().is_some_and(|o| !o.is_empty()), "{model:?} {mode:?} compared nothing");
    }
}

#[test]
fn a_trained_classifier() {
    agrees(&[&stored("ppocr_v2_cls.onnx"), "-i", &stored("ppocr_v2_cls.in.npz")], "ppocr_v2_cls.out.npz");
}

#[test]
fn a_network_of_the_zoo() {
    agrees(&["squeezenet1_1", "--seed", "0"], "squeezenet1_1.out.npz");
}
