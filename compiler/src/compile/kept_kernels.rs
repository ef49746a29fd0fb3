//! Kernels of open sizes as bytes, for the cache on disk: without them a second start would spend most of its time on
//! scheduling.
//!
//! A plan of open sizes follows from the module after its passes and from its kernels, so a second start runs passes
//! and planning again and only the kernels are kept, each with the fingerprint of its input. If one does not match, all
//! are made again.

use super::error::CompileError;
use super::kernels::{Built, BuiltVersion, Request, Requests};
use crate::fingerprint::Fingerprint;
use crate::int::{Cond, Int};
use crate::name::Name;
use crate::plan::{EmitKernel, EmittedKernel};
use crate::text::parse_instructions;
use crate::tir::TensorFunction;

/// Storage for the kernels of one module, one device and one list of options. The implementation must distinguish
/// builds of the program.
pub trait KeepKernels: Send + Sync {
    /// The bytes that [`KeepKernels::write`] stored, if any.
    fn read(&self) -> Option<Vec<u8>>;
    /// Keeps the kernels; a place that cannot be written costs the next start its time.
    fn write(&self, bytes: &[u8]);
}

/// A function with its kernels, but for the instructions, which are text.
#[derive(serde::Serialize, serde::Deserialize)]
struct Kept {
    before: TensorFunction,
    function: TensorFunction,
    instructions: Vec<String>,
    rule: String,
    applied: Vec<String>,
    declined: Vec<String>,
    kernels: Vec<EmittedKernel>,
    shaders: Vec<Vec<u8>>,
    versions: Vec<(Vec<Cond>, Vec<(Name, Int)>, Kept)>,
}

impl Kept {
    fn of(b: &Built, emitter: &dyn EmitKernel) -> Result<Kept, String> {
        let version = |v: &BuiltVersion| Ok((v.when.clone(), v.symbols.clone(), Kept::of(&v.built, emitter)?));
        Ok(Kept {
            before: b.before.clone(),
            function: b.function.clone(),
            instructions: b.function.trace.iter().map(|i| i.text()).collect(),
            rule: b.rule.to_string(),
            applied: b.applied.clone(),
            declined: b.declined.clone(),
            kernels: b.kernels.clone(),
            shaders: b.kernels.iter().map(|k| emitter.save(k)).collect::<Result<_, _>>()?,
            versions: b.versions.iter().map(version).collect::<Result<_, String>>()?,
        })
    }

    fn restored(self, emitter: &dyn EmitKernel) -> Option<Built> {
        let Kept { mut before, mut function, instructions, rule, applied, declined, mut kernels, shaders, versions } =
            self;
        function.trace = parse_instructions(&instructions.join("\n")).ok()?;
        if before.kernels().is_empty() {
            before.pending = function.trace.clone();
        }
        if kernels.len() != shaders.len() {
            return None;
        }
        for (kernel, shader) in kernels.iter_mut().zip(&shaders) {
            kernel.module = emitter.restore(shader).ok()?;
        }
        let version = |(when, symbols, kept): (Vec<Cond>, Vec<(Name, Int)>, Kept)| {
            Some(BuiltVersion { when, symbols, built: kept.restored(emitter)? })
        };
        let versions = versions.into_iter().map(version).collect::<Option<_>>()?;
        Some(Built { before, function, rule: Name::new(&rule).as_str(), applied, declined, kernels, versions })
    }
}

/// The inputs of a request's kernels, besides the device.
fn key(request: &Request) -> Fingerprint {
    Fingerprint::of(|w| {
        w.text(request.function.name.as_str());
        w.part(request.function.fingerprint());
        w.text(&format!("{:?}", request.constants));
    })
}

/// The kernels of all requests, where they are those that are kept.
pub(super) fn read(keep: &dyn KeepKernels, requests: &Requests, emitter: &dyn EmitKernel) -> Option<Vec<Built>> {
    let list: Vec<(String, Kept)> = postcard::from_bytes(&keep.read()?).ok()?;
    let same = list.len() == requests.list.len()
        && list.iter().zip(&requests.list).all(|((of, _), request)| *of == key(request).to_string());
    if !same {
        return None;
    }
    list.into_iter().map(|(_, kept)| kept.restored(emitter)).collect()
}

/// Keeps the kernels of all requests.
///
/// # Errors
/// A generator that does not save its shaders.
pub(super) fn write(
    keep: &dyn KeepKernels,
    requests: &Requests,
    built: &[Built],
    emitter: &dyn EmitKernel,
) -> Result<(), CompileError> {
    let fail = |message: String| CompileError::Bug { at: "keeping kernels".into(), message };
    let one = |(request, b): (&Request, &Built)| Ok((key(request).to_string(), Kept::of(b, emitter)?));
    let list = requests.list.iter().zip(built).map(one).collect::<Result<Vec<_>, String>>().map_err(fail)?;
    keep.write(&postcard::to_stdvec(&list).map_err(|e| fail(e.to_string()))?);
    Ok(())
}
