//! The origin map of a stage: the source nodes of each line of its text, read from the `!from(...)` or `!for(...)` at
//! the end of the line.

use super::{CompileTrace, TraceError};

/// A line of a stage's text and its source nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LineOrigins {
    /// Line, from 0.
    pub line: usize,
    /// Source nodes, sorted.
    pub origins: Vec<String>,
}

impl CompileTrace {
    /// The lines of stage `index` that have source nodes.
    ///
    /// # Errors
    /// [`TraceError::Damaged`] when a delta does not fit the stage before it.
    pub fn origin_map(&self, index: usize) -> Result<Vec<LineOrigins>, TraceError> {
        Ok(self.stage_text(index)?.map_or(vec![], |text| {
            let lines = text.lines().enumerate().map(|(line, t)| LineOrigins { line, origins: line_origins(t) });
            lines.filter(|l| !l.origins.is_empty()).collect()
        }))
    }
}

/// Source nodes of one line of a graph function; none where it names none.
pub fn line_origins(line: &str) -> Vec<String> {
    let marks = [" !from(", " !for("];
    let Some((at, mark)) = marks.iter().find_map(|m| Some((outside_quotes(line, m)?, m))) else { return vec![] };
    let mut chars = line[at + mark.len()..].chars();
    let mut out = Vec::new();
    loop {
        match chars.next() {
            Some('"') => match unquote(&mut chars) {
                Some(name) => out.push(name),
                None => return out,
            },
            Some(',' | ' ') => {}
            _ => return out,
        }
    }
}

/// Where `mark` stands outside of string literals.
fn outside_quotes(line: &str, mark: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (i, c) in line.char_indices() {
        if !quoted && line[i..].starts_with(mark) {
            return Some(i);
        }
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
    }
    None
}

/// The rest of a string literal behind its opening quote, as the printer writes it.
fn unquote(chars: &mut std::str::Chars<'_>) -> Option<String> {
    let mut out = String::new();
    loop {
        match chars.next()? {
            '"' => return Some(out),
            '\\' => match chars.next()? {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'u' => {
                    let digits: String = chars.by_ref().skip_while(|&c| c == '{').take_while(|&c| c != '}').collect();
                    out.push(u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)?);
                }
                c => out.push(c),
            },
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_off_a_line() {
        assert_eq!(
            line_origins(r#"  %1 = relu %0 : f32[4] !name("r") !from("Conv_3", "a\"b\u{1}\\")"#),
            ["Conv_3", "a\"b\u{1}\\"]
        );
        assert_eq!(line_origins(r#"  %0 = if %c : f32[4] !from("If") {"#), ["If"]);
        assert_eq!(line_origins(r#"  %0 = cast %x {to=f16} : f16[4] !name("x.f16") !for("Conv_0")"#), ["Conv_0"]);
        assert!(line_origins(r#"  %1 = relu %0 {name=" !from(\"x\")"} : f32[4]"#).is_empty());
        assert!(line_origins("  return %1").is_empty());
        assert!(line_origins(r#"  %1 = x : f32 !from("a"#).is_empty());
    }
}
