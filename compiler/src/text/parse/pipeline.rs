//! Pipelines of passes.

use crate::attr::Attrs;
use crate::text::ParseError;
use tensor_ir::text::lexer::Tok;
use tensor_ir::text::parse::Parser;

/// Parses a pipeline: `fold-constants, fuse-ops {mode=classic}`, names of passes with their options.
///
/// # Errors
/// The first thing that is wrong, with its place. Names and options are not looked up.
pub fn parse_pipeline(source: &str) -> Result<Vec<(String, Attrs)>, ParseError> {
    let mut p = Parser::new(source)?;
    let mut out = Vec::new();
    while *p.peek() != Tok::End {
        if !out.is_empty() {
            p.expect_punct(",")?;
        }
        let name = p.dashed("a pass")?;
        out.push((name, p.attrs()?));
    }
    Ok(out)
}
