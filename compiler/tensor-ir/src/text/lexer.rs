//! Tokens of `.weft` text.

use super::ParseError;
use crate::bare::is_name_char;
use crate::schedule::template::Piece;

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub enum Tok {
    /// A word: keyword, op name, loop variable.
    Word(String),
    /// `%name`.
    Value(String),
    /// `%12`: an unnamed value.
    Number(String),
    /// `@name`.
    Global(String),
    /// Digits.
    Int(String),
    /// Digits with a fraction or an exponent.
    Float(String),
    /// A string literal, unescaped.
    Str(String),
    /// A word with variables of a template: `$rows`, `${conv}_m`.
    Template(Vec<Piece>),
    /// Punctuation.
    Punct(&'static str),
    /// End of the text.
    End,
}

/// A token and where it stands.
#[derive(Clone, Debug)]
pub struct Token {
    /// What it is.
    pub tok: Tok,
    /// Byte offset.
    pub start: usize,
    /// True when it is the first of its line.
    pub first: bool,
}

/// Printed text has about so many bytes a token.
const BYTES_OF_TOKEN: usize = 4;
/// Room that is made at once is for no more tokens: a text may be one long literal.
const MOST_ROOM: usize = 1 << 20;

/// Longer ones first.
const PUNCT: &[&str] = &[
    "..=", "..", "->", "<-", "<=", ">=", "==", "!=", "(", ")", "{", "}", "[", "]", ",", ":", "=", "<", ">", "+", "-",
    "*", "/", "%", "!", "`", "|", "?", "~", ".",
];

struct Lexer<'t> {
    source: &'t str,
    at: usize,
}

/// Splits `source`; the last token is [`Tok::End`]. A comment runs from `;` to the end of its line.
pub fn lex(source: &str) -> Result<Vec<Token>, ParseError> {
    let mut l = Lexer { source, at: 0 };
    let mut out = Vec::with_capacity((source.len() / BYTES_OF_TOKEN).min(MOST_ROOM));
    let mut first = true;
    loop {
        first |= l.skip_space();
        let start = l.at;
        let Some(c) = l.peek() else {
            out.push(Token { tok: Tok::End, start, first });
            return Ok(out);
        };
        let tok = l.token(c)?;
        out.push(Token { tok, start, first });
        first = false;
    }
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.source[self.at..]
    }
    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }
    fn error<T>(&self, at: usize, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError::new(self.source, at, message))
    }
    /// Skips blanks and comments; true when a line ended.
    fn skip_space(&mut self) -> bool {
        let mut newline = false;
        while let Some(c) = self.peek() {
            if c == ';' {
                self.at += self.rest().find('\n').unwrap_or(self.rest().len());
            } else if c.is_whitespace() {
                newline |= c == '\n';
                self.at += c.len_utf8();
            } else {
                break;
            }
        }
        newline
    }
    /// A run of name characters, with dots inside.
    fn run(&mut self) -> String {
        let rest = self.rest();
        let mut end = 0;
        let mut chars = rest.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            let inner_dot = c == '.' && i > 0 && chars.peek().is_some_and(|&(_, n)| is_name_char(n));
            if !is_name_char(c) && !inner_dot {
                break;
            }
            end = i + 1;
        }
        let text = rest[..end].to_string();
        self.at += end;
        text
    }
    /// A word, which in a template may have variables: `$name` is as long as a name can be, `${name}` ends at its
    /// brace.
    fn word(&mut self) -> Result<Tok, ParseError> {
        let mut pieces = Vec::new();
        while let Some(c) = self.peek().filter(|&c| is_name_char(c) || c == '$') {
            if c != '$' {
                pieces.push(Piece::Text(self.run()));
                continue;
            }
            let at = self.at;
            self.at += 1;
            let braced = self.rest().starts_with('{');
            self.at += usize::from(braced);
            let name = self.run();
            if name.is_empty() || braced && !self.rest().starts_with('}') {
                return self.error(at, "a variable is `$name`, or `${name}` before more of a word");
            }
            self.at += usize::from(braced);
            pieces.push(Piece::Variable(name));
        }
        Ok(match pieces.pop() {
            Some(Piece::Text(word)) if pieces.is_empty() => Tok::Word(word),
            last => Tok::Template(pieces.into_iter().chain(last).collect()),
        })
    }
    fn token(&mut self, c: char) -> Result<Tok, ParseError> {
        let next = self.rest()[c.len_utf8()..].chars().next();
        let starts_name = next.is_some_and(|n| is_name_char(n) || n == '"');
        if c == '%' && starts_name {
            self.at += 1;
            if next == Some('"') {
                return Ok(Tok::Value(self.string()?));
            }
            let name = self.run();
            return Ok(if name.chars().all(|c| c.is_ascii_digit()) { Tok::Number(name) } else { Tok::Value(name) });
        }
        if c == '@' {
            if !starts_name {
                return self.error(self.at, "a name must follow `@`");
            }
            self.at += 1;
            return Ok(Tok::Global(if next == Some('"') { self.string()? } else { self.run() }));
        }
        if c == '"' {
            return Ok(Tok::Str(self.string()?));
        }
        if c.is_ascii_digit() {
            return Ok(self.number());
        }
        if is_name_char(c) || c == '$' {
            return self.word();
        }
        match PUNCT.iter().find(|p| self.rest().starts_with(**p)) {
            Some(p) => {
                self.at += p.len();
                Ok(Tok::Punct(p))
            }
            None => self.error(self.at, format!("the character `{}` means nothing here", c.escape_default())),
        }
    }
    fn digits(&mut self) {
        self.at += self.rest().bytes().take_while(u8::is_ascii_digit).count();
    }
    fn number(&mut self) -> Tok {
        let start = self.at;
        let mut float = false;
        self.digits();
        let bytes = |l: &Self| (l.rest().as_bytes().first().copied(), l.rest().as_bytes().get(1).copied());
        if let (Some(b'.'), Some(d)) = bytes(self)
            && d.is_ascii_digit()
        {
            float = true;
            self.at += 1;
            self.digits();
        }
        if let (Some(b'e' | b'E'), Some(d)) = bytes(self) {
            let sign = usize::from(d == b'-' || d == b'+');
            if self.rest().as_bytes().get(1 + sign).is_some_and(u8::is_ascii_digit) {
                float = true;
                self.at += 1 + sign;
                self.digits();
            }
        }
        let text = self.source[start..self.at].to_string();
        if float { Tok::Float(text) } else { Tok::Int(text) }
    }
    fn string(&mut self) -> Result<String, ParseError> {
        let open = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let at = self.at;
            let Some(c) = self.peek() else { return self.error(open, "this string has no end") };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\n' => return self.error(open, "this string does not end on its line"),
                '\\' => out.push(self.escape(at)?),
                c => out.push(c),
            }
        }
    }
    fn escape(&mut self, at: usize) -> Result<char, ParseError> {
        let c = self.peek().unwrap_or(' ');
        self.at += if c == ' ' { 0 } else { c.len_utf8() };
        match c {
            '"' | '\\' => Ok(c),
            'n' => Ok('\n'),
            't' => Ok('\t'),
            'u' => {
                let rest = self.rest();
                let inner = rest.strip_prefix('{').and_then(|r| r.split_once('}')).map(|(code, _)| code);
                let decoded = inner.and_then(|code| char::from_u32(u32::from_str_radix(code, 16).ok()?));
                match (inner, decoded) {
                    (Some(code), Some(decoded)) => {
                        self.at += code.len() + 2;
                        Ok(decoded)
                    }
                    _ => self.error(at, "`\\u{...}` needs the hexadecimal number of a character"),
                }
            }
            _ => self.error(at, "unknown escape; use `\\\"`, `\\\\`, `\\n`, `\\t` or `\\u{...}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toks(s: &str) -> Vec<Tok> {
        let mut t: Vec<Tok> = lex(s).expect("lexes").into_iter().map(|t| t.tok).collect();
        t.pop();
        t
    }

    #[test]
    fn ranges_names_and_numbers() {
        let w = |s: &str| Tok::Word(s.into());
        assert_eq!(toks("i in 0..n.x"), vec![w("i"), w("in"), Tok::Int("0".into()), Tok::Punct(".."), w("n.x")]);
        assert_eq!(
            toks("%0 %a.b %\"x y\" @1"),
            vec![Tok::Number("0".into()), Tok::Value("a.b".into()), Tok::Value("x y".into()), Tok::Global("1".into())]
        );
        assert_eq!(
            toks("1.5e-3 2e4 7 % x"),
            vec![Tok::Float("1.5e-3".into()), Tok::Float("2e4".into()), Tok::Int("7".into()), Tok::Punct("%"), w("x")]
        );
        assert_eq!(toks("\"\\u{e9}\\n\" ; comment"), vec![Tok::Str("é\n".into())]);
        assert!(lex("\"open").is_err());
        assert!(lex("\"\\").is_err());
        assert!(lex("§").is_err());
    }
}
