//! Circles of files: each of the files uses the others, directly or not. The admitted ones are a list that may only
//! shrink.

use crate::imports::{FileUses, file_uses};
use crate::{MEMBERS, place_of, read, root};
use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// The circles of each crate, the largest first.
type Circles = BTreeMap<String, Vec<BTreeSet<String>>>;

/// Crates that have no circle, whatever the list says.
const STRAIGHT: &[&str] = &["shaders-gen", "runtime-gpu"];

const HEADER: &str = "\
# Circles of files, by crate: each file of a circle uses the others, directly or not. A list that may only shrink:
# WEFT_BLESS=1 cargo test -p xtask --test tidy circles_of_files    writes it anew when no circle has grown.
";

/// The files of a member that use each other.
fn circles_of(uses: &FileUses) -> Vec<BTreeSet<String>> {
    let pairs = uses.iter().flat_map(|(file, used)| used.iter().map(move |u| (file.as_str(), u.as_str())));
    let found = tarjan_scc(&DiGraphMap::<&str, ()>::from_edges(pairs));
    let circles = found.into_iter().filter(|files| files.len() > 1);
    let mut circles: Vec<BTreeSet<String>> =
        circles.map(|files| files.into_iter().map(String::from).collect()).collect();
    circles.sort_by_key(|files| (std::cmp::Reverse(files.len()), files.first().cloned()));
    circles
}

/// The uses of a member's library and of its programs, read once for all tests.
pub fn uses_of(member: &str) -> &'static FileUses {
    static ALL: LazyLock<BTreeMap<&str, FileUses>> =
        LazyLock::new(|| MEMBERS.iter().map(|m| (*m, read_uses(m))).collect());
    &ALL[member]
}

fn read_uses(member: &str) -> FileUses {
    let src = place_of(member).join("src");
    let roots = ["lib.rs", "main.rs"].into_iter().filter(|r| src.join(r).exists());
    roots.flat_map(|r| file_uses(&src, r)).collect()
}

fn found() -> Circles {
    let all = MEMBERS.iter().map(|m| (m.to_string(), circles_of(uses_of(m))));
    all.filter(|(_, circles)| !circles.is_empty()).collect()
}

fn print(circles: &Circles) -> String {
    let mut text = HEADER.to_string();
    for (member, list) in circles {
        for files in list {
            let lines = files.iter().map(|f| format!("  {f}\n"));
            text += &format!("\n{member}: {} files\n{}", files.len(), lines.collect::<String>());
        }
    }
    text
}

fn parse(text: &str) -> Circles {
    let mut circles = Circles::new();
    for block in text.split("\n\n").skip(1) {
        let mut lines = block.lines();
        let (member, _) = lines.next().and_then(|l| l.split_once(':')).expect("`MEMBER: N files`");
        circles.entry(member.into()).or_default().push(lines.map(|l| l.trim().to_string()).collect());
    }
    circles
}

/// True if a crate has a circle more, or a larger one.
fn has_grown(before: &[BTreeSet<String>], now: &[BTreeSet<String>]) -> bool {
    now.iter().enumerate().any(|(i, circle)| before.get(i).is_none_or(|b| b.len() < circle.len()))
}

/// The files that entered or left circles.
fn difference(before: &Circles, now: &Circles) -> String {
    let files = |c: &Circles| -> BTreeSet<String> {
        c.iter().flat_map(|(m, list)| list.iter().flatten().map(move |f| format!("{m}: {f}"))).collect()
    };
    let (before, now) = (files(before), files(now));
    let entered = now.difference(&before).map(|f| format!("  in a circle now: {f}\n"));
    entered.chain(before.difference(&now).map(|f| format!("  in no circle any more: {f}\n"))).collect()
}

#[test]
fn circles_of_files_only_shrink() {
    let place = root().join("xtask/tests/tidy/circles.txt");
    let (admitted, now) = (parse(&read(&place)), found());
    let grown = now.iter().filter(|(m, list)| has_grown(admitted.get(*m).map_or(&[], |l| l), list));
    let grown: Vec<&String> = grown.map(|(m, _)| m).collect();
    let bless = std::env::var_os("WEFT_BLESS").is_some();
    assert!(grown.is_empty(), "circles of files have grown in {grown:?}:\n{}", difference(&admitted, &now));
    if bless {
        std::fs::write(&place, print(&now)).expect("the list can be written");
    }
    let differ = format!("{}Write the list anew: its first lines say how.", difference(&admitted, &now));
    assert!(bless || now == admitted, "circles of files are not those of {}:\n{differ}", place.display());
    let bent = STRAIGHT.iter().filter(|m| now.contains_key(**m));
    assert_eq!(bent.collect::<Vec<_>>(), Vec::<&&str>::new(), "these have no circles");
}

/// `a` names what `lib.rs` re-exports of `b`, which uses `a`; a table names both.
#[test]
fn circles_go_through_re_exports_and_not_through_tables() {
    let src = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("circles/src");
    std::fs::create_dir_all(&src).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(src.join(name), text).expect("a file");
    write("lib.rs", "mod a;\nmod b;\npub use b::B;\nstatic ALL: Table<Row> = Table::new(&[a::A, B]);\n");
    write("a.rs", "use super::B;\npub struct A(B);\n#[cfg(test)]\nmod tests { use crate::ALL; }\n");
    write("b.rs", "pub struct B;\nimpl B { fn a(&self) -> crate::a::A { todo(self) } }\n");
    let circle = |files: [&str; 2]| vec![BTreeSet::from(files.map(String::from))];
    assert_eq!(circles_of(&file_uses(&src, "lib.rs")), circle(["a.rs", "b.rs"]));
    write("b.rs", "pub struct B;\nimpl B { fn a(&self, a: i32) -> i32 { a } }\n");
    assert_eq!(circles_of(&file_uses(&src, "lib.rs")), Vec::<BTreeSet<String>>::new());
}
