//! The C of a region, built without Weft by each compiler that is here, with every warning an error.

use crate::networks::{self, Draw};
use crate::{Case, Whole, built, libraries};
use compiler::agreement::{Tolerance, agree};
use compiler::dtype::DType;
use compiler::graph::Module;
use compiler::tensor::Tensor;
use compiler::text::print_module;
use std::path::Path;

/// Builds the network in a folder and runs it on files.
fn results(
    at: &Path,
    (compiler, library): (&str, &[&str]),
    inputs: &[Tensor],
    want: &[Tensor],
) -> Result<Vec<Tensor>, String> {
    built::build(at, compiler, library)?;
    let inputs: Vec<&[u8]> = inputs.iter().map(|t| &t.bytes()[..]).collect();
    let made = built::run(at, &inputs, want.len())?;
    let read = |(w, bytes): (&Tensor, Vec<u8>)| Tensor::from_bytes(w.dtype(), w.shape().to_vec(), bytes.into());
    want.iter().zip(made).map(read).collect()
}

#[test]
fn the_c_of_a_region_builds_without_weft_and_gives_the_same_numbers() {
    crate::register();
    if !libraries::has_second() {
        return;
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
        for compiler in built::compilers() {
            let got = results(&folder.path().join("dnnl_0"), (compiler, &["-l:libdnnl.so.2"]), &inputs, &want);
            let got = got.unwrap_or_else(|e| panic!("{compiler}: {e}\n{}", print_module(&case.module)));
            for (got, want) in got.iter().zip(&want) {
                let d = agree(got, want, &Tolerance::new(DType::F32, None, None));
                assert!(d.pass, "{compiler}: {}\n{}", d.why, print_module(&case.module));
            }
        }
    }
}
