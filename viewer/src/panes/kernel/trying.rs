//! Tries schedules of the shown kernel.

use super::editing::Answer;
use super::pane::Form;
use crate::live::attempt::{Attempt, Trier};
use crate::state::Viewer;
use egui::Ui;

/// A schedule of the shown kernel, to be tried.
pub(super) fn attempt_of(v: &Viewer, schedule: String) -> Attempt {
    let timed = v.host.as_ref().is_some_and(|h| h.device().is_ok());
    let (function, part) = (v.trace().kernels[v.kernel()].function.clone(), v.trace().part_of_kernel(v.kernel()));
    Attempt { function, part, schedule, timed }
}

/// Tries a schedule; what comes of it stands beside what there is.
pub(super) fn ask(v: &mut Viewer, attempt: Attempt) {
    (v.kernel_pane.edit.asked, v.kernel_pane.edit.said) = (Some(attempt), None);
    if !v.kernel_pane.columns.contains(&Form::Edited) {
        v.kernel_pane.turn_column(Form::Edited);
    }
}

/// The answer to an attempt, if it is there; else it is asked for.
pub(super) fn answer(ui: &Ui, v: &mut Viewer, asked: &Attempt) -> Option<Answer> {
    let (document, host, ctx) = (v.document().clone(), v.host.clone(), ui.ctx().clone());
    let start = || Trier::start(document, host, move || ctx.request_repaint());
    v.kernel_pane.edit.trier.get_or_insert_with(start).get(asked)
}
