//! The view and the selection.

use crate::beside::{Compared, Other};
use crate::canvas::Canvas;
use crate::canvas::colour::ColourBy;
use crate::details::{Details, Last};
use crate::document::Document;
use crate::drawing::{Detail, Drawing, Drawn, Want};
use crate::live::{Again, Host};
use crate::once::Memos;
use crate::panes::kernel::KernelPane;
use crate::panes::pages::Pages;
use crate::panes::text::TextPane;
use crate::panes::time::TimePane;
use crate::search::Search;
pub use crate::tab::Tab;
use compiler::passes::PassStats;
use compiler::trace::{CompileTrace, TraceError};
use graphview::changes::changes;
use graphview::layout::Direction;
use graphview::picture::Node;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// A trace, and the current view and selection.
pub struct Viewer {
    document: Arc<Document>,
    /// The pane beside the graph.
    pub tab: Tab,
    /// Whether anything stands beside it.
    pub dock: bool,
    /// Whether the list of passes is there.
    pub passes: bool,
    /// Before and after a pass side by side.
    pub compare: bool,
    /// The text of boxes.
    pub detail: Detail,
    /// The graph in columns, so that all of it suits a window.
    pub columns: bool,
    /// Where edges go.
    pub direction: Direction,
    /// Every node by itself, in no layers.
    pub flat: bool,
    /// The meaning of colours.
    pub colour: ColourBy,
    /// Whether lists show only items that belong to the selection.
    pub only_selected: bool,
    /// Whether passes that changed nothing stand in the list one by one.
    pub all_passes: bool,
    /// Both sides and hulls were shown for fusion, and go with it.
    pub(crate) shows_fusion: bool,
    /// The text pane.
    pub text: TextPane,
    /// The kernel pane.
    pub kernel_pane: KernelPane,
    /// The time pane.
    pub time_pane: TimePane,
    /// A page in the place of the graph.
    pub pages: Pages,
    /// The search field.
    pub search: Search,
    /// Whether the list of keys is there.
    pub help: bool,
    /// Where files are written: the folder that Weft was started in.
    pub folder: PathBuf,
    /// The last message about a written file.
    pub message: Option<String>,
    stage: usize,
    kernel: usize,
    selected: Arc<BTreeSet<String>>,
    /// Grows with each selection.
    selection: u64,
    focus: Option<String>,
    edge: Option<Ends>,
    toggled: Arc<BTreeSet<String>>,
    /// The graph after the pass, and that before it.
    pub(crate) canvases: [Canvas; 2],
    pub(crate) drawing: Option<Drawing>,
    /// The model and a device, if the program that opened the viewer has them.
    pub host: Option<Arc<dyn Host>>,
    /// Compiling the model anew.
    pub again: Again,
    /// Another compilation to hold this one against.
    pub(crate) other: Option<Other>,
    marks: Option<Compared>,
    details: Last,
    /// The values that panes have computed.
    pub(crate) memos: Memos,
}

/// An edge that was chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Ends {
    /// The box that it leaves.
    pub from: Node,
    /// The box that it enters.
    pub to: Node,
    /// The type of the value.
    pub ty: String,
    /// Where both ends are in one group each: the groups, and why they are two.
    pub why: Option<(usize, usize, String)>,
}

impl Viewer {
    /// Shows a trace, the last pass first.
    ///
    /// # Errors
    /// When the trace's stages cannot be restored.
    pub fn new(trace: CompileTrace) -> Result<Viewer, TraceError> {
        let document = Arc::new(Document::new(trace)?);
        Ok(Viewer {
            stage: document.graph_of(document.last_graph()),
            tab: Tab::Node,
            dock: true,
            passes: true,
            compare: false,
            detail: Detail::default(),
            columns: false,
            direction: Direction::Down,
            flat: false,
            colour: ColourBy::Work,
            only_selected: false,
            all_passes: false,
            shows_fusion: false,
            text: TextPane::default(),
            kernel_pane: KernelPane::default(),
            time_pane: TimePane::default(),
            pages: Pages::default(),
            search: Search::default(),
            help: false,
            folder: PathBuf::new(),
            message: None,
            kernel: 0,
            selected: Arc::default(),
            selection: 0,
            focus: None,
            edge: None,
            toggled: Arc::default(),
            canvases: Default::default(),
            drawing: None,
            host: None,
            again: Again::new(&document.trace().options),
            other: None,
            marks: None,
            details: Last::default(),
            memos: Memos::default(),
            document,
        })
    }
    /// Shows another trace in place of this one, with the same panes and settings.
    ///
    /// # Errors
    /// When the trace's stages cannot be restored: this one stays then.
    pub fn replace(&mut self, trace: CompileTrace) -> Result<(), TraceError> {
        let new = Viewer::new(trace)?;
        let old = std::mem::replace(self, new);
        (self.tab, self.dock, self.passes, self.detail) = (old.tab, old.dock, old.passes, old.detail);
        (self.columns, self.direction, self.colour, self.flat) = (old.columns, old.direction, old.colour, old.flat);
        (self.host, self.folder) = (old.host, old.folder);
        if old.shows_fusion {
            self.colour = ColourBy::Work;
        }
        Ok(())
    }
    /// The trace with its indices.
    pub fn document(&self) -> &Arc<Document> {
        &self.document
    }
    /// The trace.
    pub fn trace(&self) -> &CompileTrace {
        self.document.trace()
    }
    /// Index of the stage that is shown.
    pub fn stage(&self) -> usize {
        self.stage
    }
    /// Shows a stage.
    pub fn show_stage(&mut self, stage: usize) {
        self.stage = stage.min(self.document.stages().saturating_sub(1));
    }
    /// The pass that made a stage.
    pub fn pass_of(&self, stage: usize) -> Option<&PassStats> {
        stage.checked_sub(1).and_then(|p| self.trace().passes.get(p))
    }

    fn want(&self, stage: usize) -> Want {
        let (toggled, detail) = (self.toggled.clone(), self.detail);
        Want { stage, toggled, detail, columns: self.columns, direction: self.direction, flat: self.flat }
    }
    /// The scene of the shown stage; asked for where it is not ready.
    pub(crate) fn after(&mut self) -> Option<Result<Arc<Drawn>, String>> {
        let want = self.want(self.document.graph_of(self.stage));
        self.drawing.as_mut()?.get(&want)
    }
    /// Shows another compilation left of this one, its graph at the same pass where it has it, else its last; and where
    /// the time differs.
    ///
    /// # Errors
    /// When its stages cannot be restored.
    pub fn compare_with(&mut self, trace: CompileTrace) -> Result<(), TraceError> {
        let other = Other::new(trace, self.trace())?;
        self.shows_fusion = false;
        if other.is_timed() {
            self.colour = ColourBy::Difference;
        }
        (self.other, self.compare, self.marks) = (Some(other), true, None);
        self.canvases[1] = Canvas::default();
        Ok(())
    }
    /// Shows another compilation at the right of this one.
    ///
    /// # Errors
    /// When its stages cannot be restored.
    pub fn put_beside(&mut self, second: CompileTrace) -> Result<(), TraceError> {
        let first = self.trace().clone();
        self.replace(second)?;
        self.compare_with(first)
    }
    /// Shows no other compilation any more.
    pub fn compare_with_none(&mut self) {
        (self.other, self.marks) = (None, None);
        if self.colour == ColourBy::Difference {
            self.colour = ColourBy::Work;
        }
        self.canvases[1] = Canvas::default();
    }
    /// The document of the left canvas: another compilation, or this one before the pass.
    pub(crate) fn left_document(&self) -> &Arc<Document> {
        self.other.as_ref().map_or(&self.document, |o| &o.document)
    }
    /// The stage of the other compilation that is shown.
    pub(crate) fn other_stage(&self) -> Option<usize> {
        let o = &self.other.as_ref()?.document;
        let label = self.trace().stages.get(self.stage).map(|s| &s.label);
        let same = o.trace().stages.iter().rposition(|s| Some(&s.label) == label);
        Some(o.graph_of(same.unwrap_or(o.last_graph())))
    }
    /// The scene of the stage before, or of the other compilation.
    pub(crate) fn before(&mut self) -> Option<Result<Arc<Drawn>, String>> {
        if let Some(stage) = self.other_stage() {
            let want = self.want(stage);
            return self.other.as_mut()?.drawing.as_mut()?.get(&want);
        }
        let stage = self.document.graph_of(self.stage.min(self.document.last_graph()).saturating_sub(1));
        let want = self.want(stage);
        self.drawing.as_mut()?.get(&want)
    }
    /// The changes of the shown pass; `None` until both scenes are ready, or if it changed nothing.
    pub(crate) fn compared(&mut self) -> Option<&Compared> {
        let (before, after) = (self.before()?.ok()?, self.after()?.ok()?);
        let stages = [before.want.stage, after.want.stage];
        let same = self.document.graph_of(self.stage) != self.stage || stages[0] == stages[1];
        if self.other.is_none() && same {
            return None;
        }
        if self.marks.as_ref().is_none_or(|m| m.stages != stages) {
            let (mut left, mut right) = changes(&before.picture, &after.picture);
            left.cover(&before.layered.picture);
            right.cover(&after.layered.picture);
            let telling = self.other.is_some() || !right.replace_all(&after.picture);
            self.marks = Some(Compared { stages, before: Arc::new(left), after: Arc::new(right), telling });
        }
        self.marks.as_ref()
    }
    /// Whether the graph of the shown stage is there to be seen.
    pub fn in_sight(&mut self) -> bool {
        matches!(self.after(), Some(Ok(_)))
    }
    /// Whether scenes are being made or something moves.
    pub fn busy(&mut self) -> bool {
        let drawing = self.drawing.as_mut().is_none_or(Drawing::busy);
        let other = self.other.as_mut().is_some_and(|o| o.drawing.as_mut().is_none_or(Drawing::busy));
        drawing
            || other
            || self.kernel_pane.busy()
            || self.pages.busy()
            || self.again.progress().is_some()
            || self.canvases[0].moving()
            || self.compare && self.canvases[1].moving()
    }
    /// Shows what stands beside the graph, by its place in [`Tab::ALL`].
    pub fn show_tab(&mut self, place: usize) {
        if let Some((tab, _)) = Tab::ALL.get(place) {
            (self.tab, self.dock) = (*tab, true);
        }
    }
    /// Edges go right where they went down, and down where they went right.
    pub fn turn(&mut self) {
        self.direction = match self.direction {
            Direction::Down => Direction::Right,
            Direction::Right => Direction::Down,
        };
        self.canvases.iter_mut().for_each(|c| c.start_next());
    }
    /// Looks at all of the graph.
    pub fn show_all(&mut self) {
        self.canvases.iter_mut().for_each(|c| c.fit(true));
    }
    /// Looks at the next box that the shown pass changed, or the one before.
    pub fn next_change(&mut self, forward: bool) {
        let focus = self.focus.clone();
        let Some(c) = self.compared() else { return };
        let keys = if c.after.keys().is_empty() { c.before.keys() } else { c.after.keys() };
        let at = focus.and_then(|f| keys.iter().position(|k| *k == f));
        let next = match (at, forward) {
            (None, true) => 0,
            (None, false) => keys.len().saturating_sub(1),
            (Some(i), true) => (i + 1) % keys.len().max(1),
            (Some(i), false) => (i + keys.len() - 1) % keys.len().max(1),
        };
        if let Some(key) = keys.get(next).cloned() {
            self.focus_key(&key);
        }
    }

    /// Index of the kernel that is shown.
    pub fn kernel(&self) -> usize {
        self.kernel
    }
    /// Key of the box that the node pane shows.
    pub fn focus(&self) -> Option<&str> {
        self.focus.as_deref()
    }
    /// The box that the node pane shows: of the shown stage, or of the one before.
    pub fn focus_node(&mut self) -> Option<Node> {
        let key = self.focus.clone()?;
        let find = |d: Option<Result<Arc<Drawn>, String>>| d.and_then(Result::ok)?.layered.picture.find(&key).cloned();
        find(self.after()).or_else(|| find(self.before()))
    }
    /// The details of that box, computed when it or the graph changed.
    pub(crate) fn details(&mut self) -> Option<Arc<Details>> {
        let (focus, shown) = (self.focus.clone()?, self.after().and_then(Result::ok));
        let known = self.details.of(&focus, shown.as_ref());
        known.or_else(|| self.focus_node().map(|n| self.details.keep(shown, Details::of(&self.document, n))))
    }
    /// Shows the box with this key in the node pane, looks at it, and selects its source nodes.
    pub fn focus_key(&mut self, key: &str) {
        self.focus = Some(key.to_string());
        // Once a layer is opened, the graph is laid out anew.
        if let Some(n) = self.focus_node() {
            self.take_selection(n.origins.iter().cloned().collect());
        }
        self.open_path(key);
        self.canvases.iter_mut().for_each(|c| c.look_at(key));
    }
    /// Opens the layers that a box is in.
    fn open_path(&mut self, key: &str) {
        if let Some(Ok(drawn)) = self.after() {
            drawn.closed_above(key).iter().for_each(|layer| self.toggle(layer));
        }
    }
    /// Shows layers as boxes, or every node by itself.
    pub fn turn_flat(&mut self) {
        self.flat = !self.flat;
        self.canvases.iter_mut().for_each(|c| c.start_next());
    }
    /// Chooses a box on a canvas.
    pub(crate) fn choose(&mut self, node: Option<&Node>) {
        self.focus = node.map(|n| n.key.clone());
        self.take_selection(node.map_or_else(BTreeSet::new, |n| n.origins.iter().cloned().collect()));
    }
    /// Chooses an edge: both of its ends are selected.
    pub(crate) fn choose_edge(&mut self, ends: Option<Ends>) {
        let Some(ends) = ends else { return };
        self.focus = None;
        self.take_selection(ends.from.origins.iter().chain(&ends.to.origins).cloned().collect());
        self.edge = Some(ends);
    }
    /// The edge that was chosen.
    pub fn edge(&self) -> Option<&Ends> {
        self.edge.as_ref()
    }
    /// Goes to the next box that the search finds.
    pub fn next_found(&mut self, forward: bool) {
        let Some(Ok(drawn)) = self.after() else { return };
        let document = self.document.clone();
        self.search.find(&document, &drawn);
        if let Some(key) = self.search.next(self.focus.as_deref(), forward).map(str::to_string) {
            self.focus_key(&key);
        }
    }
    /// Opens or closes a box.
    pub fn toggle(&mut self, key: &str) {
        let set = Arc::make_mut(&mut self.toggled);
        if !set.remove(key) {
            set.insert(key.to_string());
        }
    }
    /// Selected source nodes.
    pub fn selected(&self) -> &Arc<BTreeSet<String>> {
        &self.selected
    }
    /// The number of the selection: another one has another number.
    pub fn selection(&self) -> u64 {
        self.selection
    }
    /// Selects source nodes, and looks at the first box that came from them.
    pub fn select(&mut self, nodes: impl IntoIterator<Item = String>) {
        self.take_selection(nodes.into_iter().collect());
        let selected = self.selected.clone();
        self.focus = None;
        let Some(Ok(drawn)) = self.after() else { return };
        let own = |n: &&Node| n.origins.iter().any(|o| selected.contains(o));
        let inside = drawn.picture.nodes.iter().find(own).filter(|n| !drawn.by_key.contains_key(&n.key));
        let boxes = selected.iter().filter_map(|o| drawn.by_origin.get(o)).flatten();
        let first = boxes.map(|&i| (&drawn.scene.boxes[i], i)).min_by_key(|&(b, i)| (usize::MAX - b.depth, i));
        let shown = inside.or(first.map(|(b, _)| &b.node));
        let Some(key) = shown.map(|n| n.key.clone()) else { return };
        self.open_path(&key);
        self.canvases[0].look_at(&key);
        self.focus = Some(key);
    }
    /// Selects source nodes of a part of the kernel that is shown; it stays.
    pub(crate) fn select_in_kernel(&mut self, nodes: BTreeSet<String>) {
        let kernel = self.kernel;
        self.select(nodes);
        self.kernel = kernel;
    }
    fn take_selection(&mut self, nodes: BTreeSet<String>) {
        self.edge = None;
        self.selection += 1;
        self.selected = Arc::new(nodes);
        let groups = self.selected.iter().flat_map(|o| self.document.groups_of_source(o));
        let kernels: Vec<usize> = groups.flat_map(|&g| self.document.calls_of(g)).map(|c| c.1).collect();
        // The shown kernel stays if it belongs to the selection.
        if let Some(&k) = kernels.first()
            && !kernels.contains(&self.kernel)
        {
            self.kernel = k;
        }
    }
    /// Selects the source nodes of a group, and shows its first kernel.
    pub fn select_group(&mut self, group: usize) {
        let Some(g) = self.trace().groups.get(group) else { return };
        let origins = g.origins.clone();
        if let Some(&k) = self.trace().kernels_of(group).first() {
            self.kernel = k;
        }
        self.select(origins);
    }
    /// Shows a kernel; the selection stays.
    pub fn show_kernel(&mut self, kernel: usize) {
        self.kernel = kernel.min(self.trace().kernels.len().saturating_sub(1));
    }
    /// Shows a kernel and selects the source nodes of its groups.
    pub fn select_kernel(&mut self, kernel: usize) {
        if kernel >= self.trace().kernels.len() {
            return;
        }
        self.kernel = kernel;
        let groups = self.trace().groups_of(kernel);
        let origins: Vec<String> =
            groups.iter().flat_map(|&g| self.trace().groups[g].origins.iter().cloned()).collect();
        self.select(origins);
    }
    /// Selects the nodes of a remark.
    pub fn select_remark(&mut self, remark: usize) {
        let nodes = self.trace().remarks.get(remark).map(|r| r.nodes.iter().map(|n| n.to_string()).collect::<Vec<_>>());
        self.select(nodes.unwrap_or_default());
    }
}
