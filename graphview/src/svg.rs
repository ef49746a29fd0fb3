//! A scene as SVG: the export of the canvas, and the picture that reports show before their script has run.

use crate::layout::{Direction, Route};
use crate::picture::Category;
use crate::scene::{INSET, LINE, Scene, SceneBox};
use std::fmt::Write;

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

/// The text with XML's reserved characters as entities, and without characters that XML forbids.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The data of an SVG path along a route: straight past layers, curved between them.
pub fn path(points: &[[f32; 2]], direction: Direction) -> String {
    let mut d = String::new();
    let Some(first) = points.first() else { return d };
    let _ = write!(d, "M{:.1} {:.1}", first[0], first[1]);
    for pair in points.windows(2) {
        let ([x0, y0], [x1, y1]) = (direction.turn(pair[0]), direction.turn(pair[1]));
        let [ex, ey] = pair[1];
        if (x0 - x1).abs() < 0.05 {
            let _ = write!(d, "L{ex:.1} {ey:.1}");
        } else {
            let middle = (y0 + y1) / 2.0;
            let [[ax, ay], [bx, by]] = [[x0, middle], [x1, middle]].map(|p| direction.turn(p));
            let _ = write!(d, "C{ax:.1} {ay:.1} {bx:.1} {by:.1} {ex:.1} {ey:.1}");
        }
    }
    d
}

/// A whole SVG document; `fills` are the colours of the scene's boxes.
pub fn document(scene: &Scene, fills: &[String]) -> String {
    let [w, h] = scene.size;
    let (left, top, width, height) = (-12.0, -12.0, w + 24.0, h + 24.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{left} {top} {width:.1} {height:.1}\" width=\"{width:.0}\" \
         height=\"{height:.0}\" font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\">\n"
    );
    out.push_str("<rect x=\"-12\" y=\"-12\" width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
    let of = |i: usize, b: &SceneBox| fills.get(i).cloned().unwrap_or_else(|| fill(b.node.work).to_string());
    for (i, b) in scene.boxes.iter().enumerate().filter(|(_, b)| b.open) {
        draw_box(&mut out, b, &of(i, b));
    }
    for c in &scene.captions {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#555\">{}</text>",
            c.at[0],
            c.at[1] + 12.0,
            escape(&c.text)
        );
    }
    for e in &scene.edges {
        let names = [e.from, e.to].map(|i| scene.boxes[i].node.name.as_str());
        draw_route(&mut out, &e.route, names, scene.direction);
    }
    for (i, b) in scene.boxes.iter().enumerate().filter(|(_, b)| !b.open) {
        draw_box(&mut out, b, &of(i, b));
    }
    out.push_str("</svg>\n");
    out
}

fn draw_route(out: &mut String, route: &Route, [from, to]: [&str; 2], direction: Direction) {
    let line = "fill=\"none\" stroke=\"#777\" stroke-width=\"1\"";
    match route {
        Route::Line(points) => {
            let _ = writeln!(out, "<path d=\"{}\" {line}/>", path(points, direction));
        }
        Route::Portal([x0, y0], [x1, y1]) => {
            let [dx, dy] = direction.turn([0.0, 8.0]);
            let _ = writeln!(out, "<path d=\"M{x0:.1} {y0:.1}l{dx} {dy}M{x1:.1} {y1:.1}l-{dx} -{dy}\" {line}/>");
            let text = "font-size=\"8\" fill=\"#777\"";
            let _ = writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\" {text}>to {}</text>", x0 + 3.0, y0 + 9.0, escape(to));
            let _ =
                writeln!(out, "<text x=\"{:.1}\" y=\"{:.1}\" {text}>from {}</text>", x1 + 3.0, y1 - 2.0, escape(from));
        }
    }
}

fn draw_box(out: &mut String, b: &SceneBox, fill: &str) {
    let [x, y, w, h] = b.rect;
    let (fill, stroke) = if b.open { ("#f6f8fb", "#8aa") } else { (fill, "#555") };
    let _ = writeln!(
        out,
        "<g><title>{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{w:.1}\" height=\"{h:.1}\" rx=\"4\" fill=\"{fill}\" \
         stroke=\"{stroke}\"/>",
        escape(&b.node.name)
    );
    let shown = if b.open { 1 } else { b.lines.len() };
    for (i, line) in b.lines.iter().take(shown).enumerate() {
        let weight = if i == 0 { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\"{weight}>{}</text>",
            x + INSET,
            y + INSET / 2.0 + 11.0 + i as f32 * LINE,
            escape(line)
        );
    }
    out.push_str("</g>\n");
}
