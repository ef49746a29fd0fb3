//! What is shown and selected.

use compiler::passes::PassStats;
use compiler::remark::{Remark, RemarkKind};
use compiler::trace::{CompileTrace, Group, TraceError, line_origins};
use std::collections::BTreeSet;

/// What the main part shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tab {
    /// The module's text at a stage.
    Ir,
    /// Fused groups.
    Groups,
    /// Kernels with schedule and shader.
    Kernels,
    /// What passes did and did not.
    Remarks,
}
impl Tab {
    /// Every tab with its title.
    pub const ALL: [(Tab, &'static str); 4] =
        [(Tab::Ir, "IR"), (Tab::Groups, "Groups"), (Tab::Kernels, "Kernels"), (Tab::Remarks, "Remarks")];
}

/// Which text of a stage is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The text that the pass found.
    Before,
    /// The text that it left.
    After,
    /// Both, with a mark on each line that only one has.
    Changes,
}
impl Mode {
    /// Every mode with its title.
    pub const ALL: [(Mode, &'static str); 3] =
        [(Mode::Before, "Before"), (Mode::After, "After"), (Mode::Changes, "Changes")];
}

/// Where a line stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// In both texts, or in the only one that is shown.
    Same,
    /// Only in the text after.
    Added,
    /// Only in the text before.
    Removed,
}

/// A line of a stage's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// The text, without its end.
    pub text: String,
    /// Where it stands.
    pub mark: Mark,
    /// Source nodes it came from.
    pub origins: Vec<String>,
}
impl Line {
    fn new(text: &str, mark: Mark) -> Line {
        Line { text: text.trim_end_matches('\n').to_string(), mark, origins: line_origins(text) }
    }
}

/// A trace and what is chosen of it.
pub struct Viewer {
    trace: CompileTrace,
    texts: Vec<String>,
    /// The tab.
    pub tab: Tab,
    /// Whether lists leave out what has nothing to do with the selection.
    pub only_selected: bool,
    stage: usize,
    mode: Mode,
    lines: Vec<Line>,
    kernel: usize,
    selected: BTreeSet<String>,
}

impl Viewer {
    /// Shows a trace, the last pass first.
    ///
    /// # Errors
    /// When the trace's stages cannot be restored.
    pub fn new(trace: CompileTrace) -> Result<Viewer, TraceError> {
        let texts = trace.stage_texts()?;
        let stage = trace.passes.len().min(texts.len().saturating_sub(1));
        let mut v = Viewer {
            trace,
            texts,
            tab: Tab::Ir,
            only_selected: false,
            stage,
            mode: Mode::After,
            lines: vec![],
            kernel: 0,
            selected: BTreeSet::new(),
        };
        v.lines = v.lines_of(stage, Mode::After);
        Ok(v)
    }
    /// The trace.
    pub fn trace(&self) -> &CompileTrace {
        &self.trace
    }
    /// Index of the stage that is shown.
    pub fn stage(&self) -> usize {
        self.stage
    }
    /// Which text of it.
    pub fn mode(&self) -> Mode {
        self.mode
    }
    /// Shows a stage.
    pub fn show_stage(&mut self, stage: usize, mode: Mode) {
        if stage < self.texts.len() && (stage, mode) != (self.stage, self.mode) {
            (self.stage, self.mode) = (stage, mode);
            self.lines = self.lines_of(stage, mode);
        }
    }
    /// The lines that are shown.
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }
    /// The pass that made a stage.
    pub fn pass_of(&self, stage: usize) -> Option<&PassStats> {
        stage.checked_sub(1).and_then(|p| self.trace.passes.get(p))
    }

    fn lines_of(&self, stage: usize, mode: Mode) -> Vec<Line> {
        let text = |i: usize| self.texts.get(i).map_or("", String::as_str);
        let before = stage.checked_sub(1).map_or("", text);
        let whole = |t: &str| t.lines().map(|l| Line::new(l, Mark::Same)).collect();
        match mode {
            Mode::Before => whole(before),
            Mode::After => whole(text(stage)),
            Mode::Changes => {
                let mut out = Vec::new();
                let mut rest = before.split_inclusive('\n');
                for h in self.trace.stages.get(stage).map_or(&[][..], |s| &s.delta.hunks) {
                    out.extend(rest.by_ref().take(h.keep as usize).map(|l| Line::new(l, Mark::Same)));
                    out.extend(rest.by_ref().take(h.drop as usize).map(|l| Line::new(l, Mark::Removed)));
                    out.extend(h.add.split_inclusive('\n').map(|l| Line::new(l, Mark::Added)));
                }
                out.extend(rest.map(|l| Line::new(l, Mark::Same)));
                out
            }
        }
    }

    /// Index of the kernel that is shown.
    pub fn kernel(&self) -> usize {
        self.kernel
    }
    /// Selected source nodes.
    pub fn selected(&self) -> &BTreeSet<String> {
        &self.selected
    }
    /// Selects source nodes.
    pub fn select(&mut self, nodes: impl IntoIterator<Item = String>) {
        self.selected = nodes.into_iter().collect();
    }
    /// Selects what a line came from.
    pub fn select_line(&mut self, line: usize) {
        let nodes = self.lines.get(line).map(|l| l.origins.clone()).unwrap_or_default();
        self.select(nodes);
    }
    /// Selects what a group came from, and shows its first kernel.
    pub fn select_group(&mut self, group: usize) {
        if let Some(g) = self.trace.groups.get(group) {
            self.selected = g.origins.iter().cloned().collect();
            if let Some(&k) = self.trace.kernels_of(group).first() {
                self.kernel = k;
            }
        }
    }
    /// Shows a kernel and selects what the groups that run it came from.
    pub fn select_kernel(&mut self, kernel: usize) {
        if kernel < self.trace.kernels.len() {
            self.kernel = kernel;
            let groups = self.trace.groups_of(kernel);
            self.selected = groups.into_iter().flat_map(|g| self.trace.groups[g].origins.clone()).collect();
        }
    }
    /// Selects the nodes of a remark.
    pub fn select_remark(&mut self, remark: usize) {
        let nodes = self.trace.remarks.get(remark).map(|r| r.nodes.iter().map(|n| n.to_string()).collect());
        self.select(nodes.unwrap_or_else(Vec::new));
    }

    /// Whether one of these source nodes is selected.
    pub fn marks<S: AsRef<str>>(&self, nodes: &[S]) -> bool {
        nodes.iter().any(|n| self.selected.contains(n.as_ref()))
    }
    /// Whether a kernel runs in a group of the selection.
    pub fn marks_kernel(&self, kernel: usize) -> bool {
        self.trace.groups_of(kernel).into_iter().any(|g| self.marks(&self.trace.groups[g].origins))
    }
    /// Whether a remark is about the selection.
    pub fn marks_remark(&self, r: &Remark) -> bool {
        r.nodes.iter().any(|n| self.selected.contains(n.as_str()))
    }
    /// Why a group ends where it does: what was missed at its nodes.
    pub fn boundaries(&self, g: &Group) -> Vec<&Remark> {
        let about = |r: &&Remark| r.nodes.iter().any(|n| g.origins.iter().any(|o| o == n.as_str()));
        self.trace.remarks.iter().filter(|r| r.kind == RemarkKind::Missed).filter(about).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::show::tests::trace;

    fn viewer() -> Viewer {
        Viewer::new(trace()).unwrap()
    }

    #[test]
    fn a_line_marks_what_came_from_its_nodes() {
        let mut v = viewer();
        v.show_stage(0, Mode::After);
        let line = v.lines().iter().position(|l| l.origins == ["relu_1"]).unwrap();
        v.select_line(line);
        assert_eq!(v.selected().iter().collect::<Vec<_>>(), ["relu_1"]);
        let group = v.trace().groups.iter().position(|g| v.marks(&g.origins)).unwrap();
        assert!(v.trace().groups[group].ops.contains(&"relu".to_string()));
        let kernel = v.trace().kernels_of(group)[0];
        assert!(v.marks_kernel(kernel));
        v.select_kernel(kernel);
        assert!(v.selected().contains("relu_1"));
        v.select([]);
        assert!(!v.marks_kernel(kernel));
    }

    #[test]
    fn changes_hold_both_texts() {
        let mut v = viewer();
        for stage in 0..v.trace().stages.len() {
            let mut texts = Vec::new();
            for mode in [Mode::Before, Mode::After] {
                v.show_stage(stage, mode);
                texts.push(v.lines().iter().map(|l| l.text.clone()).collect::<Vec<_>>());
            }
            v.show_stage(stage, Mode::Changes);
            let side = |left_out: Mark| -> Vec<String> {
                v.lines().iter().filter(|l| l.mark != left_out).map(|l| l.text.clone()).collect()
            };
            assert_eq!(side(Mark::Added), texts[0], "stage {stage}");
            assert_eq!(side(Mark::Removed), texts[1], "stage {stage}");
        }
        v.show_stage(999, Mode::After);
        assert!(v.stage() < 999);
    }
}
