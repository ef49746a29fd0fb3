//! Names of fused groups by what they do: `conv 3x3 + add + relu`, `attention`.

use crate::category::{Category, multiplies};
use compiler::graph::{Function, Node as GraphNode, TensorType};
use compiler::ops::control::Const;

/// Longer groups are shortened in the middle.
const MOST: usize = 6;

/// The name of a group with these ops, each with its kind. `function` is what it calls, if it is a graph.
pub(crate) fn meaning(function: Option<&Function>, ops: &[(Category, &str)]) -> String {
    let windows = function.map_or(vec![], windows);
    let named = |range: std::ops::Range<usize>| {
        let windows = &windows;
        range.map(move |i| match windows.get(i) {
            Some(Some(window)) => format!("{} {window}", ops[i].1),
            _ => ops[i].1.to_string(),
        })
    };
    let names: Vec<String> = match attention(ops) {
        Some((from, to)) => named(0..from).chain(["attention".into()]).chain(named(to + 1..ops.len())).collect(),
        None => named(0..ops.len()).collect(),
    };
    match names.as_slice() {
        [] => "nothing".into(),
        [first, .., last] if names.len() > MOST => format!("{first} + {} more + {last}", names.len() - 2),
        _ => names.join(" + "),
    }
}

/// The places of two products in one group with a reduction of rows between them: that is attention.
fn attention(ops: &[(Category, &str)]) -> Option<(usize, usize)> {
    let first = ops.iter().position(|o| o.0 == Category::Contraction)?;
    let last = ops.iter().rposition(|o| o.0 == Category::Contraction)?;
    let between = ops.get(first + 1..last)?;
    between.iter().any(|o| o.0 == Category::Reduction).then_some((first, last))
}

/// Of each node of a function that is shown: the size of its window, if it is a convolution of images.
fn windows(f: &Function) -> Vec<Option<String>> {
    let nodes = f.blocks[f.body].nodes.iter().map(|&n| &f.nodes[n]).filter(|n| !n.op.is::<Const>());
    nodes.map(|n| window(f, n)).collect()
}

fn window(f: &Function, node: &GraphNode) -> Option<String> {
    node.op.images()?;
    let inputs: Vec<Option<&TensorType>> = node.inputs.iter().map(|v| v.map(|v| f.ty(v))).collect();
    let outputs: Vec<&TensorType> = node.outputs.iter().map(|&v| f.ty(v)).collect();
    let weight = inputs.get(1).copied().flatten().filter(|w| w.rank() == 4)?;
    if !multiplies(node, &inputs, &outputs) {
        return None;
    }
    let size: Vec<String> =
        weight.shape[2..].iter().map(|d| d.as_const().map(|n| n.to_string())).collect::<Option<_>>()?;
    let depthwise = weight.shape[1].as_const() == Some(1) && weight.shape[0].as_const().is_some_and(|n| n > 1);
    Some(format!("{}{}", size.join("x"), if depthwise { " depthwise" } else { "" }))
}

#[cfg(test)]
mod tests {
    use crate::picture::{Category, Picture};
    use compiler::text::parse_module;

    /// The names of the groups of a module.
    fn names(text: &str) -> Vec<String> {
        let p = Picture::of(&parse_module(text).expect("parses"));
        p.nodes.iter().filter(|n| n.category == Category::Group).map(|n| n.op.clone()).collect()
    }

    #[test]
    fn convolutions_have_the_size_of_their_window() {
        let text =
            "graph @main(%x: f32[1,8,9,9], %w: f32[8,8,3,3], %d: f32[8,1,5,5]) -> (y: f32[1,8,7,7], z: f32[1,8,5,5]) {
  %0 = call @a %x, %w : f32[1,8,7,7] !from(\"a\")
  %1 = call @b %x, %d : f32[1,8,5,5] !from(\"b\")
  return %0, %1
}
graph @a(%x: f32[1,8,9,9], %w: f32[8,8,3,3]) -> (out0: f32[1,8,7,7]) primitive {
  %0 = conv %x, %w : f32[1,8,7,7] !from(\"a\")
  %1 = relu %0 : f32[1,8,7,7] !from(\"a\")
  return %1
}
graph @b(%x: f32[1,8,9,9], %w: f32[8,1,5,5]) -> (out0: f32[1,8,5,5]) primitive {
  %0 = conv %x, %w {group=8} : f32[1,8,5,5] !from(\"b\")
  return %0
}
";
        assert_eq!(names(text), ["conv 3x3 + relu", "conv 5x5 depthwise"]);
    }

    #[test]
    fn two_products_with_a_softmax_between_are_attention() {
        let text = "graph @main(%q: f32[2,8,4], %k: f32[2,4,8], %v: f32[2,8,4]) -> (y: f32[2,8,4]) {
  %0 = call @a %q, %k, %v : f32[2,8,4] !from(\"a\")
  return %0
}
graph @a(%q: f32[2,8,4], %k: f32[2,4,8], %v: f32[2,8,4]) -> (out0: f32[2,8,4]) primitive {
  %0 = matmul %q, %k : f32[2,8,8] !from(\"a\")
  %1 = softmax %0 {axes=[2]} : f32[2,8,8] !from(\"a\")
  %2 = matmul %1, %v : f32[2,8,4] !from(\"a\")
  %3 = relu %2 : f32[2,8,4] !from(\"a\")
  return %3
}
";
        assert_eq!(names(text), ["attention + relu"]);
    }
}
