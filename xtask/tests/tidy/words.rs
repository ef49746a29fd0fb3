//! Plain words: forms that readers stumble over are counted, and the counts may only fall.

use crate::{MEMBERS, place_of, read, rust_files};
use std::path::PathBuf;

/// A form, whether a line has it, and how many lines have it now.
type Form = (&'static str, fn(&Line<'_>) -> bool, usize);

/// A line of code: its comment, where it is one, and all of it.
struct Line<'a> {
    comment: Option<&'a str>,
    whole: &'a str,
}

const FORMS: &[Form] = &[
    ("comments that begin with \"What\"", |l| l.comment.is_some_and(|c| c.starts_with("What ")), MOST[0]),
    ("\"that of\" and \"those of\"", |l| l.has(&["that of ", "those of "]), MOST[1]),
    ("\"there is none\"", |l| l.has(&["here is none"]), MOST[2]),
    ("calls that are \"asked\" or \"told\"", |l| l.has(&["is asked", "are asked", "is told", "are told"]), MOST[3]),
    ("lines of more than 120 columns", |l| l.whole.chars().count() > 120, MOST[4]),
];

/// A count may be so much smaller before that is written down.
const SLACK: usize = 10;
/// The counts: a smaller one is written here.
const MOST: [usize; 5] = [411, 292, 39, 84, 340];

impl<'a> Line<'a> {
    fn of(whole: &'a str) -> Line<'a> {
        let text = whole.trim_start();
        let comment = ["///", "//!", "//"].iter().find_map(|mark| text.strip_prefix(mark)).map(str::trim_start);
        Line { comment, whole }
    }
    /// The comment has one of these.
    fn has(&self, words: &[&str]) -> bool {
        self.comment.is_some_and(|c| words.iter().any(|w| c.contains(w)))
    }
}

fn all_files() -> Vec<PathBuf> {
    let of = |member: &&str| ["src", "tests", "examples", "benches"].map(|folder| place_of(member).join(folder));
    let folders = MEMBERS.iter().flat_map(of).filter(|folder| folder.is_dir());
    folders.flat_map(|folder| rust_files(&folder)).collect()
}

#[test]
fn words_become_plainer() {
    let texts: Vec<String> = all_files().iter().map(|path| read(path)).collect();
    let count =
        |has: fn(&Line<'_>) -> bool| texts.iter().flat_map(|t| t.lines()).filter(|line| has(&Line::of(line))).count();
    for (form, has, most) in FORMS {
        let n = count(*has);
        assert!(n <= *most, "{form}: {n}, {most} at most: say it in plain words, or break the line");
        assert!(n + SLACK >= *most, "{form}: {n}, fewer than {most}: write the number into MOST");
    }
}
