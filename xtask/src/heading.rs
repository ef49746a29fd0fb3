//! Headings between the outputs of several commands.

/// A heading in the output.
pub fn heading(title: &str) {
    eprintln!("\n=== {title}");
}
