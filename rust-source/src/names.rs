//! Names of a model as Rust's.

/// Words that are no names.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// `name` in lower case with `_` for all that is neither letter nor digit; `letter` stands before a digit, and alone
/// for a name without either.
pub(crate) fn identifier(name: &str, letter: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c.is_ascii_alphanumeric() {
            true => out.push(c.to_ascii_lowercase()),
            false if out.is_empty() || out.ends_with('_') => {}
            false => out.push('_'),
        }
    }
    let mut out = out.trim_end_matches('_').to_string();
    if !out.starts_with(|c: char| c.is_ascii_lowercase()) {
        out.insert_str(0, letter);
    }
    if KEYWORDS.contains(&out.as_str()) { out + "_" } else { out }
}

/// The fields of a structure for tensors of these names, all different.
pub(crate) fn fields<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for name in names {
        let plain = identifier(name, "x");
        let mut free = plain.clone();
        let mut n = 2;
        while out.contains(&free) {
            free = format!("{}_{n}", plain.trim_end_matches('_'));
            n += 1;
        }
        out.push(free);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_differ_and_are_names() {
        let names = ["/a/b.Out", "a_b_out", "a b out", "type", "Type", "7", "", "a_b_out_2"];
        let want = ["a_b_out", "a_b_out_2", "a_b_out_3", "type_", "type_2", "x7", "x", "a_b_out_2_2"];
        assert_eq!(fields(names.into_iter()), want);
    }
}
