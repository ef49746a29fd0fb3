//! Each op in oneDNN and in the interpreter, on random shapes: in both versions of the library, where they are here,
//! and in both styles where the version has both.

#[path = "../../../c-source/tests/shared/built.rs"]
mod built;
mod c_style;
mod libraries;
mod networks;

use compiler::agreement::{Tolerance, agree};
use compiler::dtype::DType;
use compiler::external::{CallSite, Region, TargetSpec, register_target};
use compiler::graph::{Module, ValueId};
use compiler::interpreter::run_function;
use compiler::ops::control::{CallHost, Const};
use compiler::passes::{PassContext, Sequential, external_passes};
use compiler::tensor::Tensor;
use compiler::text::{print_module, random_tensor};
use networks::Draw;
use std::sync::Once;

/// Networks of each kind.
const DRAWN: u64 = 12;
/// Those of them that are built as C.
const BUILT: u64 = 2;

fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| register_target(&onednn::TARGET).expect("a name of its own"));
}

/// The one region that the target makes of all nodes.
struct Whole {
    site: CallSite,
    /// For each operand of the region, which input of the network it is.
    operands: Vec<usize>,
    /// For each result of the network, which result of the region it is.
    results: Vec<usize>,
}

impl Whole {
    fn of(module: &Module, external: &str) -> Whole {
        let mut m = module.clone();
        let mut cx = PassContext { config: external_passes(&[external.to_string()]), ..PassContext::default() };
        let passes = ["merge-composite", "annotate-target", "merge-regions", "partition-graph", "inline-external"];
        Sequential::new(passes).run(&mut m, &mut cx).expect("passes");
        let main = m.main();
        let nodes: Vec<_> = main.walk().into_iter().filter(|&n| !main.nodes[n].op.is::<Const>()).collect();
        let remarks: Vec<&str> = cx.remarks.iter().map(|r| r.message.as_str()).collect();
        let [n] = nodes[..] else { panic!("not one region: {remarks:#?}\n{}", print_module(module)) };
        let call = main.nodes[n].op.downcast::<CallHost>().expect("a call of the target");
        let region = Region::of(&m, call.reference).expect("the region");
        let find = |list: &[ValueId], v: &ValueId| list.iter().position(|x| x == v).expect("it is there");
        Whole {
            site: CallSite::new(TargetSpec::parse(external).expect("the target"), region),
            operands: main.nodes[n].inputs.iter().flatten().map(|v| find(main.params(), v)).collect(),
            results: main.results().iter().map(|v| find(&main.nodes[n].outputs, v)).collect(),
        }
    }
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, String> {
        let given: Vec<Tensor> = self.operands.iter().map(|&i| inputs[i].clone()).collect();
        let got = self.site.run(&given)?;
        Ok(self.results.iter().map(|&i| got[i].clone()).collect())
    }
}

/// A network with inputs, and what the interpreter makes of them.
struct Case {
    module: Module,
    inputs: Vec<Tensor>,
    want: Vec<Tensor>,
}

impl Case {
    fn drawn(draw: impl Fn(&mut Draw) -> Module, seed: u64) -> Case {
        let module = draw(&mut Draw::new(seed));
        let main = module.main();
        let shapes = main.params().iter().map(|&v| main.ty(v).const_shape().expect("fixed sizes"));
        let inputs: Vec<Tensor> =
            (100 * seed..).zip(shapes).map(|(seed, shape)| random_tensor(DType::F32, &shape, seed)).collect();
        let want = run_function(&module, main.name, &inputs).expect("the interpreter runs it");
        Case { module, inputs, want }
    }
}

/// Runs networks of a kind in the library and in the interpreter.
fn holds(draw: impl Fn(&mut Draw) -> Module) {
    register();
    let externals = libraries::externals();
    for seed in 0..DRAWN {
        let Case { module, inputs, want } = Case::drawn(&draw, seed);
        // A compiler runs for each in C.
        for external in externals.iter().filter(|e| seed < BUILT || !e.contains("style=c")) {
            let whole = Whole::of(&module, external);
            // Twice: the second run finds what the first prepared.
            for run in 0..2 {
                let got = whole.run(&inputs).unwrap_or_else(|e| panic!("{external}: {e}\n{}", print_module(&module)));
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    let d = agree(got, want, &Tolerance::new(DType::F32, None, None));
                    assert!(d.pass, "{external}, run {run}, result {i}: {}\n{}", d.why, print_module(&module));
                }
            }
        }
    }
}

#[test]
fn convolutions_with_what_follows_them() {
    holds(networks::convolution);
}

#[test]
fn products_with_what_follows_them() {
    holds(networks::product);
}

#[test]
fn pools() {
    holds(networks::pool);
}

#[test]
fn functions_of_one_operand() {
    holds(networks::eltwise);
}

#[test]
fn functions_of_two_operands() {
    holds(networks::binary);
}

#[test]
fn concatenations_of_values_in_different_layouts() {
    holds(networks::concat);
}

#[test]
fn softmax_along_any_axis() {
    holds(networks::softmax);
}

#[test]
fn batch_norms() {
    holds(networks::batch_norm);
}
