//! Mutants of text, word by word and line by line.

use crate::raw::{number_near, one_in, one_of};
use crate::target::Random;
use rand::RngExt;

/// Text as words: runs of letters and digits, runs of blanks, single signs.
fn words(text: &str) -> Vec<String> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut out: Vec<String> = Vec::new();
    for c in text.chars() {
        match out.last_mut() {
            Some(w) if kind(c) < 2 && w.chars().next_back().is_some_and(|l| kind(l) == kind(c)) => w.push(c),
            _ => out.push(c.into()),
        }
    }
    out
}

fn is_number(w: &str) -> bool {
    w.chars().next().is_some_and(|c| c.is_ascii_digit())
}

fn is_name(w: &str) -> bool {
    w.chars().next().is_some_and(|c| c.is_alphabetic() || c == '_')
}

/// A few changes of words and lines. `known` are words of the language; `other` lends lines.
pub fn mutate(random: &mut Random, text: &str, known: &[&str], other: &str) -> String {
    let mut text = text.to_string();
    for _ in 0..random.random_range(1..5) {
        text = if one_in(random, 3) { change_line(random, &text, other) } else { change_word(random, &text, known) };
    }
    text
}

fn change_line(random: &mut Random, text: &str, other: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let lent: Vec<&str> = other.lines().collect();
    let at = random.random_range(0..=lines.len());
    match random.random_range(0..4) {
        0 if at < lines.len() => drop(lines.remove(at)),
        1 if at < lines.len() => lines.insert(at, lines[at]),
        2 if !lent.is_empty() => lines.insert(at, *one_of(random, &lent)),
        _ if !lines.is_empty() => {
            let from = random.random_range(0..lines.len());
            let line = lines.remove(from);
            lines.insert(at.min(lines.len()), line);
        }
        _ => {}
    }
    lines.join("\n") + "\n"
}

fn change_word(random: &mut Random, text: &str, known: &[&str]) -> String {
    let mut words = words(text);
    let solid: Vec<usize> = (0..words.len()).filter(|&i| !words[i].trim().is_empty()).collect();
    if solid.is_empty() {
        return text.into();
    }
    let at = *one_of(random, &solid);
    let word = words[at].clone();
    let names: Vec<&String> = words.iter().filter(|w| is_name(w)).collect();
    match random.random_range(0..10) {
        0 => drop(words.remove(at)),
        1 => words.insert(at, word),
        2 => words.swap(at, *one_of(random, &solid)),
        3 => {
            let sign =
                *one_of(random, &["%", "@", "(", ")", "[", "]", "{", "}", ",", ":", "-", "*", "/", "=", ";", "\""]);
            words.insert(at, sign.into());
        }
        4 => words[at] = one_of(random, known).to_string(),
        _ if is_number(&word) => {
            let old = word.parse().unwrap_or(1);
            words[at] = number_near(random, old).to_string();
        }
        _ if is_name(&word) && !names.is_empty() => words[at] = one_of(random, &names).to_string(),
        _ => words[at] = one_of(random, known).to_string(),
    }
    words.concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn words_keep_the_text() {
        let text = "tensor @scale(%x: f32[64], out %y: f32[64]) {\n  for i in 0..64 { }\n}\n";
        assert_eq!(words(text).concat(), text);
        assert_eq!(words("a+b1 c"), ["a", "+", "b1", " ", "c"]);
    }

    #[test]
    fn the_same_random_numbers_give_the_same_text() {
        let mutant = |seed| mutate(&mut Random::seed_from_u64(seed), "a b c\nd 12 f\n", &["known"], "other\n");
        assert_eq!(mutant(3), mutant(3));
        assert!((0..20).any(|s| mutant(s) != "a b c\nd 12 f\n"));
    }
}
