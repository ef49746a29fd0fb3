//! The nodes of a model that a text names: as the model calls them, as tables do, or the layer around them.
//!
//! `layer1` is each node in it, `features.0` the node `/features/features.0/Conv`, and `layer1.0.conv1+relu` the node
//! that stands first in the name of a kernel. A name of the model comes before a pattern, that before a short name, and
//! that before a layer.

use crate::error::{Error, Result};
use crate::names::{did_you_mean, layers, parts, path};
use crate::progress::log_once;
use crate::settings::Settings;
use compiler::graph::Module;
use compiler::ops::control::Const;
use compiler::passes::mixed_precision::{escape_pattern, matches_pattern};
use rustc_hash::FxHashSet;

/// `layer1.0.conv1`, as tables call a node: paths of exporters end with the op, `Conv` or `Conv_2`.
fn short(name: &str, op: &str) -> String {
    let plain = |t: &str| t.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    match parts(name).as_slice() {
        [before @ .., last] if !before.is_empty() => {
            let (base, number) = match last.rsplit_once('_') {
                Some((base, n)) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => {
                    (base, &last[base.len()..])
                }
                _ => (*last, ""),
            };
            let kept = before.join(".");
            if plain(base) == plain(op) { kept + number } else { path(name) }
        }
        _ => name.to_string(),
    }
}

/// The beginning of a label or of the name of a kernel: `layer1` of `layer1+relu`, `layer1:cast` and
/// `layer1+relu/relu_0`.
pub fn base(text: &str) -> &str {
    text.find(['+', ':']).map_or(text, |at| &text[..at])
}

/// Whether `inner` is the layer `outer`, or in it; both as paths.
fn within(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '+', ':', '/']))
}

/// Whether the label or kernel `name` is in the layer `text`.
pub fn in_layer(name: &str, text: &str) -> bool {
    let layer = path(text);
    !layer.is_empty() && within(name, &layer)
}

/// Positions of the nodes that `text` names, of nodes with these names and ops; none where it names none.
pub fn find(text: &str, nodes: &[(&str, &str)]) -> Vec<usize> {
    let all = |holds: &dyn Fn(&(&str, &str)) -> bool| -> Vec<usize> {
        nodes.iter().enumerate().filter(|n| holds(n.1)).map(|n| n.0).collect()
    };
    let exact = all(&|n| n.0 == text);
    if !exact.is_empty() || text.is_empty() {
        return exact;
    }
    if text.contains(['*', '?']) {
        return all(&|n| matches_pattern(text, n.0));
    }
    let of_kernel = text.rsplit_once('/').map_or(text, |t| t.0);
    for name in [text, base(text), of_kernel] {
        let asked = path(name);
        let named = all(&|n| n.0 == name || short(n.0, n.1) == asked);
        let found = if named.is_empty() { all(&|n| within(&path(n.0), &asked)) } else { named };
        if !asked.is_empty() && !found.is_empty() {
            return found;
        }
    }
    vec![]
}

/// Every name that [`find`] takes.
pub fn known(nodes: &[(&str, &str)]) -> Vec<String> {
    let both = |n: &(&str, &str)| [n.0.to_string(), short(n.0, n.1)];
    let mut out: Vec<String> = nodes.iter().flat_map(both).collect();
    out.extend(layers(nodes.iter().map(|n| n.0)));
    out.sort();
    out.dedup();
    out
}

/// Names and source names of a module's nodes with their ops, of those in branches and bodies too.
fn nodes_of(module: &Module) -> Vec<(&str, &str)> {
    let nodes = module.functions.values().flat_map(|f| f.walk().into_iter().map(|n| &f.nodes[n]));
    let names = |n: &'_ compiler::graph::Node| {
        let all = [n.name].into_iter().chain(n.origins.names().iter().copied());
        all.map(|name| (name.as_str(), n.op.name())).collect::<Vec<_>>()
    };
    let mut seen = FxHashSet::default();
    let all = nodes.filter(|n| !n.op.is::<Const>()).flat_map(names);
    all.filter(|n| seen.insert(n.0)).collect()
}

/// The settings with each short name and layer of `--keep-f32`, `--pin-layout` and `--host-call` replaced by the nodes
/// that it means in `module`. Names of operators, files and patterns stay.
///
/// # Errors
/// A name that no node has, if it is no default of a file.
pub fn resolved(settings: &Settings, module: &Module) -> Result<Settings> {
    let mut out = settings.clone();
    let lists = [("--keep-f32", false), ("--pin-layout", true), ("--host-call", true)];
    if [&out.keep_f32, &out.pin_layout, &out.host_call].iter().all(|l| l.is_empty()) {
        return Ok(out);
    }
    let nodes = nodes_of(module);
    for ((option, pair), list) in lists.into_iter().zip([&mut out.keep_f32, &mut out.pin_layout, &mut out.host_call]) {
        let mut full = vec![];
        let by_default = settings.is_default(&option.trim_start_matches('-').replace('-', "_"));
        for entry in std::mem::take(list) {
            let (name, value) = match entry.rsplit_once('=').filter(|_| pair) {
                Some((name, _)) => (name, &entry[name.len()..]),
                None => (entry.as_str(), ""),
            };
            if by_default && !name.starts_with('\\') && find(name, &nodes).is_empty() {
                let why = format!("{option} {name}: a default that no node of this model has is left out");
                log_once(settings, why);
                continue;
            }
            if name.starts_with(['@', '\\']) || name.starts_with("op:") || name.contains(['*', '?', '\\']) {
                full.push(entry);
                continue;
            }
            let found = find(name, &nodes);
            if found.is_empty() && option == "--host-call" {
                // The pass that replaces nodes says what there is.
                full.push(entry);
                continue;
            }
            if found.is_empty() {
                let help = did_you_mean(name, known(&nodes)).unwrap_or("`weft explain MODEL` lists the nodes".into());
                return Err(Error::usage(format!("{option} {name}: the model has no such node or layer")).help(help));
            }
            let written = |n: &str| if pair { n.to_string() } else { escape_pattern(n) };
            full.extend(found.into_iter().map(|i| written(nodes[i].0) + value));
        }
        *list = full;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &[(&str, &str)] = &[
        ("/layer1/layer1.0/conv1/Conv", "conv"),
        ("/layer1/layer1.0/relu/Relu", "relu"),
        ("/layer1/layer1.0/relu/Relu_1", "relu"),
        ("/layer10/conv/Conv", "conv"),
        ("/features/features.0/features.0.0/Conv", "conv"),
        ("/features/features.0/features.0.2/Clip", "clip"),
        ("features.0", "dropout"),
        ("Add_7", "add"),
    ];

    #[test]
    fn a_name_is_the_models_that_of_tables_or_a_layer() {
        for (text, want) in [
            ("/layer1/layer1.0/conv1/Conv", &[0][..]),
            ("layer1.0.conv1", &[0]),
            ("layer1.0.conv1+batch_norm+relu", &[0]),
            ("layer1.0.conv1+relu/conv_0", &[0]),
            ("layer1.0.conv1:cast", &[0]),
            ("layer1.0.relu_1", &[2]),
            ("layer1", &[0, 1, 2]),
            ("/layer1/layer1.0", &[0, 1, 2]),
            ("layer1*", &[]),
            ("*Conv", &[0, 3, 4]),
            ("features.0", &[6]),
            ("features.0.0", &[4]),
            ("features", &[4, 5, 6]),
            ("Add_7", &[7]),
            ("layer", &[]),
            ("", &[]),
            ("/", &[]),
            ("+relu", &[]),
        ] {
            assert_eq!(find(text, NODES), want, "{text}");
        }
    }

    #[test]
    fn layers_hold_kernels() {
        assert!(in_layer("layer1.0.conv1+relu", "layer1") && in_layer("layer1+relu/relu_0", "layer1"));
        assert!(in_layer("layer1.0.conv1", "/layer1/layer1.0") && !in_layer("layer10.conv", "layer1"));
        assert!(!in_layer("layer1", ""));
    }

    /// The names of nodes, groups and kernels in tables of `compile`, `bench` and `explain` are taken by options of
    /// nodes and
    /// of kernels, and mean that node.
    #[test]
    fn names_of_tables_are_taken_everywhere() {
        use crate::explain::{Subject, of_trace};
        use crate::parts::recorded;
        use crate::values_by_name;
        let settings = Settings { device: "cpu".into(), target: Some("lavapipe".into()), ..Settings::default() };
        for model in ["squeezenet1_1", "resnet18", "mobilenet_v2"] {
            let module = crate::models::load(model, &settings, None).expect("is in the zoo");
            let profile = compiler::profile::DeviceProfile::lavapipe();
            let trace = recorded(model, module.clone(), &settings, &profile, &[]).expect("compiles");
            let f = module.main();
            assert!(trace.groups.len() > 20, "{model}");
            let origins = |groups: &[usize]| groups.iter().flat_map(|&g| trace.groups[g].origins.clone()).collect();
            let mut named: Vec<(String, Vec<String>)> =
                trace.kernels.iter().map(|k| (k.name.clone(), origins(&k.groups))).collect();
            for g in &trace.groups {
                let own = [g.label.clone(), g.layer.clone(), base(&g.label).to_string()];
                named.extend(own.into_iter().chain(g.origins.clone()).map(|name| (name, g.origins.clone())));
            }
            for (name, origins) in named {
                let nodes = match values_by_name::find(&module, &name) {
                    Ok(values_by_name::Named::Tensor((_, v))) => f.def_node(v).into_iter().collect(),
                    Ok(values_by_name::Named::Nodes(list)) => list,
                    Err(e) => panic!("{model}: {name}: {}", e.message),
                };
                let holds = nodes.iter().any(|&n| origins.iter().any(|o| f.nodes[n].name.as_str() == o));
                assert!(holds, "{model}: {name} is none of {origins:?}");
                let explained = of_trace(&trace, &Subject::Node(name.clone()), false);
                assert!(explained.is_ok(), "{model}: explain --node {name}");
                let keep = Settings { keep_f32: vec![name.clone()], ..settings.clone() };
                assert!(!resolved(&keep, &module).expect("is taken").keep_f32.is_empty(), "{model}: --keep-f32 {name}");
            }
        }
    }
}
