//! Texts with words of our own: the pointer on them shows what the words mean, from the table of [`graphview::words`].

use egui::{Response, RichText, Ui};
use graphview::words::used;

/// The meanings of the words of our own in a text, a line each; empty if there are none.
pub(crate) fn about(text: &str) -> String {
    used(text).iter().map(|(word, means)| format!("{word}: {means}.")).collect::<Vec<_>>().join("\n")
}

/// Adds the meanings of a text's words to what stands there.
pub(crate) fn hover(response: Response, text: &str) -> Response {
    if !response.contains_pointer() {
        return response;
    }
    let about = about(text);
    if about.is_empty() { response } else { response.on_hover_text(about) }
}

/// A label.
pub(crate) fn label(ui: &mut Ui, text: &str) -> Response {
    hover(ui.label(text), text)
}

/// A label in weak ink.
pub(crate) fn weak(ui: &mut Ui, text: &str) -> Response {
    hover(ui.label(RichText::new(text).weak()), text)
}
