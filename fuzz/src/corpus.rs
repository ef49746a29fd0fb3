//! Seeds, and the cases that are made from them.

use crate::target::{Random, Target};
use rand::{RngExt, SeedableRng};
use std::path::{Path, PathBuf};

/// The seeds of a target.
pub struct Corpus {
    target: &'static Target,
    seeds: Vec<Vec<u8>>,
}

impl Corpus {
    /// Files of the target's folder first, then what the target makes itself.
    pub fn of(target: &'static Target) -> Corpus {
        let mut seeds: Vec<Vec<u8>> = files(target).iter().filter_map(|p| std::fs::read(p).ok()).collect();
        seeds.extend((target.seeds)());
        assert!(!seeds.is_empty(), "the target {} has no seeds", target.name);
        Corpus { target, seeds }
    }
    /// Writes the seeds into a folder, since making them takes longer than many cases.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, folder: &Path) -> std::io::Result<()> {
        self.seeds.iter().enumerate().try_for_each(|(i, s)| std::fs::write(folder.join(format!("{i:06}")), s))
    }
    /// Reads what [`Corpus::save`] wrote.
    pub fn load(target: &'static Target, folder: &Path) -> Corpus {
        let mut paths = Vec::new();
        collect(folder, &mut paths);
        Corpus { target, seeds: paths.iter().filter_map(|p| std::fs::read(p).ok()).collect() }
    }
    /// The input with a number: the seeds as they are, then mutants.
    pub fn case(&self, seed: u64, number: u64) -> Vec<u8> {
        if let Some(s) = usize::try_from(number).ok().and_then(|n| self.seeds.get(n)) {
            return s.clone();
        }
        let mut random = Random::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
        let start = self.seeds[random.random_range(0..self.seeds.len())].clone();
        (self.target.mutate)(&mut random, start, &self.seeds)
    }
}

/// The files of a target's folder in `fuzz/corpus`, by name.
pub fn files(target: &Target) -> Vec<PathBuf> {
    let mut out = Vec::new();
    collect(&root().join("corpus").join(target.name), &mut out);
    out
}

/// The text of every filetest, by path.
pub fn filetests() -> Vec<String> {
    let mut files = Vec::new();
    collect(&root().join("../filetests"), &mut files);
    files.iter().filter_map(|p| std::fs::read_to_string(p).ok()).map(|t| input_part(&t)).collect()
}

/// A filetest without its header and its expectation, which are comments.
fn input_part(text: &str) -> String {
    let lines = text.lines().filter(|l| !l.trim_start().starts_with(';'));
    lines.map(|l| format!("{l}\n")).collect()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
    paths.sort();
    for p in paths {
        if p.is_dir() { collect(&p, out) } else { out.push(p) }
    }
}
