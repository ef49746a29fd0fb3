//! The C of a region, built without Weft by each compiler that is here, with every warning an error.

use crate::networks::{self, Draw};
use crate::{Case, Whole, libraries};
use compiler::agreement::{Tolerance, agree};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use compiler::text::print_module;
use std::path::Path;
use std::process::Command;

const WARNINGS: [&str; 4] = ["-std=c11", "-Wall", "-Wextra", "-Werror"];

fn ran(command: &mut Command) -> Result<(), String> {
    let out = command.output().map_err(|e| format!("{command:?}: {e}"))?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
}

/// Builds the network in a folder and runs it on files.
fn results(at: &Path, compiler: &str, inputs: &[Tensor], want: &[Tensor]) -> Result<Vec<Tensor>, String> {
    let words = ["network.c", "main.c", "-l:libdnnl.so.2", "-o", "network"];
    ran(Command::new(compiler).current_dir(at).args(WARNINGS).arg("-O2").args(words))?;
    let mut command = Command::new(at.join("network"));
    command.current_dir(at).args(["-n", "2", "weights.bin"]);
    for (i, t) in inputs.iter().enumerate() {
        std::fs::write(at.join(format!("in{i}")), t.bytes()).map_err(|e| e.to_string())?;
        command.arg(format!("in{i}"));
    }
    (0..want.len()).for_each(|i| {
        command.arg(format!("out{i}"));
    });
    ran(&mut command)?;
    let read = |(i, w): (usize, &Tensor)| {
        let bytes = std::fs::read(at.join(format!("out{i}"))).map_err(|e| e.to_string())?;
        Tensor::from_bytes(w.dtype(), w.shape().to_vec(), bytes.into())
    };
    want.iter().enumerate().map(read).collect()
}

#[test]
fn the_c_of_a_region_builds_without_weft_and_gives_the_same_numbers() {
    crate::register();
    if !libraries::has_second() {
        return;
    }
    let there = |compiler: &&str| Command::new(compiler).arg("--version").output().is_ok_and(|o| o.status.success());
    let (compilers, missing): (Vec<&str>, Vec<&str>) = ["gcc", "clang"].into_iter().partition(there);
    if !missing.is_empty() {
        eprintln!("SKIPPED: {}: there is no such compiler", missing.join(", "));
    }
    let kinds: [fn(&mut Draw) -> Module; 8] = [
        networks::convolution,
        networks::product,
        networks::pool,
        networks::eltwise,
        networks::binary,
        networks::concat,
        networks::softmax,
        networks::batch_norm,
    ];
    for (kind, seed) in kinds.iter().flat_map(|kind| [(kind, 1), (kind, 2)]) {
        let case = Case::drawn(kind, seed);
        let folder = tempfile::tempdir().expect("a folder");
        let external = format!("dnnl:min_macs=0:style=c:folder={}", folder.path().display());
        let whole = Whole::of(&case.module, &external);
        whole.run(&case.inputs).expect("it runs");
        let inputs: Vec<Tensor> = whole.operands.iter().map(|&i| case.inputs[i].clone()).collect();
        let mut want: Vec<Tensor> = vec![Tensor::zeros(DType::F32, vec![0]); whole.results.len()];
        whole.results.iter().zip(&case.want).for_each(|(&at, t)| want[at] = t.clone());
        for compiler in &compilers {
            let got = results(&folder.path().join("dnnl_0"), compiler, &inputs, &want);
            let got = got.unwrap_or_else(|e| panic!("{compiler}: {e}\n{}", print_module(&case.module)));
            for (got, want) in got.iter().zip(&want) {
                let d = agree(got, want, &Tolerance::new(DType::F32, None, None));
                assert!(d.pass, "{compiler}: {}\n{}", d.why, print_module(&case.module));
            }
        }
    }
}
