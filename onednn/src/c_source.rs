//! A JSON graph as C that calls the library: it is the same graph that the runtime reads, and makes the same
//! primitives.
//!
//! `network.c` has one function for each node. It calls version 2 of the library directly; `weft_dnnl.h` declares what
//! it calls, and keeps tensors and steps. Layouts are the library's choice, so copies between them are decided when the
//! network is prepared.

mod names;
mod nodes;

use crate::graph::{Graph, Node};
use c_source::File;
use compiler::tensor::Tensor;
pub use names::VERSION;
use names::{Names, comment, elements, identifier, ports, sized};
use std::collections::HashMap;
use std::fmt::Write as _;

/// The files of a graph: `network.c`, `network.h`, `weft_dnnl.h`, `main.c` and `weights.bin`.
///
/// # Errors
/// Names that the graph does not have.
pub fn files(graph: &Graph, constants: &[Tensor], name: &str) -> Result<Vec<File>, String> {
    let text = |name, text: String| File { name, bytes: text.into_bytes() };
    let blob: Vec<u8> = constants.iter().flat_map(|t| t.bytes().to_vec()).collect();
    Ok(vec![
        text("network.h", header(graph, blob.len(), name)?),
        text("network.c", network(graph, name)?),
        text("weft_dnnl.h", include_str!("c_source/weft_dnnl.h").to_string()),
        text("main.c", c_source::MAIN.to_string()),
        File { name: "weights.bin", bytes: blob },
    ])
}

fn header(graph: &Graph, blob: usize, name: &str) -> Result<String, String> {
    let shapes: HashMap<&str, &[i64]> = ports(graph).collect();
    let results: Vec<(&str, &[i64])> = graph
        .outputs
        .iter()
        .map(|n| Ok((n.as_str(), *shapes.get(n.as_str()).ok_or_else(|| format!("no tensor is called `{n}`"))?)))
        .collect::<Result<_, String>>()?;
    let inputs: Vec<(&str, &[i64])> = graph.inputs.iter().map(|p| (p.name.as_str(), p.shape.as_slice())).collect();
    let described = |list: &[(&str, &[i64])]| -> String {
        let line = |(i, (name, shape)): (usize, &(&str, &[i64]))| {
            format!("     {i}  {}: float {shape:?}, {} elements\n", comment(name), elements(shape))
        };
        list.iter().enumerate().map(line).collect()
    };
    let bytes = |list: &[(&str, &[i64])]| -> String {
        list.iter().map(|(_, s)| format!("{} * sizeof(float)", elements(s))).collect::<Vec<_>>().join(", ")
    };
    Ok(format!(
        "/* {name}, written by Weft: it calls oneDNN {VERSION}, and needs no header of it.

     cc -O2 network.c main.c -l:libdnnl.so.{VERSION} -o network
     ./network weights.bin INPUT... OUTPUT...      raw elements, as below; -n 100 runs it 100 times

   Inputs:
{}   Outputs:
{}*/
#ifndef NETWORK_H
#define NETWORK_H

#include <stddef.h>

#define NETWORK_PREPARED 1
#define NETWORK_INPUTS {}
#define NETWORK_OUTPUTS {}
#define NETWORK_WEIGHT_BYTES {blob}
/* Bytes of each input and each output. */
#define NETWORK_INPUT_BYTES {{ {} }}
#define NETWORK_OUTPUT_BYTES {{ {} }}

/* Makes the primitives, and brings weights into the library's layouts. `weights` holds weights.bin, which is not needed
   afterwards. NULL where that fails, with a text of at most `room` bytes, its end included, at `message`. */
struct network *network_prepare(const void *weights, char *message, size_t room);

/* Runs once; runs of one network take turns. 0 where that succeeds, else a text as above. */
int network_run(struct network *network, const void *const *inputs, void *const *outputs, char *message, size_t room);

void network_free(struct network *network);

#endif
",
        described(&inputs),
        described(&results),
        inputs.len(),
        results.len(),
        bytes(&inputs),
        bytes(&results),
        name = comment(name),
    ))
}

fn network(graph: &Graph, name: &str) -> Result<String, String> {
    let entry = |(i, (name, shape)): (usize, (_, _))| (name, (format!("T{i}_{}", identifier(name)), shape));
    let names = Names {
        tensors: ports(graph).enumerate().map(entry).collect(),
        constants: graph.constants.iter().map(|c| c.name.as_str()).collect(),
    };
    let mut c = format!(
        "/* {}, written by Weft. */\n#include \"network.h\"\n#include \"weft_dnnl.h\"\n\nenum {{\n",
        comment(name)
    );
    for (name, shape) in ports(graph) {
        let _ = writeln!(c, "  {}, /* {} {shape:?} */", names.find(name)?.0, comment(name));
    }
    c.push_str("  TENSORS\n};\n");
    for (i, node) in graph.nodes.iter().enumerate() {
        let body = nodes::body(node, &names).map_err(|e| format!("`{}`: {e}", node.name))?;
        let _ = write!(
            c,
            "\n/* {}: {} {:?} */\nstatic void node{i}_{}(region *r)\n{{\n  tensor *t = r->tensors;\n{body}}}\n",
            comment(&node.name),
            described(node),
            node.shape,
            identifier(&node.name)
        );
    }
    c.push_str(&interface(graph, &names)?);
    Ok(c)
}

/// `convolution, sum, eltwise`
fn described(node: &Node) -> String {
    let op = |v: serde_json::Result<serde_json::Value>| v.ok().and_then(|v| Some(v["op"].as_str()?.to_string()));
    let applied = node.post_ops.iter().map(|p| op(serde_json::to_value(p)));
    let all = [op(serde_json::to_value(&node.attributes))].into_iter().chain(applied);
    all.flatten().collect::<Vec<_>>().join(", ")
}

/// `network_prepare`, `network_run` and `network_free`.
fn interface(graph: &Graph, names: &Names<'_>) -> Result<String, String> {
    let mut c = String::from(
        "\nstruct network {\n  region region;\n};\n\n\
         static int told(const region *r, char *message, size_t room)\n{\n  \
         if (room) snprintf(message, room, \"%s\", r ? r->message : \"there is no memory\");\n  return 1;\n}\n\n\
         struct network *network_prepare(const void *weights, char *message, size_t room)\n{\n  \
         const char *from = (const char *)weights;\n  region *r = region_open(TENSORS);\n  tensor *t;\n  \
         if (!r || r->failed) {\n    told(r, message, room);\n    if (r) region_close(r);\n    return NULL;\n  }\n  t = r->tensors;\n",
    );
    for port in &graph.inputs {
        let _ = writeln!(c, "  {} = plain(r, {});", names.of(&port.name)?, sized(&port.shape));
    }
    let mut at = 0;
    for port in &graph.constants {
        let (t, bytes) = (names.of(&port.name)?, 4 * elements(&port.shape));
        let _ = writeln!(c, "  {t} = plain(r, {});", sized(&port.shape));
        let _ = writeln!(c, "  if (!r->failed) memcpy({t}.data, from + {at}, {bytes});");
        at += bytes;
    }
    for (i, node) in graph.nodes.iter().enumerate() {
        let _ = writeln!(c, "  node{i}_{}(r);", identifier(&node.name));
    }
    for name in &graph.outputs {
        let _ = writeln!(c, "  read_plain(r, &{});", names.of(name)?);
    }
    c.push_str(
        "  (void)from;\n  (void)t;\n  if (r->failed) {\n    told(r, message, room);\n    region_close(r);\n    return NULL;\n  }\n  \
         return (struct network *)r;\n}\n\n\
         int network_run(struct network *network, const void *const *inputs, void *const *outputs, char *message, size_t room)\n{\n  \
         region *r = &network->region;\n  tensor *t = r->tensors;\n",
    );
    for (i, port) in graph.inputs.iter().enumerate() {
        let _ = writeln!(c, "  memcpy({}.data, inputs[{i}], {});", names.of(&port.name)?, 4 * elements(&port.shape));
    }
    c.push_str("  region_run_steps(r);\n  if (r->failed) return told(r, message, room);\n");
    for (i, name) in graph.outputs.iter().enumerate() {
        let bytes = 4 * elements(names.shape(name)?);
        let _ = writeln!(c, "  memcpy(outputs[{i}], {}.data, {bytes});", names.of(name)?);
    }
    c.push_str("  (void)inputs;\n  (void)outputs;\n  return 0;\n}\n\nvoid network_free(struct network *network)\n{\n  region_close(&network->region);\n}\n");
    Ok(c)
}
