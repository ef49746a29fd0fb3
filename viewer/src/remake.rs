//! Compiling the model again.

use crate::state::Viewer;
use egui::Context;

/// Starts what is wanted, where there is a model; the window of the work is opened.
pub(crate) fn start_again(ctx: &Context, v: &mut Viewer) {
    let Some(host) = v.host.clone() else { return };
    let ctx = ctx.clone();
    v.again.open = true;
    v.again.start(host, move || ctx.request_repaint());
}
