//! Scans a whole model for unsupported operators before anything is imported.

use super::super::OnnxImport;
use super::super::error::{ImportError, OLDEST_OPSET, UnsupportedOp};
use super::super::proto::{FunctionProto, NodeProto};
use super::control::Control;
use super::node_ref::node_name;
use super::{Environment, Importer, Opsets, canonical_domain};
use crate::name::Name;
use crate::ops::find_onnx;
use indexmap::IndexMap;
use rustc_hash::FxHashSet;

/// The importer of a node.
pub(super) enum Resolved<'p> {
    /// A function of the model, inlined.
    Function(&'p FunctionProto),
    /// The importer itself.
    Control(Control),
    /// The row of an op, with the opset.
    Row(&'static OnnxImport, i64),
    /// Nothing: why not.
    Nothing(String),
}

impl<'p> Importer<'p> {
    /// Refuses operators that nothing imports, all at once.
    ///
    /// # Errors
    /// The unsupported operators, or an opset that is too old.
    pub(super) fn check_support(&self) -> Result<(), ImportError> {
        let unsupported = unsupported_ops(self);
        match self.opsets.get("") {
            _ if unsupported.is_empty() => Ok(()),
            Some(version) if version < OLDEST_OPSET => Err(ImportError::OldOpset { version }),
            _ => Err(ImportError::Unsupported(unsupported)),
        }
    }

    /// What imports `node`: functions of the model go first, then the rows of the ops.
    pub(super) fn resolve(&self, env: &Environment<'p>, node: &NodeProto) -> Resolved<'p> {
        let domain = canonical_domain(node.domain.as_deref());
        let op = node.op_type.as_deref().unwrap_or("");
        if let Some(f) = self.functions.get(&(domain, op)) {
            return Resolved::Function(f);
        }
        let Some(opset) = self.opset(env, domain) else {
            return Resolved::Nothing("the model imports no opset of ai.onnx".into());
        };
        if let Some(row) = find_onnx(domain, op, opset) {
            return Resolved::Row(row, opset);
        }
        match Control::find(domain, op) {
            Some(c) => Resolved::Control(c),
            None if domain.is_empty() && find_onnx("", op, i64::MAX).is_some() => {
                Resolved::Nothing(format!("not in opset {opset}"))
            }
            None => Resolved::Nothing("no such operator here".into()),
        }
    }
}

/// Every operator of the model that nothing imports, by domain and op type, branches and functions included.
pub(crate) fn unsupported_ops(importer: &Importer<'_>) -> Vec<UnsupportedOp> {
    let mut scan = SupportCheck { importer, visited: FxHashSet::default(), found: IndexMap::new() };
    let env = Environment { opsets: None, prefix: String::new(), attrs: None, calls: vec![] };
    scan.nodes(&importer.graph.node, &env);
    let entry = |((domain, op), (nodes, why))| UnsupportedOp { op, domain, nodes, why };
    scan.found.into_iter().map(entry).collect()
}

struct SupportCheck<'i, 'p> {
    importer: &'i Importer<'p>,
    visited: FxHashSet<(&'p str, &'p str)>,
    found: IndexMap<(String, String), (Vec<Name>, String)>,
}

impl<'p> SupportCheck<'_, 'p> {
    fn nodes(&mut self, nodes: &'p [NodeProto], env: &Environment<'p>) {
        for (i, node) in nodes.iter().enumerate() {
            match self.importer.resolve(env, node) {
                Resolved::Nothing(why) => {
                    let domain = canonical_domain(node.domain.as_deref()).to_string();
                    let key = (domain, node.op_type.clone().unwrap_or_default());
                    let name = node_name(&env.prefix, node, i);
                    self.found.entry(key).or_insert_with(|| (vec![], why)).0.push(name);
                }
                Resolved::Function(f) => self.function(f),
                Resolved::Control(_) | Resolved::Row(..) => {}
            }
            for g in node.attribute.iter().filter_map(|a| a.g.as_ref()) {
                let prefix = format!("{}{}/", env.prefix, node_name("", node, i));
                let inner = Environment { opsets: None, prefix, attrs: None, calls: vec![] };
                self.nodes(&g.node, &inner);
            }
        }
    }

    fn function(&mut self, f: &'p FunctionProto) {
        let key = (f.domain.as_deref().unwrap_or(""), f.name.as_deref().unwrap_or(""));
        if self.visited.insert(key) {
            let prefix = format!("{}/", key.1);
            let env = Environment { opsets: Some(Opsets::new(&f.opset_import)), prefix, attrs: None, calls: vec![] };
            self.nodes(&f.node, &env);
        }
    }
}
