//! annotate-target: each node that an external target supports is put into a region of that target.
//!
//! ```text
//! %0 = conv %x, %w        =>     %0 = external {target=dnnl} { %0 = conv %x, %w; yield %0 }
//! %1 = erf %0                    %1 = erf %0
//! ```
//!
//! The first target that supports a node takes it. A composite is taken by the target of its pattern. Nodes inside the
//! branches of an `if` or the body of a `loop` are asked about one by one; the node that owns them stays. The remark on
//! a node that no target takes has each target's reason.

use super::merge_composite::MergeComposite;
use super::scopes::{enclose, is_plain, open_blocks, parse_targets};
use super::{Pass, PassContext, PassError};
use crate::attr::{AttrStruct, Attrs};
use crate::attr_struct;
use crate::cost::NodeForm;
use crate::external::TargetSpec;
use crate::graph::{Function, Module, NodeId};
use crate::ops::OpRef;
use crate::ops::external_scope::{Composite, External};

attr_struct! {
    /// Puts nodes into regions of external targets.
    pub struct AnnotateTarget("annotate-target") {
        /// Targets in order of preference, as `NAME[:OPTION=VALUE]...`.
        pub targets: Vec<String> = vec![],
    }
}

/// Options of passes that let external targets, each `NAME[:OPTION=VALUE]...`, take what they support, in this order of
/// preference: for [`PipelineOptions::config`](super::PipelineOptions::config). With them the default pipeline runs
/// these passes.
pub fn external_passes(targets: &[String]) -> Vec<(String, Attrs)> {
    let merge = MergeComposite { targets: targets.to_vec() };
    let annotate = AnnotateTarget { targets: targets.to_vec() };
    vec![(MergeComposite::NAME.into(), merge.to_attrs()), (AnnotateTarget::NAME.into(), annotate.to_attrs())]
}

impl Pass for AnnotateTarget {
    fn opt_level(&self) -> u8 {
        0
    }
    fn required(&self) -> &'static [&'static str] {
        &["infer-types"]
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let targets = parse_targets("annotate-target", &self.targets)?;
        let mut changed = false;
        for f in module.functions.values_mut().filter(|f| !f.primitive) {
            for block in open_blocks(f) {
                for place in 0..f.blocks[block].nodes.len() {
                    let n = f.blocks[block].nodes[place];
                    if let Some(external) = self.annotate(f, n, &targets, cx) {
                        f.blocks[block].nodes[place] = external;
                        changed = true;
                    }
                }
            }
        }
        Ok(changed)
    }
}

impl AnnotateTarget {
    fn annotate(&self, f: &mut Function, n: NodeId, targets: &[TargetSpec], cx: &mut PassContext) -> Option<NodeId> {
        let composite = f.nodes[n].op.downcast::<Composite>().map(|c| c.name);
        if composite.is_none() && !is_plain(f, n) {
            return None;
        }
        let form = NodeForm::of(f, n);
        let mut reasons = vec![];
        for spec in targets {
            let supports = match composite.and_then(|c| c.as_str().split_once('.').map(|c| c.0)) {
                Some(owner) if owner == spec.target.name() => Ok(()),
                Some(owner) => Err(format!("it is a composite of {owner}")),
                None => spec.target.supports(&form, &spec.options),
            };
            match supports {
                Ok(()) => {
                    let (outputs, name) = (f.nodes[n].outputs.clone(), f.nodes[n].name);
                    let op = OpRef::new(External { target: spec.name(), options: spec.text.clone() });
                    return Some(enclose(f, &[n], &outputs, op, name));
                }
                Err(why) => reasons.push(format!("{}: {why}", spec.target.name())),
            }
        }
        let name = f.nodes[n].name;
        cx.missed(self, &[name], format!("{name} stays: {}", reasons.join("; ")));
        None
    }
}
