//! Drives the window without a display, as a person would: clicks, keys and text, one step a line. What is done is told
//! with the seconds that it took, so that a path through the window is a transcript that can be run again.

use crate::live::Host;
use crate::screenshot::{drawn, settle};
use crate::start::{Fault, Shot, select};
use crate::{Viewer, keys};
use compiler::trace::CompileTrace;
use egui::Role;
use egui_kittest::kittest::{NodeT, Queryable};
use egui_kittest::{Harness, Node};
use std::sync::Arc;
use std::time::Instant;

/// The steps, and what they do.
pub const STEPS: &[(&str, &str)] = &[
    ("click LABEL", "click what has this label, or else the first whose label has it as a part"),
    ("hover LABEL", "move the mouse over it, until its text opens"),
    ("choose LABEL = VALUE", "take a value of a list"),
    ("type TEXT", "write where the cursor is"),
    ("key KEY", "press a key, as `B` or `Ctrl F`"),
    ("select NODE", "as --select"),
    ("see TEXT", "the window has a text with this part; it is printed"),
    ("shot F.png", "write a picture of the window"),
];

/// What a window is driven with.
type Window = Harness<'static, Viewer>;

/// Opens a trace, takes the steps, and tells each with the seconds since the start and what `see` saw.
///
/// # Errors
/// As for [`crate::screenshot()`]; a step that there is not, or that cannot be taken, with its line.
pub fn walk(
    trace: CompileTrace,
    shot: &Shot,
    host: Arc<dyn Host>,
    steps: &str,
    tell: &mut dyn FnMut(&str),
) -> Result<(), Fault> {
    let start = Instant::now();
    let mut h = drawn(trace, shot)?;
    h.state_mut().host = Some(host);
    settle(&mut h)?;
    tell(&format!("{:7.1} s  opened", start.elapsed().as_secs_f64()));
    let given = steps.lines().enumerate().map(|(n, l)| (n + 1, l.trim()));
    for (n, line) in given.filter(|(_, l)| !l.is_empty() && !l.starts_with('#')) {
        let at = |why: String| Fault::Asked(format!("line {n}, `{line}`: {why}"));
        let seen = step(&mut h, line).map_err(|why| match why {
            Fault::Asked(why) => at(why),
            other => other,
        })?;
        tell(&format!("{:7.1} s  {line}", start.elapsed().as_secs_f64()));
        seen.iter().for_each(|s| tell(&format!("             | {s}")));
    }
    Ok(())
}

/// Takes a step, and waits until the window is at rest; what was to be seen.
fn step(h: &mut Window, line: &str) -> Result<Vec<String>, Fault> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    match word {
        "click" => click(h, rest, None)?,
        "hover" => {
            let at = find(h, rest, None).ok_or_else(gone)?.rect().center();
            h.hover_at(at);
            h.run_steps(60);
        }
        "choose" => {
            let (list, value) =
                rest.split_once(" = ").ok_or_else(|| Fault::Asked("as `choose LABEL = VALUE`".into()))?;
            click(h, list.trim(), Some(Role::ComboBox))?;
            h.run_steps(4);
            click(h, value.trim(), None)?;
        }
        "type" => h.event(egui::Event::Text(rest.into())),
        "key" => {
            let (modifiers, key) = keys::parse(rest).ok_or_else(|| Fault::Asked("there is no such key".into()))?;
            h.key_press_modifiers(modifiers, key);
        }
        "select" => select(h.state_mut(), rest)?,
        "see" => {
            let found = texts(h).into_iter().filter(|t| t.contains(rest)).collect::<Vec<_>>();
            if found.is_empty() {
                return Err(Fault::Asked(format!(
                    "no text in the window has this; there are\n{}",
                    texts(h).join("\n")
                )));
            }
            return Ok(found);
        }
        "shot" => {
            let picture = h.render().map_err(Fault::Window)?;
            picture.save(rest).map_err(|e| Fault::Asked(e.to_string()))?;
        }
        _ => {
            let all: Vec<String> = STEPS.iter().map(|(step, about)| format!("\n  {step}: {about}")).collect();
            return Err(Fault::Asked(format!("there is no such step; there are{}", all.concat())));
        }
    }
    settle(h)?;
    Ok(vec![])
}

fn gone() -> Fault {
    Fault::Asked("nothing in the window has this label".into())
}

/// Clicks the last widget with a label, since menus and windows lie above the rest; without one, the first whose label
/// has it as a part. What is scrolled out of sight is brought into it.
fn click(h: &mut Window, label: &str, role: Option<Role>) -> Result<(), Fault> {
    let screen = h.ctx.content_rect();
    // A list may be scrolled so that it is out of sight, though within the window.
    find(h, label, role).ok_or_else(gone)?.scroll_to_me();
    h.run_steps(20);
    let node = find(h, label, role).ok_or_else(gone)?;
    if !screen.contains(node.rect().center()) {
        return Err(Fault::Asked("it is out of sight".into()));
    }
    node.click();
    Ok(())
}

fn find<'h>(h: &'h Window, label: &'h str, role: Option<Role>) -> Option<Node<'h>> {
    let fits = move |n: &Node<'_>| role.is_none_or(|r| n.accesskit_node().role() == r);
    let exact = h.query_all_by_label(label).rfind(fits);
    exact.or_else(|| h.query_all_by_label_contains(label).find(fits))
}

/// All texts of the window, in order.
fn texts(h: &Window) -> Vec<String> {
    let mut out = Vec::new();
    let mut open = vec![h.root().accesskit_node()];
    while let Some(n) = open.pop() {
        out.extend(n.label().or_else(|| n.value()));
        open.extend(n.children().collect::<Vec<_>>().into_iter().rev());
    }
    // A text within a label stands in both.
    out.retain(|t| !t.is_empty());
    out.dedup();
    out
}
