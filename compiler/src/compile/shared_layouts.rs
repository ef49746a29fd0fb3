//! Constants with one layout for all of their readers: a table that is embedding and classifier is packed for the
//! product, and the rows that indices choose are read from there. Otherwise the constant would be stored twice.
//!
//! A function takes the layout of others if it reads the constant by indices alone, so that it reads few elements, if
//! it has none of its own for it, and if all others agree on one. If a kernel of it cannot be emitted then, it stays.

use super::backend::Backend;
use super::kernels::{Built, FunctionId, emitted};
use crate::arena::Id;
use crate::check::check_kernels;
use crate::fingerprint::Fingerprint;
use crate::name::Name;
use crate::plan::EmittedKernel;
use crate::schedule::{FlattenBuffer, TransformLayout, apply};
use crate::tir::{BufferId, Expr, InstrRef, TensorFunction};
use indexmap::IndexMap;

/// The functions that read each constant, and through which parameter.
pub(super) type Readers = IndexMap<Name, Vec<(FunctionId, BufferId)>>;

/// Gives functions that read constants by indices the layouts that others have for these.
pub(super) fn share(built: &mut [Built], readers: &Readers, backend: Backend<'_>) {
    let mut parameters: Vec<(FunctionId, BufferId)> =
        readers.values().filter(|r| r.len() > 1).flatten().copied().collect();
    parameters.sort_unstable();
    parameters.dedup();
    for own in parameters {
        let function = &built[own.0.index()].function;
        if packer_of(function, own.1).is_some() || !reads_by_indices(function, own.1) {
            continue;
        }
        let constants = || readers.values().filter(|r| r.contains(&own));
        let others = || constants().flatten().filter(|r| **r != own);
        let layouts = others().map(|(f, b)| packer_of(&built[f.index()].function, *b));
        let agreed = layouts.reduce(|a, b| if a == b { a } else { None }).flatten();
        let all = constants().all(|r| r.len() > 1);
        if let (Some(packer), Some((f, b)), true) = (agreed, others().next(), all) {
            let lines = lines_of(&built[f.index()].function, *b);
            let laid_out = laid_out(&built[own.0.index()], own.1, &lines, packer, backend);
            laid_out.into_iter().for_each(|parts| replace(&mut built[own.0.index()], parts));
        }
    }
}

/// The layout that the function has for the constant, if it has its own.
fn packer_of(f: &TensorFunction, b: BufferId) -> Option<Fingerprint> {
    f.prepacks.iter().find(|p| p.buffer == b).map(|p| p.packer.form(&[]))
}

/// True if each load of the buffer has an index that is read itself.
fn reads_by_indices(f: &TensorFunction, b: BufferId) -> bool {
    let mut plain = false;
    for block in f.body.blocks() {
        block.value.visit(&mut |e| {
            if let Expr::Load(of, indices) = e {
                plain |= *of == b && !indices.iter().any(|i| i.reads_buffer());
            }
        });
    }
    !plain
}

/// The instructions that lay out a buffer.
fn lines_of(f: &TensorFunction, b: BufferId) -> Vec<InstrRef> {
    let name = f.buffers[b].name;
    let of = |i: &&InstrRef| {
        let i = i.as_any();
        let transformed = i.downcast_ref::<TransformLayout>().is_some_and(|t| t.buffer == name);
        transformed || i.downcast_ref::<FlattenBuffer>().is_some_and(|t| t.buffer == name)
    };
    f.trace.iter().filter(of).cloned().collect()
}

/// A function and its kernels.
type Part = (TensorFunction, Vec<EmittedKernel>);

/// The function and its versions with these instructions for a parameter, if that gives it the layout.
fn laid_out(
    built: &Built,
    own: BufferId,
    lines: &[InstrRef],
    packer: Fingerprint,
    backend: Backend<'_>,
) -> Option<Vec<Part>> {
    let all = std::iter::once(built).chain(built.versions.iter().map(|v| &v.built));
    all.map(|b| {
        let mut f = b.function.clone();
        let name = f.buffers.get(own)?.name;
        for line in lines {
            let line = match line.as_any().downcast_ref::<TransformLayout>() {
                Some(t) => InstrRef::new(TransformLayout { buffer: name, ..t.clone() }),
                None => InstrRef::new(FlattenBuffer {
                    buffer: name,
                    ..line.as_any().downcast_ref::<FlattenBuffer>()?.clone()
                }),
            };
            apply(&mut f, line).ok()?;
        }
        check_kernels(&f).ok()?;
        let kernels = (packer_of(&f, own) == Some(packer)).then(|| emitted(&f, backend))?.ok()?;
        Some((f, kernels))
    })
    .collect()
}

fn replace(built: &mut Built, parts: Vec<Part>) {
    let Built { before, function, kernels, versions, .. } = built;
    let own = std::iter::once((before, function, kernels));
    let versions = versions.iter_mut().map(|v| (&mut v.built.before, &mut v.built.function, &mut v.built.kernels));
    for ((before, function, kernels), (f, emitted)) in own.chain(versions).zip(parts) {
        if before.kernels().is_empty() {
            before.pending = f.trace.clone();
        }
        (*function, *kernels) = (f, emitted);
    }
}
