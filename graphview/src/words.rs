//! Words of our own with their meanings: one table, of which the viewer's hover texts and `docs/words.md` are made.

/// Each word as it is written, and what it means. A word of several parts stands before its parts.
pub const WORDS: &[(&str, &str)] = &[
    ("anchor", "the one convolution, product or other heavy operator of a fused group; the schedule is made for it"),
    ("arithmetic", "part of an estimate: the time of scalar operations, if nothing else took time"),
    (
        "banks",
        "workgroup memory is divided into banks, each of which serves one address at a time; lanes that use \
         one bank at different addresses wait for each other",
    ),
    ("columns", "choice of a schedule: columns of the result that one thread computes"),
    (
        "concat-parts",
        "pass: a kernel stores its result where a concat would copy it, and others that read it read it there",
    ),
    ("depth", "choice of a schedule: steps of the reduction that are loaded at a time"),
    (
        "direct",
        "schedule rule: each thread computes one result, with all its loops as they stand; it takes any \
         kernel",
    ),
    ("elementwise", "schedule rule: each thread computes a few neighbours of the result"),
    ("flips if", "how much longer, or how much less time, would change the decision: a small number is a close one"),
    ("issue", "part of an estimate: the time in which the cores issue loads and stores"),
    ("kept", "choice of a schedule: results that one task keeps in registers while it reduces"),
    (
        "lanes",
        "the threads of a subgroup (a warp, a wave), which run one instruction together; on a processor, the \
         elements of a vector. As a schedule rule of processors: loops as they stand, with vectors",
    ),
    ("launch", "part of an estimate: the fixed price of a dispatch"),
    ("left registers", "choice of a schedule: each lane has the left operand of the product in its registers"),
    (
        "left subgroup",
        "choice of a schedule: the left operand of the product is distributed over the lanes of a subgroup, \
         which read it from each other",
    ),
    ("matmul-dot", "schedule rule: products of 8-bit integers by instructions that multiply four at a time"),
    ("matmul-matrix", "schedule rule: products by matrix units"),
    (
        "matmul-subgroup",
        "schedule rule: a subgroup computes a tile of a product or convolution; its lanes share operands",
    ),
    ("matmul-tile", "schedule rule of processors: a task computes tiles of a product or convolution in registers"),
    (
        "matmul-tiled",
        "schedule rule: a workgroup copies tiles of both operands into its memory, and threads compute parts \
         of the tile of results",
    ),
    ("matmul-vector", "schedule rule: a product with one or few rows, which reads the matrix once"),
    (
        "outlier",
        "an error beyond the upper quartile by more than 1.5 times the range of the middle half, in decades, \
         and at least twice what is usual",
    ),
    ("pinned", "somebody decided it: an option, a callback or a file fixes the choice, whatever the estimate says"),
    (
        "reduction-chain",
        "schedule rule: a workgroup computes a row of several short reductions and products, one after another; \
         also the rule of fusion that asks whether it pays",
    ),
    ("reduction-threads", "schedule rule: the threads of a workgroup share one reduction, and add up their parts"),
    (
        "roof",
        "the rate that no kernel exceeds: bytes a second of device memory, operations a second of the cores \
         or of matrix units. f16 is storage here and arithmetic is f32, so that outside of matrix units both \
         have one roof. `weft bench --ceilings` measures roofs; the fastest of its runs counts",
    ),
    ("roofs", "the rates that no kernel exceeds, see `roof`"),
    ("row-tasks", "schedule rule of processors: a task computes whole rows, with their reductions"),
    (
        "rows",
        "schedule rule: a workgroup computes whole rows, with their reductions; as a choice, the rows of the \
         result that one thread or subgroup computes",
    ),
    (
        "sectors",
        "device memory is read and written in sectors of 32 or 64 bytes; a dispatch pays for whole sectors, \
         whatever part of them it uses. Part of an estimate: the time for them",
    ),
    ("shared passes", "part of an estimate: the time for passes over the banks of workgroup memory"),
    (
        "transpose-tiled",
        "schedule rule: a workgroup turns a tile over in its memory, so that reads and writes are both in order",
    ),
    (
        "trips",
        "times that a result goes through device memory: one kernel writes it, another reads it. Of a loop: \
         its iterations",
    ),
    ("unroll", "choice of a schedule: loop steps that are written one after the other"),
    ("vector", "choice of a schedule: elements that one instruction loads and stores"),
    ("view", "another shape of the same data, which costs nothing"),
    (
        "waves",
        "workgroups run in waves, as many at a time as the cores hold; part of an estimate: the time in \
         which cores of the last wave are idle",
    ),
    (
        "windows",
        "the elements that results of a convolution or a pool read. As a schedule rule: a thread computes \
         neighbours whose windows overlap, and loads what they share once",
    ),
];

/// The words of the table in a text, in the order of the table. Words are whole: `view` is not in `viewer`.
pub fn used(text: &str) -> Vec<(&'static str, &'static str)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let stands = |word: &str| {
        text.match_indices(word).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + word.len()..].chars().next();
            !before.is_some_and(is_part) && !after.is_some_and(is_part)
        })
    };
    WORDS.iter().filter(|w| stands(w.0)).copied().collect()
}

/// The page of the table.
pub fn page() -> String {
    let mut out = String::from(
        "# Words\n\n\
         Words that Weft's tables, messages and pictures use in a sense of their own. In the viewer the pointer on a text \
         shows them, too. [ARCHITECTURE.md](../ARCHITECTURE.md) has those of the source code.\n\n\
         | word | means |\n| --- | --- |\n",
    );
    WORDS.iter().for_each(|(word, means)| out += &format!("| {word} | {means} |\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::schedule::rules::RULES;

    #[test]
    fn the_page_is_made_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/words.md");
        if std::env::var_os("WEFT_BLESS").is_some() {
            std::fs::write(path, page()).expect("docs can be written");
        }
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert_eq!(there, page(), "WEFT_BLESS=1 writes docs/words.md again");
    }

    #[test]
    fn words_are_whole_and_sorted_and_every_part_of_an_estimate_has_one() {
        let named = |text: &str| used(text).into_iter().map(|w| w.0).collect::<Vec<_>>();
        assert_eq!(named("12.0 sectors of device memory"), ["sectors"]);
        assert_eq!(named("the viewer and matmul-tiled"), ["matmul-tiled"]);
        assert_eq!(named("flips if one kernel takes 7 % longer"), ["flips if"]);
        assert!(WORDS.windows(2).all(|w| w[0].0 < w[1].0));
        for (part, _) in compiler::schedule::estimate::Cost::default().parts() {
            assert_eq!(named(part), [part]);
        }
        let known = |name: &str| WORDS.iter().any(|w| w.0 == name);
        let unknown: Vec<&str> = RULES.own().iter().map(|r| r.name).filter(|n| !known(n)).collect();
        assert_eq!(unknown, ["transform", "attention"], "rules whose name says what they do");
    }
}
