//! Missed fusion: results that one kernel writes and other kernels read, with the reason why these are not one kernel,
//! and the modelled gain if they were.
//!
//! The gain is the estimated time for moving the bytes of the result, less the time for computing it again if a reader
//! reads an element several times. Example: a 3x3 convolution with 64 channels reads each element of its operand 9 x 64
//! times. Apart from that, the fused kernel is assumed to be as fast as the two together, so the gain is an upper
//! bound.

use super::{CompileTrace, name_in_part, texts_of_parts};
use crate::graph::{Function, Module, NodeId, TensorType, ValueId};
use crate::int::typical_size;
use crate::ops::control::Const;
use crate::passes::fusion_kind::group_expression;
use crate::profile::DeviceProfile;
use crate::report::GroupKind;
use crate::schedule::estimate::{KernelEstimate, cost_of_bytes};
use crate::text::{parse_module, print_type};
use crate::tir::{BufferId, TensorFunction};
use rustc_hash::FxHashMap;

/// A result that a kernel writes and other kernels read.
#[derive(Clone, PartialEq, Debug)]
pub struct RoundTrip {
    /// The group that writes it.
    pub from: usize,
    /// The groups whose kernels read it, behind views of it.
    pub readers: Vec<usize>,
    /// Its type, as text.
    pub ty: String,
    /// Bytes written, and read again: by each reader once.
    pub bytes: u64,
    /// How often the readers read an element, in all; none where their operands have no tensor expression.
    pub reads: Option<f64>,
    /// Nanoseconds that the estimate gives for moving the bytes.
    pub moving_ns: f64,
    /// Nanoseconds for computing it again for each read but the first; none where that is not known.
    pub again_ns: Option<f64>,
    /// Why they are not one kernel: the sentences of fusion.
    pub why: Vec<String>,
}

impl RoundTrip {
    /// Nanoseconds that one kernel would gain at most; negative where computing the result again costs more than it
    /// saves.
    pub fn gain_ns(&self) -> Option<f64> {
        self.again_ns.map(|again| self.moving_ns - again)
    }
}

impl CompileTrace {
    /// The results that go from kernel to kernel through memory, the most bytes first. Results of the model, which have
    /// to be written, are not among them.
    ///
    /// # Errors
    /// A trace without stages, or of a device or text that this version does not read.
    pub fn round_trips(&self) -> Result<Vec<RoundTrip>, String> {
        let profile: DeviceProfile = serde_json::from_str(&self.profile)
            .map_err(|e| format!("the trace's device is not one that this Weft knows: {e}"))?;
        let text = self.stage_text(self.passes.len()).map_err(|e| e.to_string())?;
        let text = text.ok_or("this trace holds no stages: `weft compile MODEL -o F.trace` stores them")?;
        let estimates = self.estimates().unwrap_or_default();
        let mut out = vec![];
        for (part, text) in texts_of_parts(&text) {
            let module = parse_module(text).map_err(|e| format!("the graph after the passes does not parse: {e}"))?;
            Search { t: self, module: &module, profile: &profile, estimates: &estimates, part }.find(&mut out);
        }
        out.sort_by_key(|r: &RoundTrip| (std::cmp::Reverse(r.bytes), r.from));
        Ok(out)
    }
}

struct Search<'a> {
    t: &'a CompileTrace,
    module: &'a Module,
    profile: &'a DeviceProfile,
    estimates: &'a [Option<KernelEstimate>],
    part: &'a str,
}

/// A node that reads a value, at one of its operands.
type Use = (NodeId, usize);

impl Search<'_> {
    fn find(&self, out: &mut Vec<RoundTrip>) {
        let (borders, groups) = (self.t.border_remarks(), self.groups());
        for f in self.module.functions.values().filter(|f| !f.primitive) {
            let mut uses: FxHashMap<ValueId, Vec<Use>> = FxHashMap::default();
            for n in f.walk() {
                for (operand, v) in f.nodes[n].inputs.iter().enumerate() {
                    v.iter().for_each(|&v| uses.entry(v).or_default().push((n, operand)));
                }
            }
            for n in f.walk() {
                let Some(&from) = self.group_of(f, n, &groups) else { continue };
                if self.t.groups[from].kind == GroupKind::Kernel {
                    let values = f.nodes[n].outputs.iter();
                    out.extend(values.filter_map(|&v| self.trip(f, (from, v), &uses, &groups, &borders[from])));
                }
            }
        }
    }
    fn groups(&self) -> FxHashMap<&str, usize> {
        self.t.groups.iter().enumerate().map(|(i, g)| (g.function.as_str(), i)).collect()
    }
    fn group_of<'g>(&self, f: &Function, n: NodeId, groups: &'g FxHashMap<&str, usize>) -> Option<&'g usize> {
        let callee = f.nodes[n].op.callee()?;
        groups.get(name_in_part(self.part, callee.as_str()).as_str())
    }

    /// A value that `from` makes, if other kernels read it.
    fn trip(
        &self,
        f: &Function,
        (from, v): (usize, ValueId),
        uses: &FxHashMap<ValueId, Vec<Use>>,
        groups: &FxHashMap<&str, usize>,
        own: &[usize],
    ) -> Option<RoundTrip> {
        let (mut open, mut readers, mut why, mut reads) = (vec![v], vec![], vec![], Some(0.0));
        let leaves = |v: &ValueId| f.blocks.iter().any(|(_, b)| b.results.contains(v));
        while let Some(v) = open.pop() {
            if leaves(&v) {
                return None;
            }
            for &(n, operand) in uses.get(&v).into_iter().flatten() {
                let Some(&to) = self.group_of(f, n, groups) else { continue };
                for r in self.t.border_between(from, to, own) {
                    if !why.contains(&r.message) {
                        why.push(r.message.clone());
                    }
                }
                match self.t.groups[to].kind {
                    GroupKind::View => open.extend(&f.nodes[n].outputs),
                    GroupKind::Kernel => {
                        readers.push(to);
                        reads = reads.zip(self.reads(f, n, operand)).map(|(a, b)| a + b);
                    }
                    GroupKind::Host | GroupKind::Control => {}
                }
            }
        }
        readers.sort_unstable();
        readers.dedup();
        if why.is_empty() {
            // The sentences are about another reader, behind these.
            why = own.iter().map(|&r| self.t.remarks[r].message.clone()).collect();
            why.dedup();
        }
        let bytes = self.bytes(f.ty(v))? * (1 + readers.len()) as u64;
        let compute = self.compute_ns(from);
        (!readers.is_empty()).then(|| RoundTrip {
            from,
            ty: print_type(f.ty(v)),
            bytes,
            reads,
            moving_ns: cost_of_bytes(self.profile, bytes as f64).total(),
            again_ns: reads.zip(compute).map(|(reads, ns)| (reads - 1.0).max(0.0) * ns),
            why,
            readers,
        })
    }

    /// Bytes of a tensor; open sizes count with typical values.
    fn bytes(&self, ty: &TensorType) -> Option<u64> {
        let size = |d: &crate::int::Dim| d.eval(&|v| Some(typical_size(self.module.dims.range(v))));
        let elements: i64 = ty.shape.iter().map(size).product::<Option<i64>>()?;
        Some(elements.max(0) as u64 * ty.dtype.size() as u64)
    }

    /// Nanoseconds that the kernels of a group compute, memory and launches left out.
    fn compute_ns(&self, group: usize) -> Option<f64> {
        let of = |k: usize| self.estimates.get(k)?.as_ref().map(|e| e.cost.arithmetic + e.cost.issue);
        self.t.kernels_of(group).into_iter().map(of).sum()
    }

    /// How often the group that a node calls reads each element of its operand, if what stands between is computed
    /// where it is read.
    fn reads(&self, f: &Function, n: NodeId, operand: usize) -> Option<f64> {
        let callee = self.module.functions.get(&f.nodes[n].op.callee()?)?;
        let param = *callee.params().get(operand)?;
        let nodes: Vec<NodeId> =
            callee.blocks[callee.body].nodes.iter().copied().filter(|&n| !callee.nodes[n].op.is::<Const>()).collect();
        let (te, outside, _) = group_expression(self.module, callee, &nodes).ok()?;
        let te = te.at_typical_sizes(&self.module.dims);
        reads_of(&te, *outside.get(&param)?)
    }
}

/// How often each element of a buffer is read, if elementwise stages are computed where their result is read.
fn reads_of(te: &TensorFunction, buffer: BufferId) -> Option<f64> {
    let stages = te.stages()?;
    let product = |list: &mut dyn Iterator<Item = &crate::int::Int>| -> Option<f64> {
        list.map(|e| e.as_const().map(|c| c as f64)).product()
    };
    // From the last stage on: how often each element of what a stage stores is computed.
    let mut times: FxHashMap<BufferId, f64> = FxHashMap::default();
    for stage in stages.iter().rev() {
        let repeated = match stage.reduction().is_empty() {
            true => times.get(&stage.block.buffer).copied().unwrap_or(1.0).max(1.0),
            // Sums are computed once and kept.
            false => 1.0,
        };
        let points = product(&mut stage.loops.iter().map(|l| &l.1))?;
        for (read, _) in stage.block.value.loads() {
            let elements = product(&mut te.buffers[read].shape.iter())?;
            *times.entry(read).or_default() += points / elements.max(1.0) * repeated;
        }
    }
    times.get(&buffer).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::{CompileOptions, compile};
    use crate::plan::StandInEmitter;
    use crate::trace::Contents;

    fn trips(text: &str) -> Vec<RoundTrip> {
        let options = CompileOptions { record: true, ..CompileOptions::default() };
        let module = parse_module(text).expect("the text parses");
        let emitter = StandInEmitter { version: 1 };
        let c = compile(module, &options, &DeviceProfile::lavapipe(), &emitter, &mut |_, _, _| ()).expect("compiles");
        CompileTrace::new("m", &c, &options, &emitter, Contents::Summary)
            .expect("a trace")
            .round_trips()
            .expect("trips")
    }

    #[test]
    fn a_convolution_behind_another_reads_each_element_many_times() {
        let list = trips(
            "const @w : f32[8,8,3,3] = random(1)
graph @main(%x: f32[1,8,16,16]) -> (y: f32[1,8,16,16]) {
  %w = const @w : f32[8,8,3,3]
  %0 = conv %x, %w {pads=[1,1,1,1]} : f32[1,8,16,16] !from(\"Conv_0\")
  %1 = relu %0 : f32[1,8,16,16] !from(\"Relu_1\")
  %2 = conv %1, %w {pads=[1,1,1,1]} : f32[1,8,16,16] !from(\"Conv_2\")
  return %2
}
",
        );
        let [one] = list.as_slice() else { panic!("one result between two kernels: {list:?}") };
        assert_eq!(one.bytes, 2 * 4 * 8 * 16 * 16);
        assert!(one.reads.is_some_and(|r| (64.0..=72.0).contains(&r)), "9 x 8 reads, less at the border: {one:?}");
        assert!(one.why[0].contains("computed again for each read"), "{:?}", one.why);
    }
}
