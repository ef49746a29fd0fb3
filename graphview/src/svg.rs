//! What pictures as SVG and HTML have in common: colours of categories, and text between tags.

use crate::picture::Category;
use compiler::bare::shown;

/// Fill colour of a category, for light backgrounds; the hues keep their distance for the colour-blind.
pub fn fill(category: Category) -> &'static str {
    match category {
        Category::Contraction => "#9ec5f8",
        Category::Reduction => "#f9d48b",
        Category::Elementwise => "#b7e0b1",
        Category::Movement => "#d9d3e8",
        Category::Cast => "#f5b7c5",
        Category::Control => "#f3c6a5",
        Category::Group => "#cfe4f7",
        Category::External => "#e3b5e8",
        Category::Layer => "#dfe9f3",
        Category::Terminal => "#e6e6e6",
        Category::Other => "#d5dbd6",
    }
}

/// The text with XML's reserved characters as entities, and hidden characters shown: XML forbids some of them.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in shown(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}
