//! Keep lists: which source nodes stay in f32, and why.

use crate::graph::{Module, Node};
use crate::name::Name;
use rustc_hash::FxHashSet;

/// A pattern over the names of source nodes that stay in f32.
#[derive(Clone, PartialEq, Debug)]
pub struct KeepF32 {
    /// `*` stands for any text, `?` for one character, a backslash makes the next character plain.
    pub pattern: String,
    /// Why, for remarks.
    pub why: String,
    /// A person wrote it: it must match a node of the model.
    pub listed: bool,
}
impl KeepF32 {
    /// An entry of a keep list that a person wrote.
    pub fn listed(pattern: &str) -> KeepF32 {
        KeepF32 { pattern: pattern.to_string(), why: format!("`{pattern}` is on the keep list"), listed: true }
    }
    /// One node, by its exact name.
    pub fn node(name: Name, why: impl Into<String>) -> KeepF32 {
        KeepF32 { pattern: escape_pattern(name.as_str()), why: why.into(), listed: false }
    }
    /// True if the pattern matches the node or one of its source nodes.
    pub fn covers(&self, node: &Node) -> bool {
        let hit = |n: &Name| matches_pattern(&self.pattern, n.as_str());
        hit(&node.name) || node.origins.names().iter().any(hit)
    }
}

/// The pattern that means exactly `name`.
pub fn escape_pattern(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '*' | '?' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// True when the whole of `name` matches `pattern`.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let (p, s): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut i, mut j) = (0, 0);
    // The last `*`, and where in the name what follows it is tried next.
    let mut star: Option<(usize, usize)> = None;
    while j < s.len() {
        let escaped = i + 1 < p.len() && p[i] == '\\';
        let plain = if escaped { p[i + 1] } else { *p.get(i).unwrap_or(&'\0') };
        if i < p.len() && p[i] == '*' {
            star = Some((i, j));
            i += 1;
        } else if i < p.len() && (p[i] == '?' || plain == s[j]) {
            i += if escaped { 2 } else { 1 };
            j += 1;
        } else if let Some((at, from)) = star {
            star = Some((at, from + 1));
            (i, j) = (at + 1, from + 1);
        } else {
            return false;
        }
    }
    p[i..].iter().all(|&c| c == '*')
}

/// [`check_patterns`] of the entries that a person wrote.
///
/// # Errors
/// As there.
pub fn check_listed(module: &Module, keep: &[KeepF32]) -> Result<(), String> {
    check_patterns(module, keep.iter().filter(|k| k.listed).map(|k| &k.pattern))
}

/// Refuses patterns that match no node of the module: a typo must not silently change the work.
///
/// # Errors
/// The first pattern without a match, with some of the names that there are.
pub fn check_patterns<'a>(module: &Module, patterns: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut names: FxHashSet<Name> = FxHashSet::default();
    let mut patterns = patterns.peekable();
    if patterns.peek().is_none() {
        return Ok(());
    }
    for f in module.functions.values() {
        for n in f.walk() {
            names.insert(f.nodes[n].name);
            names.extend(f.nodes[n].origins.names());
        }
    }
    for p in patterns {
        if !names.iter().any(|n| matches_pattern(p, n.as_str())) {
            let plain = p.replace(['*', '?', '\\'], "");
            let mut near: Vec<&str> = names.iter().map(|n| n.as_str()).filter(|n| n.contains(&plain)).collect();
            near.sort_unstable();
            near.truncate(4);
            let near = if near.is_empty() { String::new() } else { format!(" (there are {})", near.join(", ")) };
            return Err(format!("no node matches the pattern `{p}` of the keep list{near}"));
        }
    }
    Ok(())
}

/// The text of a file that `--keep-f32 @FILE` reads; `about` says what the list does.
pub fn keep_list(patterns: &[String], about: &str) -> String {
    let mut text = format!("# nodes that stay in f32, for --keep-f32 @FILE\n# {about}\n");
    for pattern in patterns {
        text += if pattern.starts_with(['#', '@']) { "\\" } else { "" };
        text += pattern;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        let yes =
            [("*", ""), ("Conv_*", "Conv_12"), ("*/Softmax", "a/b/Softmax"), ("a?c", "abc"), ("a*b*c", "a__b_bc")];
        for (p, s) in yes {
            assert!(matches_pattern(p, s), "{p} {s}");
        }
        for (p, s) in [("Conv", "Conv_1"), ("a?c", "ac"), ("*x", "xy"), ("", "a"), (r"a\*", "ab")] {
            assert!(!matches_pattern(p, s), "{p} {s}");
        }
        for name in ["plain", "a*b", r"back\slash", "what?"] {
            assert!(matches_pattern(&escape_pattern(name), name), "{name}");
        }
    }
}
