//! Going from stage to stage.

use crate::canvas::colour::ColourBy;
use crate::state::Viewer;

/// The pass that makes groups.
const FUSION: &str = "fuse-ops";

impl Viewer {
    /// Shows a stage that was chosen. Fusion is shown with both of its sides and the groups in colours, until another
    /// pass is chosen or either is changed.
    pub fn go_to_stage(&mut self, stage: usize) {
        self.show_stage(stage);
        let fusion = self.pass_of(self.stage()).is_some_and(|p| p.name == FUSION);
        let plain = !self.compare && self.other.is_none() && self.colour == ColourBy::Work;
        if fusion && plain {
            (self.compare, self.colour, self.shows_fusion) = (true, ColourBy::Group, true);
        } else if !fusion && std::mem::take(&mut self.shows_fusion) && self.compare && self.colour == ColourBy::Group {
            (self.compare, self.colour) = (false, ColourBy::Work);
        }
    }
    /// Whether the shown stage is behind fusion.
    pub(crate) fn is_fused(&self) -> bool {
        self.stage() > self.stages_before_fusion()
    }
    /// The last stage before fusion, or the last one of a compilation without it.
    pub(crate) fn stages_before_fusion(&self) -> usize {
        let fusion = (0..=self.document().last_graph()).find(|&s| self.pass_of(s).is_some_and(|p| p.name == FUSION));
        fusion.map_or(self.document().last_graph(), |s| s.saturating_sub(1))
    }
    /// The next stage that changed the graph, or the one before.
    pub fn step(&mut self, forward: bool) {
        let changed = |s: &usize| *s == 0 || self.document().graph_of(*s) == *s;
        let last = self.document().last_graph();
        let next = match forward {
            true => (self.stage() + 1..=last).find(changed),
            false => (0..self.stage().min(last + 1)).rev().find(changed),
        };
        if let Some(next) = next {
            self.go_to_stage(next);
        }
    }
}
