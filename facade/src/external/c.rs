//! The external target `c`: regions become C from their own schedules, which the system's compiler builds into a shared
//! object that the process loads. It needs a compiler when a session opens, and nothing else.

use c_source::{Build, Lines, check_compiler};
use compiler::compile::{CompileOptions, Compiled, compile};
use compiler::cost::NodeForm;
use compiler::external::{ExternalTarget, Prepared, Region, TargetOptions};
use compiler::graph::{FunctionBuilder, Module, ValueId};
use compiler::name::Name;
use compiler::tensor::{Tensor, TensorMut};
use compiler::text::{print_module, random_tensor};
use libloading::Library;
use runtime_cpu::{Isa, Processor};
use std::collections::HashMap;
use std::ffi::c_void;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The target.
pub static TARGET: CSource = CSource { known: LazyLock::new(Mutex::default) };

/// C of Weft's own kernels.
pub struct CSource {
    /// Nodes that were asked about, as text, and why they do not become C.
    known: LazyLock<Mutex<HashMap<String, Result<(), String>>>>,
}

/// Compiles a network for one thread of this machine's CPU, as C.
///
/// # Errors
/// What the compiler says, and what does not become C.
fn c_of(module: &Module) -> Result<(Compiled, Vec<c_source::File>), String> {
    let processor = Processor::open(1, None).map_err(|e| e.to_string())?;
    let (options, profile) = (CompileOptions::default(), processor.profile());
    let compiled = compile(module.clone(), &options, &profile, &c_source::Emitter, &mut |_, _, _| ());
    let compiled = compiled.map_err(|e| e.to_string())?;
    let files = files_of(&compiled, "a region")?;
    Ok((compiled, files))
}

/// The files of a compiled network.
///
/// # Errors
/// What does not become C, and constants that cannot be read.
pub fn files_of(compiled: &Compiled, name: &str) -> Result<Vec<c_source::File>, String> {
    c_source::program(&compiled.plan, &|b| crate::packed_constant(compiled, b, Isa::best()), name)
}

/// A module of this node alone.
fn alone(node: &NodeForm) -> Result<Module, String> {
    let mut module = Module::new("main");
    let mut b = FunctionBuilder::new(&mut module, "main");
    let mut operands: Vec<Option<ValueId>> = vec![];
    for (i, input) in node.inputs.iter().enumerate() {
        let Some((ty, constant)) = input else {
            operands.push(None);
            continue;
        };
        let shape = ty.const_shape().ok_or("its sizes are open")?;
        operands.push(Some(match constant {
            true => b.constant(&format!("c{i}"), &random_tensor(ty.dtype, &shape, 1)),
            false => b.param(format!("x{i}").as_str(), ty.clone()),
        }));
    }
    let results = b.add_multi(node.op.clone(), operands, vec![]).map_err(|e| e.to_string())?;
    let results: Vec<(Name, ValueId)> =
        results.into_iter().enumerate().map(|(i, v)| (Name::new(&format!("y{i}")), v)).collect();
    b.finish(&results);
    Ok(module)
}

impl ExternalTarget for CSource {
    fn name(&self) -> &'static str {
        "c"
    }
    fn options(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("compiler", "the C compiler; `cc` by default"),
            ("folder", "a folder, into which the C of each region is written; none is kept by default"),
        ]
    }
    fn machine_options(&self) -> &'static [&'static str] {
        &["compiler", "folder"]
    }
    fn check(&self, options: &TargetOptions) -> Result<(), String> {
        check_compiler(options.get("compiler").unwrap_or("cc"))
    }
    fn supports(&self, node: &NodeForm, _: &TargetOptions) -> Result<(), String> {
        if !node.inputs.iter().flatten().map(|i| &i.0).chain(&node.outputs).all(|t| t.const_shape().is_some()) {
            return Err("its sizes are open, and C has fixed sizes".into());
        }
        let module = alone(node)?;
        let text = print_module(&module);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(text).or_insert_with(|| c_of(&module).map(|_| ())).clone()
    }
    fn prepare(&self, region: Region, options: &TargetOptions) -> Result<Box<dyn Prepared>, String> {
        let (compiled, files) = c_of(region.module())?;
        // The name may be one of the network's file, which must not leave the folder.
        let plain = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
        let name: String = region.function().name.as_str().chars().map(plain).collect();
        let build = Build {
            compiler: options.get("compiler").unwrap_or("cc"),
            level: "-O3",
            folder: options.get("folder").map(|f| Path::new(f).join(name)),
            libraries: vec![],
        };
        let library = build.load(&files)?;
        // SAFETY: `network.h` declares this type.
        let run = unsafe { library.get::<Run>(b"network_run") }.map(|s| *s).map_err(|e| e.to_string())?;
        let weights = files.iter().find(|f| f.name == "weights.bin").map_or(&[][..], |f| &f.bytes[..]);
        Ok(Box::new(Loaded {
            run,
            weights: Lines::with(weights),
            arena_bytes: c_source::arena_bytes(&compiled.plan) as usize,
            _library: library,
        }))
    }
}

/// `network_run`
type Run = unsafe extern "C" fn(*const c_void, *mut c_void, *const *const c_void, *const *mut c_void);

/// A region that is ready to run.
struct Loaded {
    run: Run,
    weights: Lines,
    arena_bytes: usize,
    _library: Library,
}

impl Prepared for Loaded {
    fn run(&self, inputs: &[Tensor], outputs: &mut [TensorMut]) -> Result<(), String> {
        let mut arena = Lines::of(self.arena_bytes);
        let from: Vec<*const c_void> = inputs.iter().map(|t| t.bytes().as_ptr().cast()).collect();
        let to: Vec<*mut c_void> = outputs.iter_mut().map(|t| t.bytes_mut().as_mut_ptr().cast()).collect();
        // SAFETY: the pointers are to as many elements as the region's types say, which the caller checks; weights and
        // arena have the sizes of the plan that the code was written from, and the arena is this run's own.
        unsafe {
            (self.run)(self.weights.start(), arena.start_mut(), from.as_ptr(), to.as_ptr());
        }
        Ok(())
    }
}
