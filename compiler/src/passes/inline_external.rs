//! inline-external: a region of an external target that does not pay becomes Weft's own nodes again.
//!
//! ```text
//! %0 = call_host @dnnl_0 %x {target=dnnl, reference=dnnl_0}     =>     %0 = conv %x, %w
//! ```
//!
//! With the target's option `min_macs`, a region stays external if it has at least so many multiply-accumulates.
//! Without it, the target's time plus the copies of the values that cross the border are compared with Weft's time for
//! the same nodes, and the region stays external if that sum is lower. The times are those that `weft tune` measured
//! for such a region on this device, or else what the target says and Weft's estimate: what a target says may be
//! measured, so on a processor the profile's factors should fit the machine (`weft::speed`). If the target says
//! nothing, all its regions stay. The remark has both numbers, and says which are measured.

use super::scopes::dissolve;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::cost::NodeForm;
use crate::external::{Region, TargetSpec};
use crate::graph::{CopyNodes, Function, Module, NodeId, ValueId};
use crate::name::Name;
use crate::ops::control::CallHost;
use crate::schedule::estimate::cost_of_bytes;
use rustc_hash::FxHashMap;

attr_struct! {
    /// Undoes regions of external targets that do not pay.
    pub struct InlineExternal("inline-external") {}
}

impl Pass for InlineExternal {
    fn opt_level(&self) -> u8 {
        0
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let functions: Vec<Name> = module.functions.values().filter(|f| !f.primitive).map(|f| f.name).collect();
        let mut undone = vec![];
        for name in functions {
            let mut f = module.functions[&name].clone();
            let before = undone.len();
            self.inline(module, &mut f, &mut undone, cx)?;
            if undone.len() > before {
                module.functions.insert(name, f);
            }
        }
        undone.iter().for_each(|name| drop(module.functions.shift_remove(name)));
        Ok(!undone.is_empty())
    }
}

impl InlineExternal {
    fn inline(
        &self,
        module: &Module,
        f: &mut Function,
        undone: &mut Vec<Name>,
        cx: &mut PassContext,
    ) -> Result<(), PassError> {
        let mut replaced: FxHashMap<ValueId, ValueId> = FxHashMap::default();
        for block in super::scopes::blocks_of(f) {
            for n in std::mem::take(&mut f.blocks[block].nodes) {
                match self.stays(module, f, n, cx)? {
                    Some(function) => {
                        let mut body = module.functions[&function].clone();
                        dissolve(&mut body, |node| node.op.is_scope());
                        let operands = f.nodes[n].inputs.iter().flatten().map(|v| *replaced.get(v).unwrap_or(v));
                        let mut copy = CopyNodes::new(&body, body.params().iter().copied().zip(operands).collect());
                        copy.origins = f.nodes[n].origins.clone();
                        copy.nodes(body.body, f, block);
                        for (&old, result) in f.nodes[n].outputs.clone().iter().zip(body.results()) {
                            replaced.insert(old, copy.map[result]);
                        }
                        f.nodes[n].block = None;
                        undone.push(function);
                    }
                    None => f.blocks[block].nodes.push(n),
                }
            }
        }
        f.replace_uses_many(&|v| replaced.get(&v).copied().unwrap_or(v));
        Ok(())
    }

    /// The function of a region that does not pay.
    fn stays(&self, module: &Module, f: &Function, n: NodeId, cx: &mut PassContext) -> Result<Option<Name>, PassError> {
        let Some(call) = f.nodes[n].op.downcast::<CallHost>() else { return Ok(None) };
        let Some(target) = call.external_target() else { return Ok(None) };
        let refuse = |why: String| PassError::request("inline-external", why);
        let spec = TargetSpec::new(target, &call.options).map_err(refuse)?;
        let Some(region) = Region::of(module, call.reference) else { return Ok(None) };
        let (pays, numbers) = pays(&region, &spec, cx).map_err(refuse)?;
        let name = call.callee;
        match pays {
            true => cx.applied(self, &[name], format!("{name} runs on {target}: {numbers}")),
            false => cx.missed(self, &[name], format!("{name} stays with Weft, not {target}: {numbers}")),
        }
        Ok((!pays).then_some(call.reference))
    }
}

/// Whether the target is to run the region, and the numbers that decide it.
fn pays(region: &Region, spec: &TargetSpec, cx: &mut PassContext) -> Result<(bool, String), String> {
    let macs = region.macs();
    if let Some(least) = spec.options.min_macs()? {
        return Ok((macs as f64 >= least, format!("{macs} multiply-accumulates, min_macs={least}")));
    }
    let costs = cx.costs();
    let measured = costs.region(&spec.times_key(region));
    let own = measured.map(|t| t.target_ns).or_else(|| spec.target.estimate(region, &spec.options));
    let Some(own) = own else {
        return Ok((true, format!("{macs} multiply-accumulates, and the target has no estimate")));
    };
    let f = region.function();
    let estimated = || region.nodes().into_iter().map(|n| costs.node(&NodeForm::of(f, n)) as f64).sum();
    let weft: f64 = measured.map_or_else(estimated, |t| t.weft_ns);
    // Each tensor is read and written once.
    let bytes = region.border_bytes();
    let copies = cost_of_bytes(&cx.profile, 2.0 * bytes as f64).total();
    let us = |ns: f64| ns / 1e3;
    let [its, ours] = if measured.is_some() { ["measured"; 2] } else { ["by the target", "estimated"] };
    let numbers = format!(
        "{:.1} us {its} and {:.1} us estimated for copies of {bytes} bytes, Weft's kernels {:.1} us {ours}",
        us(own),
        us(copies),
        us(weft)
    );
    Ok((own + copies < weft, numbers))
}
