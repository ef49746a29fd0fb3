//! Recording a compilation: the module's text after each pass, as deltas.

use super::delta::TextDelta;
use super::{SourceNode, Stage};
use crate::graph::{Constant, Module};
use crate::name::Name;
use crate::ops::control::Const;
use crate::passes::{PassContext, PassInfo, PassInstrument, PassStats};
use crate::text::print_module;
use indexmap::IndexMap;
use std::sync::{Arc, Mutex};

/// The recorded stages of a compilation.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    /// The module before the passes, after each of them, lowered, and scheduled.
    pub stages: Vec<Stage>,
    /// Nodes of the model.
    pub sources: Vec<SourceNode>,
    /// Constants of the model; their data is shared with the module.
    pub constants: IndexMap<Name, Constant>,
    /// Text of the last stage.
    text: String,
}

impl Recording {
    fn push(&mut self, label: &str, text: String) {
        self.stages.push(Stage { label: label.into(), delta: TextDelta::between(&self.text, &text) });
        self.text = text;
    }
}

/// An instrument that records the text after each pass. Clones share one recording.
#[derive(Clone, Default)]
pub struct StageRecorder(Arc<Mutex<Recording>>);

impl StageRecorder {
    /// Starts with the module as it came in.
    pub fn new(module: &Module) -> StageRecorder {
        let mut r = Recording { constants: module.constants.clone(), ..Recording::default() };
        for f in module.functions.values() {
            let nodes = f.walk().into_iter().map(|n| &f.nodes[n]).filter(|n| !n.op.is::<Const>());
            r.sources.extend(nodes.map(|n| SourceNode {
                name: n.name.to_string(),
                op: n.op.name().into(),
                origins: n.origins.names().iter().map(Name::to_string).collect(),
            }));
        }
        r.push("source", print_module(module));
        StageRecorder(Arc::new(Mutex::new(r)))
    }
    /// Adds a stage that no pass made.
    pub fn add(&self, label: &str, module: &Module) {
        if let Ok(mut r) = self.0.lock() {
            r.push(label, print_module(module));
        }
    }
    /// What was recorded so far; the recorder is empty then.
    pub fn finish(&self) -> Recording {
        self.0.lock().map(|mut r| std::mem::take(&mut *r)).unwrap_or_default()
    }
}

impl PassInstrument for StageRecorder {
    fn after_pass(&mut self, module: &Module, pass: PassInfo, stats: &PassStats, _cx: &mut PassContext) {
        let Ok(mut r) = self.0.lock() else { return };
        match stats.changed {
            true => r.push(pass.name, print_module(module)),
            false => r.stages.push(Stage { label: pass.name.into(), delta: TextDelta::default() }),
        }
    }
}
