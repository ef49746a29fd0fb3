//! replace-with-host-calls: selected nodes become calls of host functions, for example of an expert's own kernels.
//!
//! ```text
//! %1 = relu %0        =>     %1 = call_host @my_relu %0 {reference=reference_relu_1, dtypes=[f32], shapes=[[4]]}
//!                            graph @reference_relu_1(%0: f32[4]) primitive { relu }
//! ```
//!
//! A node is selected by the name of a source node, as a pattern (`*`, `?`), or by `op:` and a pattern of its op. Its
//! constant operands remain operands; absent ones are left out. The node itself is kept as the call's reference, which
//! runs if the function is not registered, for example on the interpreter (`docs/expert-kernel.md`). Nodes with
//! regions and calls are not replaced.

use super::mixed_precision::matches_pattern;
use super::rewriter::Rewriter;
use super::{Pass, PassContext, PassError};
use crate::attr_struct;
use crate::graph::{Function, Module, Node, NodeId, ValueDef, ValueId};
use crate::name::Name;
use crate::ops::control::{Call, CallHost, CallTensor, Const};
use crate::ops::{OpRef, OpResult};

attr_struct! {
    /// Replaces nodes by calls of host functions.
    pub struct ReplaceWithHostCalls("replace-with-host-calls") {
        /// Which nodes: names of source nodes or `op:NAME`, as patterns.
        pub nodes: Vec<String> = vec![],
        /// For each pattern the function that takes the place of its nodes.
        pub functions: Vec<Name> = vec![],
        /// Those of the functions that work on device buffers.
        pub on_device: Vec<Name> = vec![],
        /// Those of the functions that write their first result into their first operand.
        pub in_place: Vec<Name> = vec![],
    }
}

impl Pass for ReplaceWithHostCalls {
    fn opt_level(&self) -> u8 {
        0
    }
    fn required(&self) -> &'static [&'static str] {
        &["infer-types"]
    }
    fn run(&self, module: &mut Module, cx: &mut PassContext) -> Result<bool, PassError> {
        let refuse = |why: String| PassError::request("replace-with-host-calls", why);
        if self.nodes.len() != self.functions.len() {
            let (nodes, functions) = (self.nodes.len(), self.functions.len());
            return Err(refuse(format!("{nodes} patterns of nodes for {functions} functions")));
        }
        let functions: Vec<Name> = module.functions.values().filter(|f| !f.primitive).map(|f| f.name).collect();
        let mut found = vec![false; self.nodes.len()];
        let mut changed = false;
        for name in functions {
            let mut r = Rewriter::new(module, name);
            let done = self.rewrite(&mut r, &mut found, cx);
            changed |= r.finish();
            done.map_err(|why| PassError::new("replace-with-host-calls", why))?;
        }
        match found.iter().position(|f| !f) {
            Some(i) => {
                Err(refuse(format!("no node matches `{}`, to be replaced by @{}", self.nodes[i], self.functions[i])))
            }
            None => Ok(changed),
        }
    }
}

impl ReplaceWithHostCalls {
    fn rewrite(&self, r: &mut Rewriter<'_>, found: &mut [bool], cx: &mut PassContext) -> OpResult<()> {
        for n in r.f.walk() {
            let Some(i) = self.nodes.iter().position(|p| chosen(p, &r.f.nodes[n])) else { continue };
            found[i] = true;
            let (name, function) = (r.f.nodes[n].name, self.functions[i]);
            let node = &r.f.nodes[n];
            if !node.regions.is_empty() || node.op.is::<Call>() || node.op.is::<CallTensor>() {
                cx.missed(self, &[name], format!("{name} stays: it runs other nodes"));
                continue;
            }
            r.normalize(n);
            self.replace(r, n, function)?;
            cx.applied(self, &[name], format!("{name} is a call of the host function @{function}"));
        }
        Ok(())
    }

    fn replace(&self, r: &mut Rewriter<'_>, n: NodeId, callee: Name) -> OpResult<()> {
        let reference = add_reference(r, n);
        let node = r.f.nodes[n].clone();
        let types: Vec<_> = node.outputs.iter().map(|&v| r.f.ty(v).clone()).collect();
        let op = CallHost {
            callee,
            dtypes: types.iter().map(|t| t.dtype).collect(),
            shapes: types.iter().map(|t| t.shape.clone()).collect(),
            on_device: self.on_device.contains(&callee),
            in_place: if self.in_place.contains(&callee) { vec![0] } else { vec![] },
            reference,
            ..CallHost::default()
        };
        let operands = node.inputs.iter().flatten().map(|&v| Some(v)).collect();
        let results = r.add_before(n, op, operands, node.name, node.origins)?;
        for (&old, new) in node.outputs.iter().zip(results) {
            r.replace(old, new);
        }
        r.erase(n);
        Ok(())
    }
}

/// True when `pattern` chooses the node: a pattern of its name or of the name of a source node, or `op:` and a pattern
/// of its op.
pub(super) fn chosen(pattern: &str, node: &Node) -> bool {
    let op = node.op.name();
    if node.op.is::<Const>() || node.op.is::<CallHost>() {
        return false;
    }
    match pattern.strip_prefix("op:") {
        Some(wanted) => matches_pattern(wanted, op),
        None => node.origins.names().iter().chain([&node.name]).any(|n| matches_pattern(pattern, n.as_str())),
    }
}

/// Adds a function that holds the node alone, with its present operands as parameters; those that are constants of the
/// module may decide its form, so it reads them itself.
fn add_reference(r: &mut Rewriter<'_>, n: NodeId) -> Name {
    let node = r.f.nodes[n].clone();
    let mut g = Function::new(r.module.fresh_name(&format!("reference_{}", node.name)));
    g.primitive = true;
    let mut inputs = vec![];
    for &v in &node.inputs {
        let Some(v) = v else {
            inputs.push(None);
            continue;
        };
        let index = g.blocks[g.body].args.len();
        let ty = r.f.ty(v).clone();
        let arg = g.fresh_value(ty, ValueDef::Arg(g.body, index), Some(Name::new(&format!("p{index}"))));
        let body = g.body;
        g.blocks[body].args.push(arg);
        let constant = r.f.def_op::<Const>(v).map(|(_, c)| c.name);
        inputs.push(Some(constant.map_or(arg, |name| read_constant(r, &mut g, name, v))));
    }
    let types: Vec<_> = node.outputs.iter().map(|&v| r.f.ty(v).clone()).collect();
    g.result_names = (0..types.len()).map(|i| Name::new(&format!("out{i}"))).collect();
    let results = push(&mut g, node.op, inputs, &types, node.name);
    let body = g.body;
    g.blocks[body].results = results;
    g.result_types = types;
    let name = g.name;
    r.module.functions.insert(name, g);
    name
}

fn read_constant(r: &Rewriter<'_>, g: &mut Function, name: Name, v: ValueId) -> ValueId {
    push(g, OpRef::new(Const { name }), vec![], std::slice::from_ref(r.f.ty(v)), name)[0]
}

/// Appends a node to a function.
pub(super) fn push(
    g: &mut Function,
    op: OpRef,
    inputs: Vec<Option<ValueId>>,
    types: &[crate::graph::TensorType],
    name: Name,
) -> Vec<ValueId> {
    let id = <NodeId as crate::arena::Id>::from_index(g.nodes.len());
    let result = |(i, ty): (usize, &crate::graph::TensorType)| g.fresh_value(ty.clone(), ValueDef::Result(id, i), None);
    let outputs: Vec<ValueId> = types.iter().enumerate().map(result).collect();
    let (body, origins) = (g.body, crate::graph::Origins::none());
    g.nodes.push(Node { op, inputs, outputs: outputs.clone(), regions: vec![], name, origins, block: Some(body) });
    g.blocks[body].nodes.push(id);
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpreter::{HostFunctions, Interpreter, run_function};
    use crate::passes::run_pass;
    use crate::tensor::Tensor;
    use crate::text::{parse_module, print_module};

    const TEXT: &str = "const @k : f32[2] = [1.0, -2.0]\ngraph @main(%x: f32[2]) -> (y: f32[2]) {\n  %k = const @k\n  \
        %0 = add %x, %k : f32[2] !from(\"Add_1\")\n  %1 = relu %0 : f32[2] !from(\"Relu_2\")\n  return %1\n}\n";

    fn replaced(node: &str) -> Result<Module, PassError> {
        let mut m = parse_module(TEXT).unwrap_or_else(|e| panic!("{e}"));
        let pass = ReplaceWithHostCalls {
            nodes: vec![node.into()],
            functions: vec![Name::new("mine")],
            ..ReplaceWithHostCalls::default()
        };
        run_pass(&pass, &mut m, &mut PassContext::default())?;
        let text = print_module(&m);
        assert_eq!(print_module(&parse_module(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))), text);
        crate::verify::verify_module(&m).unwrap_or_else(|e| panic!("{e:?}"));
        Ok(m)
    }

    #[test]
    fn the_node_itself_stands_in_for_a_function_that_is_not_there() {
        let x = [Tensor::from_vec(vec![2], vec![0.5f32, 5.0])];
        for node in ["Add_*", "op:add", "Relu_2"] {
            let m = replaced(node).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(run_function(&m, m.entry, &x).unwrap()[0].to_f32_vec(), [1.5, 3.0]);
            let mut host = HostFunctions::new();
            host.register("mine", |t| Ok(vec![Tensor::zeros(t[0].dtype(), t[0].shape().to_vec())]));
            let got = Interpreter::new(&m).with_host(&host).run(m.entry, &x).unwrap();
            assert_eq!(got[0].to_f32_vec(), [0.0, 0.0], "{node}");
        }
    }

    #[test]
    fn a_pattern_without_a_node_is_refused() {
        assert!(replaced("Conv_*").unwrap_err().to_string().contains("no node matches `Conv_*`"));
    }
}
