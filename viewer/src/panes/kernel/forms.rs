//! The forms of a kernel that a trace does not hold: made anew from its scheduled tensor function, on a thread of their own.

use crate::document::Document;
use compiler::graph::Module;
use compiler::name::Name;
use compiler::plan::EmittedKernel;
use compiler::profile::DeviceProfile;
use compiler::text::print_stmt;
use rspirv::binary::Disassemble;
use rustc_hash::{FxHashMap, FxHashSet};
use shaders_gen::{GeneratedModule, emit_kernel};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

/// What a trace does not hold of a kernel. Each is a text, or why there is none.
pub struct Forms {
    /// Its part of the scheduled tensor function.
    pub tensor: Result<String, String>,
    /// SPIR-V, disassembled.
    pub spirv: Result<String, String>,
    /// Metal Shading Language.
    pub msl: Result<String, String>,
    /// HLSL.
    pub hlsl: Result<String, String>,
    /// The shader made now is the one in the trace, which an older Weft may have made.
    pub same: bool,
}

/// Makes forms and keeps them.
pub struct Deriver {
    asks: Sender<usize>,
    answers: Mutex<Receiver<(usize, Arc<Forms>)>>,
    ready: FxHashMap<usize, Arc<Forms>>,
    asked: FxHashSet<usize>,
}

impl Deriver {
    /// Starts the thread; `wake` is called when a kernel is done.
    pub fn new(document: Arc<Document>, wake: impl Fn() + Send + 'static) -> Deriver {
        let (asks, kernels) = channel::<usize>();
        let (done, answers) = channel();
        std::thread::spawn(move || {
            let source = Source::new(&document);
            // It ends when the window is closed, which drops one end of each channel.
            for kernel in kernels {
                let forms = match &source {
                    Ok(source) => source.forms(&document, kernel),
                    Err(why) => nothing(why),
                };
                if done.send((kernel, Arc::new(forms))).is_err() {
                    return;
                }
                wake();
            }
        });
        Deriver { asks, answers: Mutex::new(answers), ready: FxHashMap::default(), asked: FxHashSet::default() }
    }
    /// The forms of a kernel, if they are ready; else they are asked for.
    pub fn get(&mut self, kernel: usize) -> Option<Arc<Forms>> {
        self.collect();
        let found = self.ready.get(&kernel).cloned();
        if found.is_none() && self.asked.insert(kernel) {
            // The thread lives as long as this does.
            let _ = self.asks.send(kernel);
        }
        found
    }
    /// Whether forms are being made.
    pub fn busy(&mut self) -> bool {
        self.collect();
        !self.asked.is_empty()
    }
    fn collect(&mut self) {
        let Ok(answers) = self.answers.get_mut() else { return };
        for (k, forms) in answers.try_iter() {
            self.asked.remove(&k);
            self.ready.insert(k, forms);
        }
    }
}

/// The scheduled module, and the device that it was scheduled for.
struct Source {
    module: Module,
    profile: DeviceProfile,
}

impl Source {
    fn new(document: &Document) -> Result<Source, String> {
        let stages = &document.trace().stages;
        let at = stages.iter().rposition(|s| s.label == "scheduled");
        let at = at.ok_or("this trace has no scheduled tensor functions: `weft compile -o` stores them")?;
        let profile = serde_json::from_str(&document.trace().profile);
        let profile = profile.map_err(|e| format!("the trace's device is not one that this Weft knows: {e}"))?;
        Ok(Source { module: document.module(at)?, profile })
    }

    fn forms(&self, document: &Document, kernel: usize) -> Forms {
        let k = &document.trace().kernels[kernel];
        let Some(f) = self.module.tensor_functions.get(&Name::new(&k.function)) else {
            return nothing(&format!("the tensor function `{}` is not in the trace", k.function));
        };
        let mut last = format!("the tensor function `{}` has no kernel `{}`", k.function, k.entry);
        for (name, body) in f.kernels() {
            match emit_kernel(f, name, &self.profile) {
                Ok(e) if e.name == k.entry => {
                    let mut forms = texts(&e);
                    forms.tensor = Ok(print_stmt(body, f));
                    forms.same = e.wgsl == k.wgsl;
                    return forms;
                }
                Ok(_) => {}
                Err(why) => last = why.to_string(),
            }
        }
        nothing(&last)
    }
}

fn nothing(why: &str) -> Forms {
    let no = || Err(why.to_string());
    Forms { tensor: no(), spirv: no(), msl: no(), hlsl: no(), same: true }
}

fn texts(e: &EmittedKernel) -> Forms {
    let Some(g) = e.module.downcast_ref::<GeneratedModule>() else { return nothing("the kernel has no shader") };
    let spirv = g.emit_spirv().map_err(|e| e.to_string()).and_then(|words| {
        let module = rspirv::dr::load_words(words).map_err(|e| format!("the SPIR-V cannot be taken apart: {e}"))?;
        Ok(module.disassemble())
    });
    Forms {
        tensor: Err(String::new()),
        spirv,
        msl: g.emit_msl().map_err(|e| e.to_string()),
        hlsl: g.emit_hlsl().map_err(|e| e.to_string()),
        same: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::tests::trace;

    #[test]
    fn kernels_are_made_anew_from_the_trace_alone() {
        let document = Document::new(trace()).unwrap();
        let source = Source::new(&document).unwrap();
        for k in 0..document.trace().kernels.len() {
            let forms = source.forms(&document, k);
            assert!(forms.same, "another shader for {}", document.trace().kernels[k].name);
            assert!(forms.tensor.as_ref().unwrap().contains("block "));
            assert!(forms.spirv.as_ref().unwrap().contains("OpEntryPoint GLCompute"));
            assert!(forms.msl.as_ref().unwrap().contains("kernel void"));
            assert!(forms.hlsl.as_ref().unwrap().contains("[numthreads("));
        }
    }
}
