//! Which names are written without quotes in text, and how the others are quoted.

/// Words that mean something as a bare attribute value.
fn is_reserved(word: &str) -> bool {
    matches!(word, "true" | "false" | "inf" | "nan" | "_") || word.parse::<crate::dtype::DType>().is_ok()
}

/// True for a character inside a bare name; dots only between two others.
pub fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn has_name_chars(name: &str) -> bool {
    !name.is_empty() && name.split('.').all(|part| !part.is_empty() && part.chars().all(is_name_char))
}

/// True for a name that may follow `%` or `@` without quotes. All digits are the number of an unnamed value.
pub fn is_bare_after_sigil(name: &str) -> bool {
    has_name_chars(name) && !name.chars().all(|c| c.is_ascii_digit())
}

/// True for a name that may stand by itself: a loop variable, a symbol, an attribute's text.
pub fn is_bare(name: &str) -> bool {
    has_name_chars(name) && !name.starts_with(|c: char| c.is_ascii_digit()) && !is_reserved(name)
}

/// The name with quotes where it needs them.
pub fn name(name: &str) -> String {
    if is_bare(name) { name.to_string() } else { quote(name) }
}

/// The name after `%` or `@`, with quotes where it needs them.
pub fn after_sigil(name: &str) -> String {
    if is_bare_after_sigil(name) { name.to_string() } else { quote(name) }
}

/// A string literal.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_quoted() {
        assert_eq!(name("i_0.a"), "i_0.a");
        for odd in ["", "a..b", ".a", "a.", "f32", "true", "0a", "a/b", "_"] {
            assert_eq!(name(odd), format!("\"{odd}\""));
        }
        assert_eq!(after_sigil("0a"), "0a");
        assert_eq!(after_sigil("12"), "\"12\"");
        assert_eq!(quote("a\"\\\n\u{1}"), "\"a\\\"\\\\\\n\\u{1}\"");
    }
}
