//! Colours of code: enough of each language to tell words, numbers and comments apart.

use egui::text::LayoutJob;
use egui::{Color32, FontId, TextFormat};

/// A language.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// Tensor functions, and schedules.
    Weft,
    /// WGSL, MSL, HLSL.
    Shader,
    /// SPIR-V, disassembled.
    Spirv,
}

/// What a part of a line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// A word of the language.
    Keyword,
    /// A type.
    Type,
    /// A number.
    Number,
    /// A comment, or text in quotes.
    Comment,
    /// A name that the language marks: attributes, values of SPIR-V.
    Mark,
    /// Everything else.
    Plain,
}

const WEFT: &[&str] = &[
    "for",
    "in",
    "block",
    "tensor",
    "kernel",
    "buffer",
    "if",
    "else",
    "select",
    "reduce",
    "sum",
    "max",
    "min",
    "unroll",
    "vectorize",
    "out",
    "schedule",
    "global",
    "shared",
    "register",
    "subgroup",
    "barrier",
    "where",
];
const SHADER: &[&str] = &[
    "fn",
    "let",
    "var",
    "if",
    "else",
    "for",
    "while",
    "loop",
    "continuing",
    "break",
    "return",
    "struct",
    "const",
    "enable",
    "override",
    "storage",
    "workgroup",
    "read_write",
    "read",
    "function",
    "private",
    "void",
    "kernel",
    "device",
    "constant",
    "threadgroup",
    "thread",
    "using",
    "namespace",
    "include",
    "static",
    "groupshared",
    "switch",
    "case",
    "default",
    "metal",
    "typedef",
    "register",
    "uniform",
    "inline",
    "continue",
    "do",
];

fn is_type(word: &str) -> bool {
    const PLAIN: [&str; 14] =
        ["f32", "f16", "i32", "u32", "bool", "float", "half", "int", "uint", "long", "bf16", "i64", "i8", "u8"];
    const HEADS: [&str; 8] = ["vec", "array", "float", "int", "uint", "half", "packed_", "ByteAddressBuffer"];
    PLAIN.contains(&word)
        || HEADS
            .iter()
            .any(|h| word.strip_prefix(h).is_some_and(|r| r.is_empty() || r.starts_with(|c: char| c.is_ascii_digit())))
        || word == "RWByteAddressBuffer"
}

/// The parts of a line, in order; together they are the line.
pub fn parts(line: &str, language: Language) -> Vec<(Class, &str)> {
    let mut out = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let take = |f: &dyn Fn(char) -> bool| rest.find(|c| !f(c)).unwrap_or(rest.len());
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let (class, length) = match first {
            '/' if rest.starts_with("//") => (Class::Comment, rest.len()),
            ';' if language == Language::Spirv => (Class::Comment, rest.len()),
            '#' if language == Language::Shader => (Class::Mark, take(&|c| c == '#' || word(c))),
            '"' => (Class::Comment, rest[1..].find('"').map_or(rest.len(), |i| i + 2)),
            '@' | '%' if rest[1..].starts_with(word) => {
                (Class::Mark, 1 + rest[1..].find(|c| !word(c)).unwrap_or(rest.len() - 1))
            }
            c if c.is_ascii_digit() => (Class::Number, take(&|c| word(c) || c == '.').min(number(rest))),
            c if word(c) => {
                let length = take(&word);
                (of_word(&rest[..length], language), length)
            }
            _ => (Class::Plain, take(&|c| !word(c) && !"/;#\"@%".contains(c)).max(first.len_utf8())),
        };
        out.push((class, &rest[..length]));
        rest = &rest[length..];
    }
    out
}

/// `0..4` is two numbers.
fn number(text: &str) -> usize {
    text.find("..").unwrap_or(text.len())
}

fn of_word(word: &str, language: Language) -> Class {
    let keyword = match language {
        Language::Weft => WEFT.contains(&word),
        Language::Shader => SHADER.contains(&word),
        Language::Spirv => word.starts_with("Op"),
    };
    match (keyword, is_type(word)) {
        (true, _) => Class::Keyword,
        (false, true) => Class::Type,
        (false, false) => Class::Plain,
    }
}

fn colour(class: Class, dark: bool) -> Color32 {
    let [light, night] = match class {
        Class::Keyword => [(150, 30, 130), (220, 130, 210)],
        Class::Type => [(20, 110, 130), (100, 200, 210)],
        Class::Number => [(170, 90, 10), (235, 180, 110)],
        Class::Comment => [(110, 130, 110), (130, 150, 130)],
        Class::Mark => [(30, 90, 180), (130, 180, 250)],
        Class::Plain => [(40, 40, 40), (215, 215, 215)],
    };
    let (r, g, b) = if dark { night } else { light };
    Color32::from_rgb(r, g, b)
}

/// A line with colours.
pub fn job(line: &str, language: Language, font: FontId, dark: bool) -> LayoutJob {
    let mut job = LayoutJob::default();
    for (class, part) in parts(line, language) {
        job.append(part, 0.0, TextFormat::simple(font.clone(), colour(class, dark)));
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_make_up_the_line() {
        let lines = [
            ("    for i in 0..64 { block y { %y[i] <- %x[i] * 2.0 } }", Language::Weft),
            ("@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>; // end", Language::Shader),
            ("%12 = OpLoad  %5  %11 ; \"x\" é", Language::Spirv),
            ("", Language::Shader),
            ("% @ \"open", Language::Weft),
        ];
        for (line, language) in lines {
            let whole: String = parts(line, language).into_iter().map(|p| p.1).collect();
            assert_eq!(whole, line);
        }
        let found = parts("for i in 0..64", Language::Weft);
        assert_eq!(found[0], (Class::Keyword, "for"));
        assert!(found.contains(&(Class::Number, "0")) && found.contains(&(Class::Number, "64")), "{found:?}");
    }
}
