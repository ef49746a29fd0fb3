//! The first view: a pass, a node or a view from the command line.

use crate::canvas::colour::ColourBy;
use crate::panes::kernel::Form;
use crate::panes::pages::{Page, open};
use crate::panes::time::Part;
use crate::{Tab, Viewer};
use compiler::trace::CompileTrace;
use graphview::layers::path_of;
use graphview::picture::{Category, Node};

/// Why nothing is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The trace is damaged, or has no such pass, node or view.
    Asked(String),
    /// There is no display, or no device to draw with.
    Window(String),
}

/// The view to show, and its size.
#[derive(Clone, Debug)]
pub struct Shot {
    /// Width and height in points.
    pub size: [f32; 2],
    /// Pixels a point.
    pub scale: f32,
    /// Light on dark.
    pub dark: bool,
    /// The stage: a pass by its name or its number, `source` for the model as it came. `None` for the last pass.
    pub pass: Option<String>,
    /// What is selected: a box by its name or a part of it, or by that of a source node.
    pub select: Option<String>,
    /// A picture of the graph shows the selected box as it is, and does not open it.
    pub closed: bool,
    /// What is shown beside the graph, and how: some of [`VIEWS`], with commas between them.
    pub view: Option<String>,
    /// What colours say, by a word of [`ColourBy::ALL`]; `None` for what suits the view.
    pub colour: Option<String>,
    /// The query of the search.
    pub search: Option<String>,
    /// Another compilation, to stand at the right.
    pub beside: Option<Box<CompileTrace>>,
    /// What both are called, if nothing else tells them apart.
    pub names: Option<[String; 2]>,
}
impl Default for Shot {
    fn default() -> Self {
        Shot {
            size: [1400.0, 900.0],
            scale: 1.0,
            dark: false,
            pass: None,
            select: None,
            closed: false,
            view: None,
            colour: None,
            search: None,
            beside: None,
            names: None,
        }
    }
}

/// Words for [`Shot::view`], and what they show.
pub const VIEWS: &[(&str, &str)] = &[
    ("graph", "the graph alone"),
    ("whole", "the graph alone, all of it, in columns"),
    ("nodes", "the graph alone, every node by itself, in no layers"),
    ("hulls", "the graph alone, fused groups in colours, as hulls before fusion"),
    ("compare", "the graph before and after the pass"),
    ("node", "the graph and what is known of the selected box"),
    ("kernel", "the kernel of the selected box"),
    ("kernels", "the kernel in several forms side by side, as kernels,tensor,wgsl,msl"),
    ("text", "the text of the stage, with what the pass changed"),
    ("groups", "fused groups"),
    ("remarks", "what passes did and did not"),
    ("time", "the graph coloured by time, and its dispatches"),
    ("timeline", "the same with the dispatches one after the other"),
    ("roofline", "the same with rates against intensity"),
    ("memory", "what buffers hold when"),
    ("wrong", "why a result in fp16 is wrong: errors, and which nodes to keep in f32"),
    ("slow", "why the kernel of the selected box is slow: its estimate, roofs and choices"),
    ("left", "what fusion left on the table: results that go from kernel to kernel through memory, and why"),
    ("precision", "casts, what stays in f32, errors"),
    ("difference", "the layers of two compilations with their times"),
];

/// Shows the pass and the view that are asked for.
///
/// # Errors
/// A pass or a view that is not there, and a damaged trace to stand beside.
pub fn prepare(v: &mut Viewer, shot: &Shot) -> Result<(), Fault> {
    if let Some(second) = &shot.beside {
        v.put_beside(CompileTrace::clone(second)).map_err(|e| Fault::Asked(e.to_string()))?;
        if let (Some(names), Some(other)) = (&shot.names, &mut v.other) {
            other.titles = other.comparison.titles([&names[0], &names[1]]);
        }
    }
    let stage = match &shot.pass {
        Some(pass) => stage_named(v, pass)?,
        None => v.stage(),
    };
    match shot.view.is_none() && shot.colour.is_none() {
        true => v.go_to_stage(stage),
        false => v.show_stage(stage),
    }
    shot.view.iter().flat_map(|words| words.split(',')).try_for_each(|word| view(v, word.trim()))?;
    if let Some(text) = &shot.search {
        v.search.text = text.clone();
    }
    if v.trace().overlay.is_some() {
        v.colour = ColourBy::Overlay;
    }
    if let Some(word) = &shot.colour {
        let known = ColourBy::ALL.iter().find(|c| c.1 == word);
        v.colour = known.map(|c| c.0).ok_or_else(|| {
            let all: Vec<&str> = ColourBy::ALL.iter().map(|c| c.1).collect();
            Fault::Asked(format!("there are no colours by `{word}`; there are {}", all.join(", ")))
        })?;
    }
    Ok(())
}

/// The last stage with this name, or the one with this number.
fn stage_named(v: &Viewer, pass: &str) -> Result<usize, Fault> {
    let stages = &v.trace().stages;
    let by_number = pass.parse().ok().filter(|i: &usize| *i < stages.len());
    let name = |i: usize| v.pass_of(i).map_or(stages[i].label.as_str(), |p| p.name.as_str());
    let by_name = (0..stages.len()).rev().find(|&i| name(i) == pass);
    by_number.or(by_name).ok_or_else(|| {
        let all: Vec<&str> = (0..stages.len()).map(name).collect();
        Fault::Asked(format!("there is no pass `{pass}`; there are {}", all.join(", ")))
    })
}

fn view(v: &mut Viewer, word: &str) -> Result<(), Fault> {
    match word {
        "graph" => v.dock = false,
        "nodes" => (v.dock, v.flat) = (false, true),
        "whole" => (v.dock, v.columns) = (false, true),
        "hulls" => {
            (v.dock, v.colour, v.flat) = (false, ColourBy::Group, true);
            // After fusion a group is a box: hulls are around the nodes before it.
            if v.is_fused() {
                v.show_stage(v.stages_before_fusion());
            }
        }
        "compare" => (v.dock, v.compare) = (false, true),
        "time" | "timeline" | "roofline" => {
            (v.tab, v.colour) = (Tab::Time, ColourBy::Time);
            v.time_pane.part = match word {
                "timeline" => Part::Timeline,
                "roofline" => Part::Roofline,
                _ => Part::Table,
            };
        }
        "kernels" => v.kernel_pane.wide = true,
        word if Page::ALL.iter().any(|p| p.1 == word) => {
            Page::ALL.iter().filter(|p| p.1 == word).for_each(|p| open(v, p.0));
        }
        word if Form::ALL.iter().any(|f| f.1 == word) => {
            let named = Form::ALL.iter().filter(|f| f.1 == word).map(|f| f.0);
            match v.kernel_pane.wide {
                true => v.kernel_pane.ask_columns(named),
                false => named.for_each(|f| (v.tab, v.kernel_pane.form) = (Tab::Kernel, f)),
            }
        }
        word => {
            let tab = Tab::ALL.into_iter().find(|(_, title)| title.eq_ignore_ascii_case(word));
            v.tab = tab
                .ok_or_else(|| {
                    let all: Vec<&str> = VIEWS.iter().map(|(w, _)| *w).collect();
                    Fault::Asked(format!("there is no view `{word}`; there are {}", all.join(", ")))
                })?
                .0;
        }
    }
    Ok(())
}

/// Selects a box of the shown graph, which is laid out.
///
/// # Errors
/// A node that is not there.
pub fn select(v: &mut Viewer, name: &str) -> Result<(), Fault> {
    let Some(Ok(drawn)) = v.after() else { return Err(Fault::Asked("the graph of this stage cannot be drawn".into())) };
    let nodes = drawn.layered.picture.outer();
    let layer = |is: &dyn Fn(&str) -> bool| nodes.iter().find(|n| n.category == Category::Layer && is(path_of(n)));
    let inner = format!("{name}.");
    let exact = nodes.iter().find(|n| n.name == name && n.category != Category::Layer);
    // A box that tables call so comes before the layer around it.
    let groups = graphview::names::find(v.trace(), name).groups;
    let of_groups = |n: &&&Node| {
        let own = v.document().groups_of(n);
        let holds = !own.is_empty() && own.iter().all(|g| groups.contains(g));
        holds && !matches!(n.category, Category::Layer | Category::Terminal)
    };
    let exact = exact.or(nodes.iter().find(of_groups).filter(|_| !drawn.by_origin.contains_key(name)));
    if let Some(n) = exact.or(layer(&|path| path == name)).or(layer(&|path| path.starts_with(&inner))) {
        v.focus_key(&n.key.clone());
        return Ok(());
    }
    if drawn.by_origin.contains_key(name) {
        v.select([name.to_string()]);
        return Ok(());
    }
    let document = v.document().clone();
    let part = |n: &&&Node| {
        let own = n.category != Category::Layer && n.name.contains(name);
        own || document.layer_of(n).is_some_and(|l| l.contains(name)) || n.origins.iter().any(|o| o.contains(name))
    };
    let found = nodes.iter().find(part);
    let missing = || {
        let near = graphview::names::did_you_mean(name, graphview::names::all(v.trace()));
        let near = near.map_or(String::new(), |near| format!("; {near}"));
        Fault::Asked(format!("no box of this stage is `{name}`, or came from it{near}"))
    };
    let found = found.ok_or_else(missing)?;
    v.focus_key(&found.key.clone());
    Ok(())
}
