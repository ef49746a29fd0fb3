//! Storage forms of a plan's constants, as their readers require them.

use crate::name::Name;
use crate::plan::{Content, Plan, Step};
use crate::tir::{Encoding, TensorFunction};
use indexmap::IndexMap;

/// Notes the storage form of each constant.
pub(super) fn constant_encodings(plan: &mut Plan, functions: &IndexMap<Name, TensorFunction>) {
    let constant = |i: &usize| matches!(plan.buffers[*i].content, Content::Constant { .. });
    let known: Vec<_> =
        (0..plan.buffers.len()).filter(constant).map(|i| (i, constant_encoding(plan, functions, i))).collect();
    known.into_iter().for_each(|(i, encoding)| plan.buffers[i].encoding = encoding);
}

/// The storage form that kernels, host steps or results expect of constant buffer `index`; none where nothing says.
fn constant_encoding(plan: &Plan, functions: &IndexMap<Name, TensorFunction>, index: usize) -> Option<Encoding> {
    for step in plan.all_steps() {
        match step {
            Step::Gpu(list) => {
                for d in list {
                    let k = &plan.kernels[d.kernel];
                    let Some(f) = functions.get(&k.function) else { continue };
                    for (binding, (buffer, _)) in k.emitted.bindings.iter().zip(&d.buffers) {
                        if *buffer == index {
                            return Some(f.buffers[binding.buffer].encoding);
                        }
                    }
                }
            }
            Step::Host(h) => {
                if let Some(s) = h.inputs.iter().find(|s| s.buffer == index) {
                    return Some(s.encoding);
                }
            }
            Step::Loop(l) => {
                let mut views = l.read_before().chain(&l.go_on).chain(l.collected.iter().map(|c| &c.row));
                if let Some(s) = views.find(|s| s.buffer == index) {
                    return Some(s.encoding);
                }
            }
            Step::Copy { .. } | Step::Branch(_) | Step::Call(_) => {}
        }
    }
    plan.outputs.iter().find(|s| s.buffer == index).map(|s| s.encoding)
}
