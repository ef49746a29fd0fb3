//! Compiling the model again.

use crate::state::Viewer;
use egui::Context;

impl Viewer {
    /// Starts what is wanted, where there is a model; the window of the work is opened.
    pub(crate) fn start_again(&mut self, ctx: &Context) {
        let Some(host) = self.host.clone() else { return };
        let ctx = ctx.clone();
        self.again.open = true;
        self.again.start(host, move || ctx.request_repaint());
    }
}
