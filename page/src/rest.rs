//! Nodes behind one that decides sizes: the interpreter computes them once a run has come there.

use compiler::compile::{CompileError, NetworkParts, PartValue, split_network};
use compiler::graph::{Function, Module};
use compiler::interpreter::run_function;
use compiler::ops::control::Const;
use compiler::tensor::Tensor;
use rust_source::File;
use serde_json::{Value, json};
use tensor_ir::plan::{BufferView, Plan};

/// The number of its step: the plan's own nodes count from 0.
pub const NODE: u32 = u32::MAX;

/// The places of its results in host memory: the plan's own buffers count from 0.
const PLACES: u64 = 1 << 32;

/// A result of the host as a file, whose name is its shape.
pub fn result(t: &Tensor) -> File {
    File { path: json!(t.shape()).to_string(), bytes: t.bytes().to_vec() }
}

/// The parts of a network behind the one that is compiled.
pub struct Rest(NetworkParts);

impl Rest {
    /// Splits a network that is no single plan: what comes before sizes are decided, and the rest.
    ///
    /// # Errors
    /// A network in which nothing comes before: `why` it is no plan.
    pub fn of(module: &Module, why: &CompileError) -> Result<(Module, Rest), String> {
        let parts = split_network(module).map_err(|e| e.to_string())?;
        let parts = parts.filter(|p| !p.head.main().results().is_empty()).ok_or_else(|| why.to_string())?;
        Ok((parts.head.clone(), Rest(parts)))
    }

    /// The rows of `plan.json` with one more step on the host, whose results are the network's.
    ///
    /// # Errors
    /// A file that is no plan.
    pub fn add_to(&self, plan: &mut File) -> Result<(), String> {
        let mut json: Value = serde_json::from_slice(&plan.bytes).map_err(|e| format!("plan.json: {e}"))?;
        let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
        let tail = self.0.tail.main();
        let named = tail.result_names.iter().zip(&tail.result_types).enumerate();
        let outputs = Value::from_iter(named.map(|(i, (name, t))| {
            // A size that a run decides is not known before it.
            let shape: Vec<i64> = t.shape.iter().map(|d| d.as_const().unwrap_or(0)).collect();
            let place = json!({ "host": PLACES + i as u64 });
            json!({ "name": name.as_str(), "dtype": t.dtype.name(), "shape": shape, "size": t.dtype.size(),
                    "form": "plain", "place": place })
        }));
        let inputs = Value::from([list(&json["inputs"]), list(&json["outputs"])].concat());
        let step = json!({ "node": NODE, "name": self.name(), "inputs": inputs, "outputs": outputs, "group": null });
        let mut steps = list(&json["steps"]);
        steps.push(json!({ "host": step }));
        (json["steps"], json["outputs"]) = (steps.into(), outputs);
        plan.bytes = json.to_string().into_bytes();
        Ok(())
    }

    /// The nodes, for readers.
    fn name(&self) -> String {
        let nodes = |f: &Function| {
            let all = f.blocks[f.body].nodes.iter().map(|&n| &f.nodes[n]).filter(|n| !n.op.is::<Const>());
            all.map(|n| format!("{} ({})", n.name, n.op.name())).collect::<Vec<_>>()
        };
        let all = [nodes(self.0.sizing.main()), nodes(self.0.tail.main())].concat();
        match all.as_slice() {
            [] => "the results".into(),
            [one] => one.clone(),
            [first, rest @ ..] => format!("{first} and {} nodes whose sizes it decides", rest.len()),
        }
    }

    /// Computes it: the bytes of the network's inputs and of the results of `plan` in, a file for each result out,
    /// whose name is its shape.
    ///
    /// # Errors
    /// Operands that are missing, what a node says.
    pub fn run(&self, plan: &Plan, operands: Vec<Vec<u8>>) -> Result<Vec<File>, String> {
        let views: Vec<&BufferView> = plan.inputs.iter().chain(&plan.outputs).collect();
        if operands.len() != views.len() {
            return Err(format!("the rest of the network takes {} operands, not {}", views.len(), operands.len()));
        }
        let tensor = |(v, bytes): (&&BufferView, Vec<u8>)| Tensor::from_bytes(v.dtype, v.shape.clone(), bytes.into());
        let given = views.iter().zip(operands).map(tensor).collect::<Result<Vec<_>, _>>()?;
        let (inputs, head) = given.split_at(plan.inputs.len());
        let of = |values: &[PartValue], sizing: &[Tensor]| -> Vec<Tensor> {
            let value = |v: &PartValue| match *v {
                PartValue::Input(n) => inputs[n].clone(),
                PartValue::Head(n) => head[n].clone(),
                PartValue::Sizing(n) => sizing[n].clone(),
            };
            values.iter().map(value).collect()
        };
        let NetworkParts { sizing, tail, sizing_operands, tail_operands, .. } = &self.0;
        let run = |m: &Module, operands: &[Tensor]| run_function(m, m.entry, operands).map_err(|e| e.to_string());
        let decided = run(sizing, &of(sizing_operands, &[]))?;
        let results = run(tail, &of(tail_operands, &decided))?;
        Ok(results.iter().map(result).collect())
    }
}
