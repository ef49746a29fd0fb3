//! What maps of a graph show besides colours: where the data layout changes, and the shares of element types.

use crate::picture::{Category, Node, Picture};
use compiler::dtype::DType;
use compiler::trace::CompileTrace;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;

/// The element type and the bytes of a tensor type as pictures write it (`f32[1,64,56,56]`); `None` for an open size.
pub fn tensor_bytes(ty: &str) -> Option<(DType, u64)> {
    let (name, dims) = ty.split_once('[')?;
    let dtype: DType = name.trim().parse().ok()?;
    let dims = dims.split_once(']')?.0.split(',').map(str::trim).filter(|d| !d.is_empty());
    let elements = dims.map(|d| d.parse::<u64>().ok()).try_fold(1u64, |n, d| n.checked_mul(d?))?;
    Some((dtype, elements.checked_mul(dtype.size() as u64)?))
}

/// A box that reads a tensor in one data layout and gives one in another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutChange {
    /// The layout that it reads.
    pub from: &'static str,
    /// The layout that it gives.
    pub to: &'static str,
    /// Bytes read and written for it; `None` if the box computes besides, since it then costs no bytes of its own, and
    /// for open sizes.
    pub bytes: Option<u64>,
}

/// The boxes that change the layout, by key.
pub fn layout_changes(picture: &Picture) -> FxHashMap<String, LayoutChange> {
    let mut out = FxHashMap::default();
    collect_changes(picture, &mut out);
    out
}

fn collect_changes(picture: &Picture, out: &mut FxHashMap<String, LayoutChange>) {
    let edges = picture.edges.iter().filter_map(|e| Some((e, e.layout?)));
    for (e, from) in edges {
        let n = &picture.nodes[e.to];
        let Some(to) = n.layout.filter(|to| *to != from && n.category != Category::Control) else { continue };
        let moves = n.work == Category::Movement;
        let size = |ty: &str| tensor_bytes(ty).map(|t| t.1);
        let both = || Some(size(&e.ty)? + size(n.outputs.first()?)?);
        out.entry(n.key.clone()).or_insert(LayoutChange { from, to, bytes: if moves { both() } else { None } });
    }
    // What a fused group changes, it changes at its border.
    let open = picture.nodes.iter().filter(|n| n.category != Category::Group);
    open.flat_map(|n| &n.inside).for_each(|p| collect_changes(p, out));
}

/// What one element type has of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Share {
    /// Floating-point operations of kernels that read or write tensors of this type.
    pub flops: f64,
    /// Bytes of such tensors that boxes read and write.
    pub bytes: f64,
    /// Milliseconds of such kernels.
    pub ms: f64,
}

/// The shares of element types, by name, each from 0 to 1; a kernel that has an f16 tensor counts as f16. `picture` is
/// the graph whose tensors are counted. Tensors of open sizes are left out.
pub fn shares(trace: &CompileTrace, picture: &Picture) -> BTreeMap<String, Share> {
    let mut out: BTreeMap<String, Share> = BTreeMap::new();
    let times = trace.times.as_ref().map_or(&[][..], |t| &t.dispatches);
    for (i, c) in trace.calls().enumerate() {
        let s = out.entry(trace.kernels[c.kernel].dtype.clone()).or_default();
        s.flops += c.flops as f64;
        s.ms += times.get(i).map_or(0.0, |t| t.us / 1e3);
    }
    count_bytes(picture, &mut |dtype, bytes| out.entry(dtype.name().into()).or_default().bytes += bytes as f64);
    let sum = |of: fn(&Share) -> f64| out.values().map(of).sum::<f64>().max(f64::MIN_POSITIVE);
    let [flops, bytes, ms] = [sum(|s| s.flops), sum(|s| s.bytes), sum(|s| s.ms)];
    out.into_iter().map(|(k, s)| (k, Share { flops: s.flops / flops, bytes: s.bytes / bytes, ms: s.ms / ms })).collect()
}

/// Counts what each box reads and writes.
fn count_bytes(picture: &Picture, count: &mut dyn FnMut(DType, u64)) {
    let works = |n: &Node| !matches!(n.category, Category::Terminal | Category::Control);
    let mut read = FxHashSet::default();
    let inputs = picture.edges.iter().filter(|e| works(&picture.nodes[e.to]));
    // An operand that a box has twice is read once.
    let inputs = inputs.filter(|e| read.insert((e.from, e.to, e.result))).map(|e| &e.ty);
    let nodes = || picture.nodes.iter().filter(|n| works(n));
    let others = nodes().flat_map(|n| n.outputs.iter().chain(n.weights.iter().map(|w| &w.ty)));
    inputs.chain(others).filter_map(|ty| tensor_bytes(ty)).for_each(|(d, n)| count(d, n));
    let frames = picture.nodes.iter().filter(|n| n.category == Category::Control);
    frames.flat_map(|n| &n.inside).for_each(|p| count_bytes(p, count));
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::text::parse_module;

    #[test]
    fn types_have_bytes() {
        assert_eq!(tensor_bytes("f16[1,4,8,8]"), Some((DType::F16, 512)));
        assert_eq!(tensor_bytes("f32[]"), Some((DType::F32, 4)));
        assert_eq!(tensor_bytes("f32[n,4]"), None);
        assert_eq!(tensor_bytes("then"), None);
    }

    #[test]
    fn a_transpose_between_layouts_costs_what_it_reads_and_writes() {
        let p = Picture::of(
            &parse_module(
                "const @w : f32[4,4,1,1] = random(1)
graph @main(%x: f32[1,4,8,8]) -> (y: f32[1,8,8,4]) {
  %w = const @w : f32[4,4,1,1]
  %0 = conv %x, %w : f32[1,4,8,8] !from(\"Conv_0\")
  %1 = transpose %0 {perm=[0,2,3,1]} : f32[1,8,8,4] !from(\"T_1\")
  %2 = relu %1 : f32[1,8,8,4] !from(\"Relu_2\")
  return %2
}
",
            )
            .expect("parses"),
        );
        let changes = layout_changes(&p);
        let transpose = p.nodes.iter().find(|n| n.op == "transpose").expect("a transpose");
        assert_eq!(changes.len(), 1);
        assert_eq!(changes[&transpose.key], LayoutChange { from: "NCHW", to: "NHWC", bytes: Some(2 * 1024) });
    }

    #[test]
    fn element_types_share_the_bytes_of_all_tensors() {
        let p = Picture::of(
            &parse_module(
                "graph @main(%x: f32[6]) -> (y: f16[6]) {\n  %0 = cast %x {to=f16} : f16[6] !from(\"C\")\n  return %0\n}\n",
            )
            .expect("parses"),
        );
        let shares = shares(&CompileTrace::default(), &p);
        let percent = |name: &str| (shares[name].bytes * 100.0).round();
        assert_eq!((percent("f32"), percent("f16")), (67.0, 33.0));
    }
}
