//! Names in tables: source nodes, short names of layers, labels of groups, kernels and their files.

use compiler::text::edit_distance;
use compiler::trace::{CompileTrace, Group};

/// Names that are offered for one that is not there.
const OFFERED: usize = 5;

/// The meaning of a name.
pub struct Named {
    /// The source node; the group's own name where no node has this one.
    pub node: String,
    /// The groups, in the order they run.
    pub groups: Vec<usize>,
}

/// What `name` is in the compilation: a node, else a layer, a group or a kernel as tables call them. Without groups it
/// is no name of theirs; remarks may still know it.
pub fn find(t: &CompileTrace, name: &str) -> Named {
    let exact = t.groups_of_node(name);
    if !exact.is_empty() {
        return Named { node: name.to_string(), groups: exact };
    }
    let with = |holds: &dyn Fn(&Group) -> bool| -> Vec<usize> {
        (0..t.groups.len()).filter(|&i| holds(&t.groups[i])).collect()
    };
    let of_kernel = || {
        let named = |i: &usize| t.kernels[*i].name == name || t.kernels[*i].file(*i) == name;
        (0..t.kernels.len()).find(named).map_or(vec![], |k| t.groups_of(k))
    };
    let groups = [with(&|g| g.label == name), with(&|g| short(g) == name), of_kernel()];
    let groups = groups.into_iter().find(|list| !list.is_empty()).unwrap_or_default();
    let node = groups.first().map_or(name, |&i| t.groups[i].layer.as_str()).to_string();
    Named { node, groups }
}

/// `layer2.0.conv1` of `layer2.0.conv1+batch_norm+relu`.
fn short(g: &Group) -> &str {
    let ops = g.label.find(['+', ':']).filter(|_| !g.origins.contains(&g.label));
    ops.map_or(g.label.as_str(), |at| &g.label[..at])
}

/// All names that [`find`] takes.
pub fn all(t: &CompileTrace) -> Vec<String> {
    let of_group =
        |g: &Group| [vec![g.label.clone(), short(g).to_string()], g.origins.clone(), g.nodes.clone()].concat();
    let mut out: Vec<String> = t.groups.iter().flat_map(of_group).collect();
    out.extend(t.kernels.iter().map(|k| k.name.clone()));
    out
}

/// The names that are most like one that is not there, as a question; nothing where none is.
pub fn did_you_mean(name: &str, known: Vec<String>) -> Option<String> {
    // Exporters separate the parts of a path by `/`, frameworks by dots.
    let plain = |text: &str| text.trim_matches('/').replace('/', ".").to_lowercase();
    let asked = plain(name);
    let mut near: Vec<(usize, String)> = vec![];
    for k in known {
        let there = plain(&k);
        let distance = match there.contains(&asked) || (there.len() > 3 && asked.contains(&there)) {
            true => there.len().abs_diff(asked.len()).min(asked.len() / 3),
            false => edit_distance(&asked, &there),
        };
        if distance <= 2.max(asked.len() / 3) && !near.iter().any(|n| n.1 == k) {
            near.push((distance, k));
        }
    }
    near.sort();
    near.truncate(OFFERED);
    let names: Vec<String> = near.into_iter().map(|n| n.1).collect();
    (!names.is_empty()).then(|| format!("did you mean: {}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_are_offered() {
        let known = || ["/layer1/conv1/Conv", "layer1.conv1", "/fc/Gemm"].map(String::from).to_vec();
        let offered = |name: &str| did_you_mean(name, known());
        assert_eq!(offered("layer1.conv2").as_deref(), Some("did you mean: layer1.conv1"));
        assert_eq!(offered("conv1").as_deref(), Some("did you mean: /layer1/conv1/Conv, layer1.conv1"));
        assert_eq!(offered("layer1/conv1").as_deref(), Some("did you mean: layer1.conv1, /layer1/conv1/Conv"));
        assert_eq!(offered("nothing like it"), None);
    }
}
