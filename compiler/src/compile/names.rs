//! Names of groups and kernels: the source node that represents a group, and the ops fused with it.
//!
//! A name depends on the model alone: the anchor of the group's first call, and its source ops in the model's order. It
//! does not depend on other kernels, unless two would have the same name. The name (`PlanKernel::name`) is the same in
//! `compile`, `bench`, traces, file names and the labels that GPU debuggers show. The shader's entry point keeps the
//! name of the tensor function's kernel instead, so that equal code is equal text.

use crate::graph::Module;
use crate::int::Cond;
use crate::name::Name;
use crate::ops::control::Const;
use indexmap::IndexMap;
use rustc_hash::FxHashSet;

/// Ops that a name lists; of more it says how many.
const LISTED: usize = 5;

/// The nodes of the model before any pass, in order: name and op.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources(IndexMap<Name, &'static str>);

impl Sources {
    /// All nodes of a module but constants.
    pub fn of(module: &Module) -> Sources {
        let nodes = module.functions.values().flat_map(|f| f.walk().into_iter().map(|n| &f.nodes[n]));
        Sources(nodes.filter(|n| !n.op.is::<Const>()).map(|n| (n.name, n.op.name())).collect())
    }
    /// True when one of `names` is a node of the model with this op.
    pub fn holds(&self, names: &[Name], op: &str) -> bool {
        names.iter().any(|n| self.0.get(n).is_some_and(|o| *o == op))
    }
    /// Those of `names` that are nodes of the model, in its order, with their ops.
    fn ordered(&self, names: &[Name]) -> Vec<(Name, &'static str)> {
        let mut found: Vec<(usize, Name, &'static str)> =
            names.iter().filter_map(|n| self.0.get_full(n).map(|(i, n, op)| (i, *n, *op))).collect();
        found.sort_by_key(|f| f.0);
        found.into_iter().map(|(_, name, op)| (name, op)).collect()
    }
}

/// The name of a group.
pub(super) struct Label {
    /// The source node that represents it.
    pub layer: Name,
    /// The node's short name and the ops fused with it.
    pub text: String,
}

/// The label of a group whose nodes have these names, ops and origins; `main` is the node that represents it.
pub(super) fn label(
    origins: &[Name],
    main: (&'static str, &[Name], Name),
    ops: &[&'static str],
    sources: &Sources,
) -> Label {
    let (op, own, name) = main;
    let of_main = sources.ordered(own);
    // The source node of the same op; or, for an inserted node, the node that it serves.
    let exact = of_main.iter().find(|s| s.1 == op).copied();
    let (layer, layer_op) = exact.or(of_main.first().copied()).unwrap_or((own.first().copied().unwrap_or(name), op));
    let short = short_name(layer.as_str(), layer_op);
    if exact.is_none() && !of_main.is_empty() {
        return Label { layer, text: format!("{short}:{}", listed(ops, "+")) };
    }
    let sourced = sources.ordered(origins);
    let fused: Vec<&str> = match sourced.is_empty() {
        true => ops.iter().copied().filter(|o| *o != op).collect(),
        false => sourced.into_iter().filter(|s| s.0 != layer).map(|s| s.1).collect(),
    };
    let joined = if fused.is_empty() { String::new() } else { format!("+{}", listed(&fused, "+")) };
    Label { layer, text: short + &joined }
}

fn listed(ops: &[&str], between: &str) -> String {
    let mut text = ops.iter().take(LISTED).copied().collect::<Vec<_>>().join(between);
    if ops.len() > LISTED {
        text += &format!("{between}{}more", ops.len() - LISTED);
    }
    text
}

/// `layer2.0.conv1` of `/layer2/layer2.0/conv1/Conv`: exporters end a path with the op, and repeat the path so far.
fn short_name(name: &str, op: &str) -> String {
    let plain = |t: &str| t.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    let mut parts: Vec<String> = name.split('/').filter(|p| !p.is_empty()).map(str::to_string).collect();
    if let [.., before, last] = parts.as_mut_slice() {
        let base = last.trim_end_matches(|c: char| c.is_ascii_digit());
        let (base, number) = match base.strip_suffix('_') {
            Some(base) if base.len() + 1 < last.len() => (base, last[base.len()..].to_string()),
            _ => (last.as_str(), String::new()),
        };
        if plain(base) == plain(op) {
            before.push_str(&number);
            parts.pop();
        }
    }
    let repeated = |i: usize| {
        let next = parts.get(i + 1).and_then(|n| n.strip_prefix(parts[i].as_str()));
        next.is_some_and(|rest| rest.starts_with('.'))
    };
    let kept: Vec<&str> = (0..parts.len()).filter(|&i| !repeated(i)).map(|i| parts[i].as_str()).collect();
    if kept.is_empty() { name.to_string() } else { kept.join(".") }
}

/// Names that are given once each.
#[derive(Default)]
pub(super) struct KernelNames {
    given: FxHashSet<String>,
}

impl KernelNames {
    /// The name of a kernel whose first call is in the group with this label. `part` distinguishes kernels of the same
    /// function, the conditions `when` versions.
    pub fn give(&mut self, label: &str, part: Option<Name>, when: &[Cond]) -> String {
        let mut base = match part {
            None => label.to_string(),
            Some(part) => format!("{label}/{part}"),
        };
        if !when.is_empty() {
            let conditions: Vec<String> = when.iter().map(|c| c.to_string().replace(' ', "")).collect();
            base += &format!("[{}]", conditions.join(","));
        }
        let numbered = (2..).map(|i| format!("{base}~{i}"));
        let mut all = std::iter::once(base.clone()).chain(numbered);
        let name = all.find(|n| !self.given.contains(n)).unwrap_or(base.clone());
        self.given.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(list: &[(&str, &'static str)]) -> Sources {
        Sources(list.iter().map(|(n, op)| (Name::new(n), *op)).collect())
    }

    #[test]
    fn paths_become_short() {
        for (name, op, short) in [
            ("/layer2/layer2.0/conv1/Conv", "conv", "layer2.0.conv1"),
            ("/layer1/layer1.0/downsample/downsample.0/Conv", "conv", "layer1.0.downsample.0"),
            ("/layer1/layer1.0/relu/Relu_2", "relu", "layer1.0.relu_2"),
            ("/avgpool/GlobalAveragePool", "global_average_pool", "avgpool"),
            ("Conv_3", "conv", "Conv_3"),
            ("/Add", "add", "Add"),
            ("a:0", "relu", "a:0"),
        ] {
            assert_eq!(short_name(name, op), short, "{name}");
        }
    }

    #[test]
    fn a_label_names_the_anchor_and_what_is_fused() {
        let s = sources(&[("/a/Conv", "conv"), ("/b/BatchNormalization", "batch_norm"), ("/c/Relu", "relu")]);
        let n = |list: &[&str]| list.iter().map(|t| Name::new(t)).collect::<Vec<_>>();
        let all = n(&["/a/Conv", "/b/BatchNormalization", "/c/Relu"]);
        let of = |own: &[&str], op, origins: &[Name], ops: &[&'static str]| {
            let own = n(own);
            label(origins, (op, &own, Name::new("node")), ops, &s)
        };
        let fused = of(&["/a/Conv", "/b/BatchNormalization"], "conv", &all, &["transpose", "conv", "relu"]);
        assert_eq!((fused.layer.as_str(), fused.text.as_str()), ("/a/Conv", "a+batch_norm+relu"));
        assert_eq!(of(&["/c/Relu"], "relu", &all[2..], &["relu"]).text, "c");
        // What a pass has put in serves a node, and is not that node.
        let served = of(&["/a/Conv"], "transpose", &all[..1], &["transpose", "cast"]);
        assert_eq!((served.layer.as_str(), served.text.as_str()), ("/a/Conv", "a:transpose+cast"));
        assert_eq!(of(&[], "relu", &[], &["relu", "add"]).text, "node+add");
    }
}
