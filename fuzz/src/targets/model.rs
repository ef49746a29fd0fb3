//! The command's work on a loaded model: its summary, compilation, and a run.

use compiler::compile::{CompileError, CompileOptions, Compiled, compile};
use compiler::graph::{Module, bind_dims, open_dims};
use compiler::inspect::{count_macs, inspect_module};
use compiler::interpreter::run_function;
use compiler::profile::DeviceProfile;
use compiler::tensor::Tensor;
use compiler::text::{compare_modules, parse_module, print_module, random_tensor};
use shaders_gen::Emitter;

/// Elements of all values of a model that is run.
const MOST_ELEMENTS: usize = 1 << 20;

/// Multiplications of a model that is run.
const MOST_MACS: u64 = 1 << 22;

/// Printed text must parse to the same module, and print the same again.
///
/// # Errors
/// A message where it does not.
pub fn check_text(module: &Module) -> Result<(), String> {
    let text = print_module(module);
    let again = parse_module(&text).map_err(|e| format!("printed text does not parse: {e}"))?;
    compare_modules(module, &again).map_err(|e| format!("printed text is another module: {e}"))?;
    if print_module(&again) != text {
        return Err("printed text prints otherwise once parsed".into());
    }
    Ok(())
}

/// Inspects, compiles for a profile that every kernel rule serves, and runs what is small.
///
/// # Errors
/// What is a bug of Weft.
pub fn use_module(mut module: Module) -> Result<&'static str, String> {
    let _ = serde_json::to_string(&inspect_module(&module));
    let open: Vec<_> = open_dims(&module).into_iter().map(|d| (d, 1)).collect();
    if bind_dims(&mut module, &open).is_err() {
        return Ok("open");
    }
    let run = is_small(&module);
    match compile_for(module.clone(), &DeviceProfile::lavapipe())? {
        Some(_) if run && run_module(&module) => Ok("run"),
        Some(_) => Ok("compiled"),
        None if run && run_module(&module) => Ok("run on the host alone"),
        None => Ok("not compiled"),
    }
}

/// A compilation; `None` where it is refused.
///
/// # Errors
/// What the command would call a bug.
pub fn compile_for(module: Module, profile: &DeviceProfile) -> Result<Option<Compiled>, String> {
    let options = CompileOptions { verify: true, ..CompileOptions::default() };
    match compile(module, &options, profile, &Emitter, &mut |_, _, _| ()) {
        Ok(c) => Ok(Some(c)),
        Err(CompileError::Bug { at, message }) => Err(format!("bug in {at}: {message}")),
        Err(CompileError::Pass(e)) => Err(format!("bug in pass {}: {}", e.pass, e.message)),
        Err(_) => Ok(None),
    }
}

fn is_small(module: &Module) -> bool {
    let mut sizes = module.functions.values().flat_map(|f| f.values.iter().map(|v| v.1.ty.bytes()));
    let total = sizes.try_fold(0usize, |sum, b| sum.checked_add(b.unwrap_or(0)));
    total.is_some_and(|t| t <= MOST_ELEMENTS) && count_macs(module).unwrap_or(0) <= MOST_MACS
}

/// Runs the entry on random inputs; true when it gave results.
fn run_module(module: &Module) -> bool {
    let Some(main) = module.functions.get(&module.entry) else { return false };
    let mut inputs: Vec<Tensor> = Vec::new();
    for (i, &p) in main.params().iter().enumerate() {
        let Some(shape) = main.ty(p).const_shape() else { return false };
        inputs.push(random_tensor(main.ty(p).dtype, &shape, i as u64));
    }
    run_function(module, module.entry, &inputs).is_ok()
}
