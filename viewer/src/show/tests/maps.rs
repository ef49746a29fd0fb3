//! Tests of maps: what colours and legends say.

use super::*;
use crate::canvas::colour::Palette;
use compiler::calibrate::StoredRange;
use compiler::trace::{Errors, NodeError, RangesInF16};

/// The colours of the shown graph, with its boxes.
fn palette(h: &mut TestWindow, by: ColourBy) -> (Palette, Arc<Drawn>) {
    let drawn = h.state_mut().after().unwrap().unwrap();
    (Palette::new(h.state().document(), &drawn, by, None, false), drawn)
}

/// The trace with errors of its nodes, alone and accumulated.
fn with_errors(alone: [f64; 2]) -> CompileTrace {
    let mut t = trace();
    let node = |(name, e): (&str, f64)| NodeError {
        name: name.into(),
        rel_l2: e,
        accumulated: Some(10.0 * e),
        pass: e < 1e-3,
        ..NodeError::default()
    };
    let nodes = ["relu_1", "softmax_2"].into_iter().zip(alone).map(node).collect();
    t.errors = Some(Errors { against: "the interpreter".into(), tolerance: 1e-3, nodes, ..Errors::default() });
    t
}

#[test]
fn errors_have_the_scale_of_the_data_and_those_beyond_the_tolerance_a_colour_of_their_own() {
    let mut h = window_of(with_errors([1e-6, 1e-2]), [1000.0, 600.0]);
    let (alone, drawn) = palette(&mut h, ColourBy::Error);
    let fill = |p: &Palette, origin: &str| p.fills[drawn.by_origin[origin][0]];
    assert_ne!(fill(&alone, "relu_1"), fill(&alone, "softmax_2"));
    let said = |p: &Palette| p.legend.iter().chain(&p.remarks).map(|l| l.1.clone()).collect::<Vec<_>>();
    assert!(said(&alone).contains(&"least 1.0e-6".to_string()), "{:?}", said(&alone));
    assert!(said(&alone).contains(&"1 beyond the tolerance 1e-3".to_string()), "{:?}", said(&alone));
    assert!(alone.heading.contains("of each group alone"));
    // Accumulated, the first is beyond it as well once it is a thousandth.
    let mut h = window_of(with_errors([2e-4, 2e-4]), [1000.0, 600.0]);
    let (sum, _) = palette(&mut h, ColourBy::Accumulated);
    assert!(said(&sum).contains(&"2 beyond the tolerance 1e-3".to_string()), "{:?}", said(&sum));
    let (alone, _) = palette(&mut h, ColourBy::Error);
    assert!(said(&alone).contains(&"all are within the tolerance 1e-3".to_string()), "{:?}", said(&alone));
    h.state_mut().tab = Tab::Precision;
    settle(&mut h);
    assert!(has(&h, "with the errors of the nodes before it"), "{:#?}", texts(&h));
}

#[test]
fn magnitudes_have_the_ends_of_f16() {
    let mut t = with_errors([1e-6, 1e-6]);
    let nodes = &mut t.errors.as_mut().unwrap().nodes;
    (nodes[0].max_magnitude, nodes[1].max_magnitude) = (3e5, 20000.0);
    let mut h = window_of(t, [1000.0, 600.0]);
    let (range, drawn) = palette(&mut h, ColourBy::Range);
    let note = |origin: &str| range.notes[drawn.by_origin[origin][0]].clone();
    assert_eq!(note("relu_1").as_deref(), Some("300000: beyond f16"));
    assert_eq!(note("softmax_2").as_deref(), Some("31 % of f16"));
    let said: Vec<&str> = range.remarks.iter().map(|r| r.1.as_str()).collect();
    assert!(said.contains(&"1 beyond 65504, the end of f16"), "{said:?}");
    let mut plain = window_of(trace(), [1000.0, 600.0]);
    assert!(palette(&mut plain, ColourBy::Range).0.missing.is_some());
    // Over a folder of inputs, with the shares of small elements.
    let stored = |name: &str, largest: f64, subnormal| StoredRange {
        name: name.into(),
        op: "op".into(),
        largest,
        of_f16: largest / 65504.0,
        elements: 100,
        overflowing: 0,
        zeroed: 1,
        subnormal,
    };
    let mut t = trace();
    t.ranges = Some(RangesInF16 { inputs: 20, values: vec![stored("relu_1", 3e4, 0), stored("softmax_2", 1.0, 4)] });
    let mut h = window_of(t, [1000.0, 600.0]);
    let (range, drawn) = palette(&mut h, ColourBy::Range);
    let note = |origin: &str| range.notes[drawn.by_origin[origin][0]].clone();
    assert_eq!(note("relu_1").as_deref(), Some("46 % of f16"));
    assert_eq!(note("softmax_2").as_deref(), Some("5 % too small"));
    assert_eq!(range.heading, "largest magnitude of the result over 20 inputs, beside f16");
}

#[test]
fn a_transpose_bears_its_bytes_and_types_their_shares() {
    let model = "const @w : f32[4,4,1,1] = splat(0.25)
graph @main(%x: f32[1,4,8,8]) -> (y: f32[1,8,8,4]) {
  %w = const @w : f32[4,4,1,1]
  %0 = conv %x, %w : f32[1,4,8,8] !from(\"conv_0\")
  %1 = transpose %0 {perm=[0,2,3,1]} : f32[1,8,8,4] !from(\"transpose_1\")
  return %1
}
";
    let mut h = window_of(compiled_of(model, "turned", FuseMode::Off), [1000.0, 600.0]);
    h.state_mut().show_stage(0);
    settle(&mut h);
    let (p, drawn) = palette(&mut h, ColourBy::Layout);
    let of = |origin: &str| drawn.by_origin[origin][0];
    assert_eq!(p.notes[of("transpose_1")].as_deref(), Some("NCHW to NHWC, 2.0 kB"));
    assert_eq!(p.notes[of("conv_0")], None);
    assert_ne!(p.regions[of("transpose_1")], p.regions[of("conv_0")]);
    assert_eq!(p.edges.keys().copied().collect::<Vec<_>>(), ["NCHW", "NHWC"]);
    let (types, _) = palette(&mut h, ColourBy::Dtype);
    assert!(types.legend[0].1.starts_with("f32: 100 % of bytes, 100 % of FLOPs"), "{:?}", types.legend);
}
