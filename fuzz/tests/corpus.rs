//! Runs the files of the corpus, most of which once broke something, through their targets; and each target on a few
//! mutants.

use fuzz::corpus::{Corpus, files};
use fuzz::targets::{TARGETS, find};

#[test]
fn files_of_the_corpus_do_no_harm() {
    let mut count = 0;
    for t in TARGETS {
        for path in files(t) {
            let bytes = std::fs::read(&path).expect("reads");
            let outcome = (t.run)(&bytes);
            assert!(outcome.is_ok(), "{}: {outcome:?}", path.display());
            count += 1;
        }
    }
    assert!(count > 0, "the corpus is empty");
}

/// A mutator that breaks everything would test the parsers alone.
#[test]
fn mutants_get_deep() {
    let reached = |name: &str, stage: &str| {
        let target = find(name).expect("is in the table");
        let corpus = Corpus::of(target);
        (1_000_000..1_000_400).any(|n| (target.run)(&corpus.case(1, n)).is_ok_and(|s| s == stage))
    };
    assert!(reached("onnx", "run"));
    assert!(reached("text", "run"));
    assert!(reached("schedule", "agrees"));
    assert!(reached("trace", "read"));
    assert!(reached("npz", "read"));
}

#[test]
fn a_case_comes_back() {
    let npz = find("npz").expect("is in the table");
    let (a, b) = (Corpus::of(npz), Corpus::of(npz));
    assert_eq!(a.case(7, 12345), b.case(7, 12345));
    assert_ne!(a.case(7, 12345), a.case(8, 12345));
}
