//! Errors of the text parser: message, place, and the line with a caret.

use std::fmt;

/// Why text is not a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// One sentence.
    pub message: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Text of the line.
    pub text: String,
}

impl ParseError {
    /// At byte `offset` of `source`.
    pub(super) fn new(source: &str, offset: usize, message: impl Into<String>) -> ParseError {
        let offset = offset.min(source.len());
        let before = source.get(..offset).unwrap_or(source);
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let text = source[start..].lines().next().unwrap_or("").to_string();
        ParseError {
            message: message.into(),
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            text,
        }
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.line.to_string();
        let margin = " ".repeat(number.len());
        // Tabs stay tabs, so that the caret stands below its character whatever the tab width.
        let indent: String =
            self.text.chars().take(self.column - 1).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let missing = (self.column - 1).saturating_sub(self.text.chars().count());
        writeln!(f, "line {}, column {}: {}", self.line, self.column, self.message)?;
        writeln!(f, "{margin} |")?;
        writeln!(f, "{number} | {}", self.text)?;
        write!(f, "{margin} | {indent}{}^", " ".repeat(missing))
    }
}
impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_line_and_a_caret() {
        let e = ParseError::new("one\n\ttwo x\n", 9, "no x");
        assert_eq!(e.to_string(), "line 2, column 6: no x\n  |\n2 | \ttwo x\n  | \t    ^");
        assert_eq!(ParseError::new("a\n", 2, "end").line, 2);
    }
}
