//! The plan in C: kernels as functions, buffers as places in an arena, constants as places in a blob.

use crate::expr::identifier;
use crate::kernel::Kernel;
use crate::places::{Places, arena_bytes, host_type, places, view_type};
use crate::steps::Steps;
use std::fmt::Write as _;
use tensor_ir::bare::shown_in_line;
use tensor_ir::dtype::DType;
use tensor_ir::plan::{BufferView, Plan, PlanBuffer};

/// A file of the folder.
pub struct File {
    /// Its name.
    pub name: &'static str,
    /// Its content.
    pub bytes: Vec<u8>,
}

const MATH: &str = include_str!("weft_math.h");
/// `main.c`: a program that runs a network on files of raw elements. `network.h` declares what it calls: `network_run`,
/// or with `NETWORK_PREPARED` also `network_prepare` and `network_free`.
pub const MAIN: &str = include_str!("main.c");

/// The files for a plan whose kernels [`Emitter`](crate::Emitter) made: `network.c` and `network.h`, `weft_math.h`,
/// `main.c` and `weights.bin`. `packed` has the bytes of a constant's buffer as kernels read them; `name` is that of
/// the model, for a comment.
///
/// # Errors
/// Steps that run on the host, loops whose results have as many rows as data decide, and calls, by name; what `packed`
/// says.
pub fn program(
    plan: &Plan,
    packed: &dyn Fn(&PlanBuffer) -> Result<Vec<u8>, String>,
    name: &str,
) -> Result<Vec<File>, String> {
    let places = places(plan, packed)?;
    let network = network(plan, &places)?;
    let text = |name, text: String| File { name, bytes: text.into_bytes() };
    Ok(vec![
        text("network.h", header(plan, &places, name)),
        text("network.c", network),
        text("weft_math.h", MATH.to_string()),
        text("main.c", MAIN.to_string()),
        File { name: "weights.bin", bytes: places.blob },
    ])
}

fn elements(v: &BufferView) -> usize {
    v.shape.iter().product()
}

fn described(v: &BufferView) -> String {
    let c = host_type(v.dtype);
    let note = if c == "uint16_t" { format!(" ({})", v.dtype) } else { String::new() };
    // A name of the model must not end the comment.
    let name = shown_in_line(v.name.as_str()).replace('*', "");
    format!("{name}: {c}{note} {:?}, {} elements", v.shape, elements(v))
}

fn header(plan: &Plan, places: &Places, name: &str) -> String {
    let list = |views: &[BufferView]| -> String {
        views.iter().enumerate().map(|(i, v)| format!("     {i}  {}\n", described(v))).collect()
    };
    let sizes = |views: &[BufferView]| -> String {
        let size = |v: &BufferView| format!("{} * sizeof({})", elements(v), host_type(v.dtype));
        views.iter().map(size).collect::<Vec<_>>().join(", ")
    };
    let name = shown_in_line(name).replace('*', "");
    format!(
        "/* {name}, written by Weft. A C11 compiler builds it with nothing else; the options let GCC and Clang use vectors
   and fused multiply-adds:

     cc -O3 -march=native -ffp-contract=fast -fno-math-errno -fno-trapping-math network.c main.c -lm -o network
     ./network weights.bin INPUT... OUTPUT...      raw elements, as below; -n 100 runs it 100 times

   Inputs:
{}   Outputs:
{}*/
#ifndef NETWORK_H
#define NETWORK_H

#include <stddef.h>
#include <stdint.h>

#define NETWORK_INPUTS {}
#define NETWORK_OUTPUTS {}
#define NETWORK_WEIGHT_BYTES {}
#define NETWORK_ARENA_BYTES {}
/* Bytes of each input and each output. */
#define NETWORK_INPUT_BYTES {{ {} }}
#define NETWORK_OUTPUT_BYTES {{ {} }}

/* Runs the network. `weights` holds weights.bin, `arena` memory of NETWORK_ARENA_BYTES that it may change; both are
   aligned to 64 bytes. Nothing else is read or written, and runs with arenas of their own may go on at once. */
void network_run(const void *weights, void *arena, const void *const *inputs, void *const *outputs);

#endif
",
        list(&plan.inputs),
        list(&plan.outputs),
        plan.inputs.len(),
        plan.outputs.len(),
        places.blob.len(),
        arena_bytes(plan).max(1),
        sizes(&plan.inputs),
        sizes(&plan.outputs),
    )
}

fn network(plan: &Plan, places: &Places) -> Result<String, String> {
    let mut out = String::from("#include \"network.h\"\n#include \"weft_math.h\"\n");
    let mut names = Vec::new();
    for (i, k) in plan.kernels.iter().enumerate() {
        let kernel = k.emitted.module.downcast_ref::<Kernel>();
        let kernel = kernel.ok_or_else(|| format!("kernel `{}` is not in C", k.name))?;
        let name = format!("k{i}_{}", identifier(&k.name));
        let _ = write!(out, "\nstatic void {name}({})\n{{\n{}}}\n", kernel.signature(), kernel.body);
        names.push((name, kernel));
    }
    out.push_str("\nvoid network_run(const void *weights_at, void *arena_at, const void *const *inputs, void *const *outputs)\n{\n");
    out.push_str("    const char *weights = weights_at;\n    char *arena = arena_at;\n    (void)weights;\n    (void)arena;\n    (void)inputs;\n");
    for (i, v) in plan.inputs.iter().enumerate() {
        let (place, given) = (places.of(v.buffer, v.name.as_str())?, format!("inputs[{i}]"));
        if place != given {
            copied(&mut out, v, [view_type(plan, v), &place], &given, true);
        }
    }
    out.push_str(&Steps::print(plan, places, &names)?);
    for (i, v) in plan.outputs.iter().enumerate() {
        let place = places.of(v.buffer, v.name.as_str())?;
        copied(&mut out, v, [view_type(plan, v), &place], &format!("outputs[{i}]"), false);
    }
    out.push_str("}\n");
    Ok(out)
}

/// Brings a tensor into the arena, or out of it. `stored`: the C type in the arena.
fn copied(out: &mut String, v: &BufferView, [stored, place]: [&str; 2], outside: &str, inwards: bool) {
    let (host, n) = (host_type(v.dtype), elements(v));
    let (from, to) = if inwards { (outside, place) } else { (place, outside) };
    if stored == host && v.dtype != DType::Bool {
        let _ = writeln!(out, "    memcpy({to}, {from}, {n} * sizeof({host}));");
        return;
    }
    let (from_type, to_type) = if inwards { (host, stored) } else { (stored, host) };
    let truth = if v.dtype == DType::Bool { " != 0" } else { "" };
    let _ = writeln!(
        out,
        "    for (size_t i = 0; i < {n}; ++i) (({to_type} *)({to}))[i] = ({to_type})(((const {from_type} *)({from}))[i]{truth});"
    );
}
