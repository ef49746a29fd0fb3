//! The dispatches of a group: its kernels for all sizes, and their versions for some sizes.

use super::CompileError;
use super::kernels::{Built, BuiltVersion};
use super::numbering::BufferKey;
use super::planning::{Origin, Planner, SCHEDULING};
use super::residency::symbols_of;
use super::steps::{Pending, VersionChoice};
use super::storage::StorageLocation;
use super::work::KernelWork;
use crate::arena::Id;
use crate::graph::NodeId;
use crate::int::{Cond, Int};
use crate::name::Name;
use crate::ops::OpRef;
use crate::ops::control::CallTensor;
use crate::plan::{Binding, KernelIndex};
use crate::remark::RemarkKind;
use crate::tir::{BufferId, Scope};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

impl Planner<'_> {
    pub(super) fn kernel_group(&mut self, n: NodeId, origin: &Origin) -> Result<(), CompileError> {
        let at = origin.function.index();
        let (built, first_kernel) = (&self.built[at], &self.first_kernel[at]);
        let report = self.group().1;
        report.rule = built.rule;
        report.tensor_function = Some(built.name());
        for line in &built.applied {
            self.remark(SCHEDULING, RemarkKind::Applied, line.clone());
        }
        for why in &built.declined {
            self.remark(SCHEDULING, RemarkKind::Missed, why.clone());
        }
        let symbols = symbols_of(self.main, n, &built.function);
        let own = |e: &Int| e.replace(&mut |v| symbols.iter().find(|s| s.0 == v).map(|s| s.1.clone()));
        let conditions = |v: &BuiltVersion| v.when.iter().map(|c| c.map(&mut |e| own(e))).collect();
        let when: Arc<Vec<Vec<Cond>>> = Arc::new(built.versions.iter().map(conditions).collect());
        let parameters = self.bind_parameters(n, built);
        (self.group().1.flops, self.group().1.bytes) = (0, 0);
        for (index, v) in built.versions.iter().enumerate() {
            let symbols: Vec<(Name, Int)> = v.symbols.iter().map(|(q, e)| (*q, own(e))).collect();
            let version = Some(VersionChoice { when: when.clone(), index });
            self.dispatches(n, origin, (&v.built, first_kernel[index + 1]), &parameters, (symbols, version))?;
        }
        let all = (!when.is_empty()).then(|| VersionChoice { index: when.len(), when });
        self.dispatches(n, origin, (built, first_kernel[0]), &parameters, (symbols, all))?;
        let (symbols, sizes) = self.untold_symbols(n, built).into_iter().unzip();
        self.module.main_mut().nodes[n].op = OpRef::new(CallTensor { callee: built.name(), symbols, sizes });
        Ok(())
    }

    /// The symbols of a function that the shapes of its operands do not tell, as the module has them.
    fn untold_symbols(&self, n: NodeId, built: &Built) -> Vec<(Name, Int)> {
        let f = &built.before;
        let shapes = self.main.nodes[n].inputs.iter().flatten().map(|&v| self.main.ty(v).shape.as_slice());
        let told = f.unify(f.inputs().zip(shapes));
        symbols_of(self.main, n, f).into_iter().filter(|s| !told.contains_key(&s.0)).collect()
    }

    /// The dispatches of a function, or of one of its versions.
    fn dispatches(
        &mut self,
        n: NodeId,
        origin: &Origin,
        (built, first_kernel): (&Built, KernelIndex),
        parameters: &FxHashMap<BufferId, StorageLocation>,
        (symbols, version): (Vec<(Name, Int)>, Option<VersionChoice>),
    ) -> Result<(), CompileError> {
        let index = self.group().0;
        let mut locations = parameters.clone();
        self.bind_scratch(built, &symbols, &mut locations);
        let work = Arc::new(KernelWork::of(self.main, n, origin.work.clone(), built, &symbols));
        let sizes = self.least;
        let least = |v: Name| sizes.get(&v).and_then(Int::as_const);
        let flops = work.flops(&least);
        let shown = version.as_ref().is_none_or(|v| v.is_picked(&least));
        for (at, kernel) in built.kernels.iter().enumerate() {
            let bound = |b: &Binding| {
                let location = locations.get(&b.buffer).copied().ok_or_else(|| CompileError::Bug {
                    at: built.name().to_string(),
                    message: format!("{} binds a buffer without a storage location", kernel.name),
                })?;
                Ok((location, b.slice))
            };
            let locations = kernel.bindings.iter().map(bound).collect::<Result<Vec<_>, CompileError>>()?;
            if shown {
                let report = self.group().1;
                report.bytes += work.bytes(at, &least);
                report.flops += flops[at];
            }
            let (kernel, work, symbols) = (first_kernel + at, work.clone(), symbols.clone());
            let version = version.clone();
            self.pending.push(Pending::Dispatch { kernel, locations, group: index, part: at, work, symbols, version });
        }
        Ok(())
    }

    /// The storage locations of the operands and results of a group, which all versions of its kernels bind.
    fn bind_parameters(&mut self, n: NodeId, built: &Built) -> FxHashMap<BufferId, StorageLocation> {
        let (node, f) = (&self.main.nodes[n], &built.function);
        let first = self.pending.len();
        let dispatches = built.kernels.len() + built.versions.iter().map(|v| v.built.kernels.len()).sum::<usize>();
        let last = first + dispatches.saturating_sub(1);
        let mut locations: FxHashMap<BufferId, StorageLocation> = FxHashMap::default();
        for (b, &v) in f.inputs().zip(node.inputs.iter().flatten()) {
            self.touch(v, last);
            let mut location = self.location[&v];
            let prepack = f.prepacks.iter().find(|p| p.buffer == b);
            if let (StorageLocation::Own(BufferKey::Constant(name, None)), Some(p)) = (location, prepack) {
                location = StorageLocation::Own(BufferKey::Constant(name, Some(self.packers.add(&p.packer))));
            }
            locations.insert(b, location);
        }
        for (b, &v) in f.outputs().zip(&node.outputs) {
            self.new_value(self.main.ty(v), v, first);
            self.touch(v, last);
            locations.insert(b, self.location[&v]);
        }
        locations
    }

    /// Adds the storage locations of the buffers that only the kernels of `built` bind, whose first one comes next.
    fn bind_scratch(
        &mut self,
        built: &Built,
        symbols: &[(Name, Int)],
        locations: &mut FxHashMap<BufferId, StorageLocation>,
    ) {
        let f = &built.function;
        let first = self.pending.len();
        let last = first + built.kernels.len().saturating_sub(1);
        // Scratch is what kernels really bind: buffers of inlined stages are left behind in the arena.
        let bound: FxHashSet<BufferId> = built.kernels.iter().flat_map(|k| &k.bindings).map(|b| b.buffer).collect();
        for (b, buffer) in f.buffers.iter() {
            if buffer.scope == Scope::Global && !locations.contains_key(&b) && bound.contains(&b) {
                let of = |v: Name| symbols.iter().find(|s| s.0 == v).map(|s| s.1.clone());
                let elements = buffer.numel().replace(&mut |v| of(v));
                let known = elements.as_const().unwrap_or(0) as u64;
                let id = self.pool.add_scratch(buffer.encoding.storage_bytes(buffer.dtype, known), first, last);
                self.pool.leave_open(id, &elements, buffer.dtype, buffer.encoding);
                locations.insert(b, StorageLocation::Pool(id));
            }
        }
    }
}
