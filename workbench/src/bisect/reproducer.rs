//! A reproducer: the smallest part around the cause that is wrong by itself, its inputs, the right results, and the
//! command that shows it.

use super::request::Right;
use super::trial::{Case, Setting, Trials};
use crate::arrays::write_npz;
use crate::error::{Error, Result};
use crate::extract::{cut, named};
use crate::options::{Tabled, anywhere};
use crate::own_process;
use crate::values_by_name::{NamedValue, exact_values, nodes_of, operands_of, results_of};
use crate::written::write_file;
use compiler::graph::{Function, Module, NodeId, ValueId, input_ports, open_dims_of, outer_operands};
use compiler::name::Name;
use compiler::passes::mixed_precision::matches_pattern;
use compiler::tensor::Tensor;
use compiler::text::{PrintOptions, print_module_with};
use rustc_hash::{FxHashMap, FxHashSet};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The files that were written.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Reproducer {
    /// Where they are.
    folder: PathBuf,
    /// The file of the part.
    model: PathBuf,
    /// How many it has.
    nodes: usize,
    /// The command that shows the fault.
    pub command: String,
}

impl Reproducer {
    /// For people.
    pub fn text(&self) -> String {
        let nodes = counted(self.nodes);
        format!("reproducer of {nodes} in {}: {}", self.folder.display(), self.command)
    }
}

/// Writes the smallest part around the nodes `around` that is wrong in this setting; `None` where none is, not even the
/// whole model.
///
/// # Errors
/// An error of a run, and files that cannot be written.
pub fn write(
    trials: &Trials<'_>,
    case: &Case,
    setting: &Setting,
    around: &[Name],
    folder: &Path,
) -> Result<Option<Reproducer>> {
    let (exact, _) = exact_values(&case.module, &case.inputs, &trials.a.settings, |_| true)?;
    for nodes in wider_and_wider(case.module.main(), around) {
        let Some((part, to)) = part_of(case, &nodes, &exact)? else { continue };
        let setting = fitting(setting, &part.module);
        let what = format!("the part of {} alone", counted(nodes.len()));
        // A part may lack what an option names: then a wider one is tried.
        if trials.run(&part, &setting, &what).is_ok_and(|o| !o.agrees()) {
            return store(&part, &to, (&setting, &trials.a.right), &nodes, folder).map(Some);
        }
    }
    Ok(None)
}

/// `1 node`, `2 nodes`
fn counted(nodes: usize) -> String {
    if nodes == 1 { "1 node".to_string() } else { format!("{nodes} nodes") }
}

/// Sets of nodes around some, each with the neighbours of the last, in steps that double; the last has all.
fn wider_and_wider(f: &Function, around: &[Name]) -> Vec<Vec<NodeId>> {
    let all: Vec<NodeId> = nodes_of(f).collect();
    let meant = |n: &&NodeId| {
        let node = &f.nodes[**n];
        around.contains(&node.name) || node.origins.names().iter().any(|o| around.contains(o))
    };
    let mut set: FxHashSet<NodeId> = all.iter().filter(meant).copied().collect();
    let (mut out, mut steps) = (vec![], 1);
    while !set.is_empty() && set.len() < all.len() {
        out.push(all.iter().copied().filter(|n| set.contains(n)).collect());
        let before = set.len();
        (0..steps).for_each(|_| widen(f, &all, &mut set));
        steps *= 2;
        if set.len() == before {
            break;
        }
    }
    out.push(all);
    out
}

/// Adds the nodes that read what the set computes, and those that compute what it reads.
fn widen(f: &Function, all: &[NodeId], set: &mut FxHashSet<NodeId>) {
    let mut more = vec![];
    for &n in all {
        let before: Vec<NodeId> = outer_operands(f, n).into_iter().filter_map(|v| f.def_node(v)).collect();
        if set.contains(&n) {
            more.extend(before.into_iter().filter(|b| all.contains(b)));
        } else if before.iter().any(|b| set.contains(b)) {
            more.push(n);
        }
    }
    set.extend(more);
}

/// The part that some nodes are, with its inputs and right results; `None` where they compute nothing that others or
/// the model give.
fn part_of(
    case: &Case,
    nodes: &[NodeId],
    exact: &FxHashMap<ValueId, Tensor>,
) -> Result<Option<(Case, Vec<NamedValue>)>> {
    let f = case.module.main();
    let inside = |n: &NodeId| nodes.contains(n);
    let read: FxHashSet<ValueId> = nodes_of(f)
        .filter(|n| !inside(n))
        .flat_map(|n| outer_operands(f, n))
        .chain(f.results().iter().copied())
        .collect();
    let to: Vec<NamedValue> = nodes.iter().flat_map(|&n| results_of(f, n)).filter(|v| read.contains(&v.1)).collect();
    let from = operands_of(f, nodes);
    let Ok(part) = cut(&case.module, &from, &to) else { return Ok(None) };
    let ports = input_ports(&part.module).into_iter().map(|p| p.0).zip(part.inputs.iter().copied());
    let inputs = named(ports, exact)?.into_iter().map(|i| i.1).collect();
    let want = named(to.iter().copied(), exact)?;
    Ok(Some((Case { module: part.module, inputs, want }, to)))
}

/// The setting without patterns of the keep list that nothing in the part matches.
fn fitting(setting: &Setting, part: &Module) -> Setting {
    let mut out = setting.clone();
    let f = part.main();
    let there = |pattern: &str| f.walk().iter().any(|&n| matches_pattern(pattern, f.nodes[n].name.as_str()));
    out.pipeline.keep_f32.retain(|k| !k.listed || there(&k.pattern));
    // Also what a file lists is said pattern by pattern.
    out.settings.keep_f32 = out.pipeline.keep_f32.iter().filter(|k| k.listed).map(|k| k.pattern.to_string()).collect();
    // The part has its sizes and its constants.
    let ports = input_ports(part);
    let open = open_dims_of(ports.iter().map(|p| &p.1));
    out.settings.dim.retain(|d| d.rsplit_once('=').is_some_and(|(name, _)| open.iter().any(|o| o.as_str() == name)));
    (out.settings.batch, out.settings.shape, out.settings.weights) = (None, vec![], None);
    out
}

fn store(
    part: &Case,
    to: &[NamedValue],
    (setting, right): (&Setting, &Right),
    nodes: &[NodeId],
    folder: &Path,
) -> Result<Reproducer> {
    std::fs::create_dir_all(folder).map_err(|e| Error::usage(format!("cannot make {}: {e}", folder.display())))?;
    let (inputs, outputs) = (folder.join("in.npz"), folder.join("out.npz"));
    let model = match compiler::onnx::export_onnx(&part.module) {
        Ok(bytes) => {
            let file = folder.join("part.onnx");
            write_file(&file, &bytes)?;
            file
        }
        // Operators of one's own have no ONNX form.
        Err(_) => {
            let file = folder.join("part.weft");
            let options = PrintOptions { inline_elements: usize::MAX, ..PrintOptions::default() };
            write_file(&file, print_module_with(&part.module, options).as_bytes())?;
            file
        }
    };
    let names = input_ports(&part.module).into_iter().map(|p| p.0.to_string());
    write_npz(&inputs, &names.zip(part.inputs.iter().cloned()).collect::<Vec<_>>())?;
    debug_assert_eq!(part.want.len(), to.len());
    write_npz(&outputs, &part.want)?;
    let files = ["-i".to_string(), text(&inputs), "--against".into(), text(&outputs)];
    let words = [
        vec![own_process::name(), "compare".into(), text(&model)],
        files.to_vec(),
        tolerances(right),
        setting.settings.words_anywhere(),
    ]
    .concat();
    let command = words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" ");
    write_file(&folder.join("command.txt"), format!("{command}\n").as_bytes())?;
    Ok(Reproducer { folder: folder.to_path_buf(), model, nodes: nodes.len(), command })
}

/// The whole path, which any folder knows.
fn text(path: &Path) -> String {
    anywhere(&path.display().to_string())
}

/// The tolerances as `compare` takes them.
fn tolerances(right: &Right) -> Vec<String> {
    Right { against: Right::default().against, ..right.clone() }.words()
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./,=:+@".contains(c);
    if word.chars().all(plain) { word.to_string() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}
