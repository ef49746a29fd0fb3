//! Tensor IR to naga to WGSL, SPIR-V, MSL and HLSL.
//!
//! One scheduled kernel (a [`Stmt::Kernel`] body) becomes one compute shader ([`emit_kernel`]). The emitter handles
//! loops, buffers and expressions; it depends on neither ops nor schedule rules. No other code creates entry points.
//! Steps, each in its own file:
//!
//! 1. `grid`: which loops are thread axes; the grid is folded against the device's limit.
//! 2. `expand`: unrolled loops are repeated, vectorised loops become lanes of their leaves, indices are simplified.
//! 3. `barriers`: workgroup barriers are derived from reads and writes.
//! 4. `guards`: conditions are placed as far out as uniform control flow allows; `clamps`: unnecessary clamps are
//!    removed; `ahead`: loads for the next iteration of a loop stand under conditions.
//! 5. `layout`: the form of each buffer follows from its accesses: vectors of four if all runs are aligned, separate
//!    variables for registers with constant indices, slices beyond one binding; `joined`: halves that are declared as
//!    words.
//! 6. `kernel` (with `branches` and `loops`), `index`, `value`, `memory` (with `packing`, `words`, `half`,
//!    `buffer_slices`, `subgroup`, `across`): statements, indices, values and accesses become naga IR through `builder`
//!    and `ops` (with `extrema`).
//! 7. `generated`: validation, and text and words for each target; `lines`: the origin of each line of the text.
//!
//! Always holds: a load is in bounds, by proof or by a clamp of its index. A select evaluates both sides, so its loads
//! need that too. [`EmittedKernel::bounds_proved`] says whether stores and 32-bit index arithmetic are also proved, and
//! [`GeneratedModule::unproved`] lists the missing proofs. Floats are f32 in registers, whatever their storage.
//!
//! Deliberately absent: atomics, textures, calls.
#![warn(missing_docs)]

mod access;
mod across;
mod ahead;
mod barriers;
mod branches;
mod buffer_slices;
mod builder;
mod clamps;
mod error;
mod expand;
mod explicit_layout;
mod extrema;
mod generated;
mod grid;
mod guards;
mod half;
mod index;
mod joined;
mod kernel;
mod lanes;
mod layout;
mod lines;
mod loops;
mod matrices;
mod memory;
mod ops;
mod packing;
mod power;
mod remainder;
mod subgroup;
mod subgroup_size;
mod tree;
mod value;
mod words;

pub use error::EmitError;
pub use generated::{GeneratedModule, SpirvForm, WgslDialect, check_wgsl, read_wgsl};
pub use lines::lines_by_names;

use std::any::Any;
use std::sync::Arc;
use tensor_ir::int::Int;
use tensor_ir::name::Name;
use tensor_ir::plan::{EmitFailure, EmitKernel, EmittedKernel};
use tensor_ir::profile::DeviceProfile;
use tensor_ir::profile::quirks::{LOOSE_LOG_EXP, SINKS_LOADS};
use tensor_ir::tir::{LoopKind, Scope, Stmt, TensorFunction};

/// The shader generator. [`EmittedKernel::module`] holds a [`GeneratedModule`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Emitter;

impl EmitKernel for Emitter {
    fn emit(&self, f: &TensorFunction, kernel: Name, profile: &DeviceProfile) -> Result<EmittedKernel, EmitFailure> {
        emit_kernel(f, kernel, profile).map_err(EmitFailure::from)
    }
    fn spirv(&self, kernel: &EmittedKernel) -> Result<Vec<u32>, String> {
        let module = kernel.module.downcast_ref::<GeneratedModule>().ok_or("the kernel has another generator")?;
        module.emit_spirv().map_err(|e| e.to_string())
    }
    /// naga's modules, which its versions encode differently.
    fn saved_form(&self) -> &'static str {
        "naga 30.0, module 1"
    }
    fn save(&self, kernel: &EmittedKernel) -> Result<Vec<u8>, String> {
        let module = kernel.module.downcast_ref::<GeneratedModule>().ok_or("the kernel has another generator")?;
        postcard::to_stdvec(module).map_err(|e| e.to_string())
    }
    fn restore(&self, bytes: &[u8]) -> Result<Arc<dyn Any + Send + Sync>, String> {
        let module: GeneratedModule = postcard::from_bytes(bytes).map_err(|e| e.to_string())?;
        Ok(Arc::new(module))
    }
}

/// Bytes of a uniform buffer that every device takes.
const MOST_UNIFORM: u64 = 1 << 16;

/// Emits kernel `kernel` of the scheduled function `f` for a device.
///
/// # Errors
/// When the kernel is beyond the device's limits, cannot be expressed, or the lowering has a bug.
pub fn emit_kernel(f: &TensorFunction, kernel: Name, profile: &DeviceProfile) -> Result<EmittedKernel, EmitError> {
    let kernels = f.kernels();
    let body = kernels.iter().find(|k| k.0 == kernel).ok_or(EmitError::NoKernel(kernel))?.1;
    let mut symbols = tensor_ir::int::Bounds::new();
    f.symbols.iter().for_each(|(name, low, high)| symbols.insert(*name, *low, *high));
    let axes = grid::Axes::of(kernel, body, &symbols)?;
    let grid = axes.grid(kernel, profile)?;
    check_subgroups(f, kernel, &axes, profile)?;
    check_matrices(f, kernel, profile)?;

    let mut ranges = tensor_ir::int::Facts::in_words(symbols);
    let root = expand::Expander::new(f, kernel, &axes, &mut ranges).stmt(body)?;
    let root = barriers::Barriers::new(f, &axes, &root).insert(root);
    let collective = |leaf: &tree::Leaf| leaf.reads_subgroup(f);
    let guards = guards::Guards::new(f, &axes, &collective, &root);
    let root = guards.place(root);
    if let Some(var) = guards.divergent_loop(&root) {
        return Err(EmitError::unsupported(format!(
            "kernel `{kernel}`: threads run loop `{var}` unequally often, but it holds a barrier or a subgroup operation"
        )));
    }
    let root = clamps::Clamps { ranges: &mut ranges, collective: &collective }.remove(&axes, root);
    let root = if profile.quirks.has(&SINKS_LOADS) { ahead::keep_loads(f, root) } else { root };
    let layouts = layout::plan_layouts(f, &root, profile, &mut ranges)?;
    let bindings = layout::plan_bindings(f, &layouts);
    let limit = |what, needed: u64, available: u64| {
        if needed > available { Err(EmitError::Limit { kernel, what, needed, available }) } else { Ok(()) }
    };
    let rounds = profile.most_rounds().map(|most| (ranges.simplify(&root.rounds()), most));
    if let Some((Some(rounds), most)) = rounds.as_ref().map(|(e, most)| (e.as_const(), *most)) {
        limit("rounds of loops in a thread", u64::try_from(rounds).unwrap_or(u64::MAX), most)?;
    }
    limit("storage bindings", bindings.len() as u64, u64::from(profile.max_storage_buffers))?;
    let (immediate_bytes, uniform_bytes) = kernel::symbol_bytes(f, profile);
    limit("bytes of sizes in a uniform buffer", u64::from(uniform_bytes), MOST_UNIFORM)?;

    let mut emitter = kernel::KernelEmitter::new(f, kernel, &axes, &mut ranges, layouts, profile);
    (emitter.b.loose_log_exp, emitter.b.nan) = (profile.quirks.has(&LOOSE_LOG_EXP), profile.nan);
    emitter.declare_bindings(&bindings);
    emitter.declare_locals();
    emitter.kernel(&grid, &root)?;
    limit("bytes of workgroup memory", u64::from(emitter.shared_bytes), u64::from(profile.shared_memory))?;
    let (unproved, shared_bytes) = (emitter.unproved, emitter.shared_bytes);
    let (name, workgroup) = (entry_name(kernel), axes.workgroup_size());
    let mut generated = finish(emitter.b, &name, workgroup, unproved)?;
    generated.subgroup_sizes = profile.subgroup;
    let wgsl = generated.emit_wgsl()?;
    let lines = generated.lines(&wgsl);
    debug_assert!(lines.is_some(), "the text of {name} is not in the order of its statements:\n{wgsl}");
    let (grid, open_grid) = grid.dispatch();
    Ok(EmittedKernel {
        wgsl,
        lines: lines.unwrap_or_default(),
        name,
        workgroup,
        grid,
        open_grid,
        open_rounds: rounds.filter(|(e, _)| e.as_const().is_none()),
        bindings,
        immediate_bytes,
        uniform_bytes,
        shared_bytes,
        bounds_proved: generated.bounds_proved,
        module: Arc::new(generated),
    })
}

/// Buffers that are distributed over a subgroup need subgroups of exactly that size, along x; buffers that threads only
/// combine need all threads along x, with subgroups of any size.
fn check_subgroups(
    f: &TensorFunction,
    kernel: Name,
    axes: &grid::Axes,
    profile: &DeviceProfile,
) -> Result<(), EmitError> {
    let mut used = Vec::new();
    let mut read = Vec::new();
    for (_, body) in f.kernels().iter().filter(|k| k.0 == kernel) {
        used.extend(body.blocks().iter().map(|b| b.buffer));
        let mut combined = Vec::new();
        body.visit(&mut |s| {
            if let Stmt::For(l) = s
                && l.kind == LoopKind::Combine
            {
                combined.extend(l.body.blocks().iter().map(|b| b.name));
            }
        });
        read.extend(body.blocks().into_iter().filter(|b| !combined.contains(&b.name)));
    }
    for (id, b) in f.buffers.iter() {
        let Scope::Subgroup { size, .. } = b.scope else { continue };
        if !used.contains(&id) {
            continue;
        }
        let x = axes.workgroup()[0];
        let fits = match read.iter().any(|b| b.reads(id)) {
            true => profile.fixed_subgroup() == Some(size) && x.is_multiple_of(size),
            false => profile.subgroup.0 > 0 && x == size,
        };
        if !fits {
            return Err(EmitError::unsupported(format!(
                "kernel `{kernel}`: `{}` is distributed over {size} lanes; the device has subgroups of {} to {}, the workgroup {x} threads along x",
                b.name, profile.subgroup.0, profile.subgroup.1
            )));
        }
    }
    Ok(())
}

/// Matrices in fragments need matrix units of the device that have their types and extents.
fn check_matrices(f: &TensorFunction, kernel: Name, profile: &DeviceProfile) -> Result<(), EmitError> {
    for (_, body) in f.kernels().iter().filter(|k| k.0 == kernel) {
        for block in body.blocks() {
            let b = &f.buffers[block.buffer];
            let Scope::Fragment(role) = b.scope else { continue };
            let extents: Vec<i64> = b.shape.iter().rev().take(2).rev().filter_map(Int::as_const).collect();
            let fits = profile.matrix_shapes.iter().any(|s| role.fits(s, b.dtype, &extents));
            if !fits {
                let what = format!("matrix units for {} matrices of {}{extents:?}", role.word(), b.dtype);
                return Err(EmitError::Lacks { kernel, what });
            }
        }
    }
    Ok(())
}

/// A name that is an identifier in every target. It ends in an underscore after a digit or a reserved word, which is
/// what naga would make of it in texts but not in SPIR-V.
fn entry_name(kernel: Name) -> String {
    let clean: String = kernel.as_str().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let clean = clean.trim_matches('_');
    let mut name = String::new();
    if !clean.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.push('k');
    }
    for c in clean.chars() {
        if c != '_' || !name.ends_with('_') {
            name.push(c);
        }
    }
    let words = [naga::keywords::wgsl::RESERVED, naga::keywords::wgsl::BUILTIN_IDENTIFIERS];
    let reserved = words.iter().any(|list| list.contains(&name.as_str()));
    if reserved || name.ends_with(|c: char| c.is_ascii_digit()) { name + "_" } else { name }
}

/// Makes the entry point and validates.
fn finish(
    mut b: builder::Builder,
    name: &str,
    workgroup_size: [u32; 3],
    unproved: Vec<String>,
) -> Result<GeneratedModule, EmitError> {
    let mut function = b.function;
    function.body = std::mem::take(&mut b.scopes).pop().expect("the outermost scope").into_block();
    let sources = std::mem::replace(&mut b.sources, lines::Sources::new());
    function.body.push(naga::Statement::Return { value: None }, naga::Span::UNDEFINED);
    let outline = lines::Outline::take(sources, &mut function);
    b.module.entry_points.push(naga::EntryPoint {
        name: name.to_string(),
        stage: naga::ShaderStage::Compute,
        early_depth_test: None,
        workgroup_size,
        workgroup_size_overrides: None,
        function,
        mesh_info: None,
        task_payload: None,
        incoming_ray_payload: None,
    });
    GeneratedModule::new(b.module, name.to_string(), b.capabilities, unproved, outline)
}
