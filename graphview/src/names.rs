//! Names in tables: source nodes, short names of layers, labels of groups, kernels and their files.

use compiler::text::edit_distance;
use compiler::trace::{CompileTrace, Group};
use std::collections::{BTreeSet, HashMap};

/// Names that are offered for one that is not there.
const OFFERED: usize = 5;

/// The meaning of a name.
pub struct Named {
    /// The source node; the group's own name where no node has this one.
    pub node: String,
    /// The groups, in the order they run.
    pub groups: Vec<usize>,
}

/// What `name` is in the compilation: a node, else a layer, a group, a kernel or a tensor function as tables call them.
/// Without groups it is no name of theirs; remarks may still know it.
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
    let of_function = with(&|g| g.tensor_function.as_deref() == Some(name));
    let groups = [with(&|g| g.label == name), with(&|g| short(g) == name), of_kernel(), of_function];
    let groups = groups.into_iter().find(|list| !list.is_empty()).unwrap_or_default();
    let node = groups.first().map_or(name, |&i| t.groups[i].layer.as_str()).to_string();
    Named { node, groups }
}

/// `layer2.0.conv1` of `layer2.0.conv1+batch_norm+relu`.
fn short(g: &Group) -> &str {
    let ops = g.label.find(['+', ':']).filter(|_| !g.origins.contains(&g.label));
    ops.map_or(g.label.as_str(), |at| &g.label[..at])
}

/// The parts of a node's name: paths of exporters repeat the beginning of each part (`/layer1/layer1.0/conv1`).
pub fn parts(name: &str) -> Vec<&str> {
    let all: Vec<&str> = name.split('/').filter(|p| !p.is_empty()).collect();
    let repeated = |i: usize| {
        let rest = all.get(i + 1).and_then(|next| next.strip_prefix(all[i]));
        rest.is_some_and(|rest| rest.starts_with('.'))
    };
    (0..all.len()).filter(|&i| !repeated(i)).map(|i| all[i]).collect()
}

/// `layer1.0.conv1.Conv` of `/layer1/layer1.0/conv1/Conv`.
pub fn path(name: &str) -> String {
    parts(name).join(".")
}

/// The layers that nodes of these names are in, each once: `layer1`, `layer1.0` and `layer1.0.conv1`.
pub fn layers<'a>(nodes: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let around = |path: String| path.match_indices('.').map(|(at, _)| path[..at].to_string()).collect::<Vec<_>>();
    nodes.flat_map(|n| around(path(n))).collect()
}

/// All names that [`find`] takes, and layers.
pub fn all(t: &CompileTrace) -> Vec<String> {
    let of_group =
        |g: &Group| [vec![g.label.clone(), short(g).to_string()], g.origins.clone(), g.nodes.clone()].concat();
    let mut out: Vec<String> = t.groups.iter().flat_map(of_group).collect();
    out.extend(t.kernels.iter().map(|k| k.name.clone()));
    out.extend(layers(t.groups.iter().flat_map(|g| g.origins.iter().map(String::as_str))));
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

/// The beginning and the end of a name in so many characters.
fn middle(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.into();
    }
    let start = most.saturating_sub(1) / 2;
    let end = most.saturating_sub(start + 1);
    let skipped = name.chars().skip(count - end);
    format!("{}…{}", name.chars().take(start).collect::<String>(), skipped.collect::<String>())
}

/// The characters of a name from a little before `at` on.
fn around(name: &str, at: usize, most: usize) -> String {
    let from = at.saturating_sub(most / 3).max(1);
    let part: String = name.chars().skip(from).take(most.saturating_sub(2)).collect();
    let cut = name.chars().count() > from + part.chars().count();
    format!("…{part}{}", if cut { "…" } else { "" })
}

/// Names in so many characters each, as `cut` makes them; where different names would be equal, their middle is left
/// out, and where that is what they differ in, what is around it is shown.
pub fn cut_apart(names: &[&str], most: usize, cut: impl Fn(usize, usize) -> String) -> Vec<String> {
    let mut out: Vec<String> = (0..names.len()).map(|i| cut(i, most)).collect();
    for way in 0..2 {
        let mut alike: HashMap<String, Vec<usize>> = HashMap::new();
        out.iter().enumerate().for_each(|(i, text)| alike.entry(text.clone()).or_default().push(i));
        for list in alike.into_values().filter(|l| l.iter().any(|&i| names[i] != names[l[0]])) {
            let first = names[list[0]];
            let shared = |&i: &usize| first.chars().zip(names[i].chars()).take_while(|(a, b)| a == b).count();
            let at = list.iter().filter(|&&i| names[i] != first).map(shared).min().unwrap_or(0);
            for i in list {
                out[i] = if way == 0 { middle(names[i], most) } else { around(names[i], at, most) };
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_what_nodes_are_in() {
        let nodes = ["/layer1/layer1.0/conv1/Conv", "/layer1/layer1.0/relu/Relu", "Add_7"];
        let want = ["layer1", "layer1.0", "layer1.0.conv1", "layer1.0.relu"];
        assert_eq!(layers(nodes.into_iter()).into_iter().collect::<Vec<_>>(), want);
    }

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
