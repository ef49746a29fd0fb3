//! Lengths of files and functions: the ten longest of each are listed, and their total may not grow. So one may grow
//! where another becomes shorter, and none is cut by number.

use crate::{MEMBERS, product_files, read, root, test_modules};
use std::path::Path;

const HEADER: &str = "\
# The ten longest files and functions, in lines, tests left out. The totals may not grow:
# WEFT_BLESS=1 cargo test -p xtask --test tidy longest    writes the list anew when neither has.
";

const LISTED: usize = 10;

/// Something with so many lines.
type Length = (usize, String);

/// Lines of a file that go into the product, comments included.
pub fn product_lines(path: &Path) -> Vec<String> {
    let text = read(path);
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].lines().map(String::from).collect()
}

/// True for the line that begins a function with a body of its own lines.
fn begins_function(line: &str) -> bool {
    let code = line.trim_start();
    let head = ["pub", "pub(crate)", "pub(super)", "const", "unsafe", "async", "fn"];
    let mut words = code.split(' ').take_while(|w| head.contains(w) || w.starts_with("pub(in"));
    words.any(|w| w == "fn") && !code.ends_with(['}', ';'])
}

/// Lines of the function that begins the list. The formatter puts a function's end under its beginning; a signature
/// without a body ends in `;` there.
fn function_length(lines: &[String]) -> Option<usize> {
    let indent = &lines[0][..lines[0].len() - lines[0].trim_start().len()];
    let ends = |l: &&str| *l == "}" || (l.starts_with(')') && l.ends_with(';'));
    lines.iter().position(|l| l.strip_prefix(indent).as_ref().is_some_and(ends)).map(|n| n + 1)
}

fn function_lengths(name: &str, lines: &[String]) -> Vec<Length> {
    let starts = (0..lines.len()).filter(|&i| begins_function(&lines[i]));
    let named = |i: usize| lines[i].split("fn ").nth(1)?.split(['(', '<']).next();
    let lengths = starts.filter_map(|i| Some((function_length(&lines[i..])?, format!("{name} {}", named(i)?))));
    lengths.collect()
}

/// All files and all functions of the product.
fn lengths() -> (Vec<Length>, Vec<Length>) {
    let files = product_files(MEMBERS);
    let tests = test_modules(&files);
    let (mut of_files, mut of_functions) = (Vec::new(), Vec::new());
    for path in files.iter().filter(|p| !tests.contains(*p)) {
        let lines = product_lines(path);
        let name = path.strip_prefix(root()).unwrap_or(path).display().to_string();
        of_functions.extend(function_lengths(&name, &lines));
        of_files.push((lines.len(), name));
    }
    (of_files, of_functions)
}

fn longest(mut lengths: Vec<Length>) -> Vec<Length> {
    lengths.sort_by(|(a, a_name), (b, b_name)| b.cmp(a).then(a_name.cmp(b_name)));
    lengths.truncate(LISTED);
    lengths
}

fn total(lengths: &[Length]) -> usize {
    lengths.iter().map(|(n, _)| n).sum()
}

fn print(what: &str, lengths: &[Length]) -> String {
    let lines = lengths.iter().map(|(n, name)| format!("  {n} {name}\n"));
    format!("\n{what}: {} lines\n{}", total(lengths), lines.collect::<String>())
}

/// The total that the list gives to `what`.
fn listed_total(list: &str, what: &str) -> usize {
    let line = list.lines().find_map(|l| l.strip_prefix(what)?.strip_prefix(": ")?.strip_suffix(" lines"));
    line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("lengths.txt has no total of {what}"))
}

#[test]
fn the_longest_files_and_functions_do_not_grow() {
    let place = root().join("xtask/tests/tidy/lengths.txt");
    let list = read(&place);
    let (files, functions) = lengths();
    assert!(files.len() > 300 && functions.len() > 3000, "{} files and {} functions", files.len(), functions.len());
    let found = [("files", longest(files)), ("functions", longest(functions))];
    let now: String = found.iter().map(|(what, lengths)| print(what, lengths)).collect();
    for (what, lengths) in &found {
        let (before, total) = (listed_total(&list, what), total(lengths));
        assert!(
            total <= before,
            "the {LISTED} longest {what} have {total} lines, {before} at most:\n{now}\nthe list was:\n{list}"
        );
    }
    if std::env::var_os("WEFT_BLESS").is_some() {
        std::fs::write(&place, format!("{HEADER}{now}")).expect("the list can be written");
    }
}
