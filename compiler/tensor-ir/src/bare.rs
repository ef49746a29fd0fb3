//! Which names are written without quotes in text, how the others are quoted, and how names from files are shown:
//! without characters that command a terminal or change the order of the characters around them.

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
            c => out = push_shown(out, c),
        }
    }
    out.push('"');
    out
}

/// True for a character that shows nothing itself: of control, of a text's direction, without width, or a tag.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn push_shown(mut out: String, c: char) -> String {
    match is_hidden(c) {
        true => out.push_str(&format!("\\u{{{:x}}}", c as u32)),
        false => out.push(c),
    }
    out
}

/// The text in one line, with hidden characters as `\u{202e}`: for comments.
pub fn shown_in_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), push_shown)
}

/// The text with hidden characters as `\u{202e}`, but for ends of lines and tabs: for terminals and pages.
pub fn shown(text: &str) -> String {
    text.split_inclusive(['\n', '\t']).fold(String::with_capacity(text.len()), |mut out, part| {
        let line = part.trim_end_matches(['\n', '\t']);
        out = line.chars().fold(out, push_shown);
        out + &part[line.len()..]
    })
}

/// A JSON text with hidden characters, which stand in its strings alone, as JSON writes them: `\u202e`.
pub fn shown_in_json(text: &str) -> String {
    let mut units = [0; 2];
    let push = |out: &mut String, unit: &u16| out.push_str(&format!("\\u{unit:04x}"));
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) && c != '\n' {
            true => c.encode_utf16(&mut units).iter().for_each(|unit| push(&mut out, unit)),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_shown() {
        let hostile = "a\u{1b}[2J\u{202e}b\u{e0041}\n\tc\u{9b}é";
        assert_eq!(shown(hostile), "a\\u{1b}[2J\\u{202e}b\\u{e0041}\n\tc\\u{9b}é");
        assert_eq!(shown_in_line(hostile), "a\\u{1b}[2J\\u{202e}b\\u{e0041}\\u{a}\\u{9}c\\u{9b}é");
        assert_eq!(shown_in_json("{\n\"\u{202e}\u{e0041}\u{7f}\"}"), "{\n\"\\u202e\\udb40\\udc41\\u007f\"}");
        assert_eq!(quote("\u{202e}\n"), r#""\u{202e}\n""#);
    }

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
