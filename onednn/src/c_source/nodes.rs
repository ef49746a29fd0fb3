//! The statements of a node: they make its primitive, the copies that it needs, and its result.

use super::names::{Names, VERSION, dims, elements, list, sized};
use crate::graph::{Attributes, Eltwise, Node, PoolKind, PostOp};
use crate::library::{binary_number, eltwise_number};
use std::fmt::Write as _;

/// A float as a literal.
fn float(x: f32) -> String {
    format!("{x:e}f")
}

/// The statements of a node.
pub(super) fn body(node: &Node, names: &Names<'_>) -> Result<String, String> {
    match &node.attributes {
        Attributes::Convolution { strides, dilates, pads_begin, pads_end, groups } => {
            convolution(node, names, [strides, dilates, pads_begin, pads_end], *groups)
        }
        Attributes::Matmul { transposed_weights } => matmul(node, names, *transposed_weights),
        Attributes::Pool { kind, kernel, strides, dilates, pads_begin, pads_end } => {
            pool(node, names, *kind, [strides, kernel, dilates, pads_begin, pads_end])
        }
        Attributes::Binary { function } => binary(node, names, binary_number(*function)),
        Attributes::Eltwise(function) => {
            let init = format!(
                "dnnl_eltwise_forward_desc_init(&op, FORWARD_INFERENCE, {}, &{}.layout, {}, {})",
                number(*function),
                names.of(input(node, 0)?)?,
                float(function.alpha),
                float(function.beta)
            );
            alike(node, names, "this function", &init, &[])
        }
        Attributes::Concat { axis } => concat(node, names, *axis),
        Attributes::Softmax { axis } => {
            let data = names.of(input(node, 0)?)?;
            let init = format!("dnnl_softmax_forward_desc_init(&op, FORWARD_INFERENCE, &{data}.layout, {axis})");
            alike(node, names, "this softmax", &init, &[])
        }
        Attributes::BatchNorm { epsilon } => {
            let init = format!(
                "dnnl_batch_normalization_forward_desc_init(&op, FORWARD_INFERENCE, &{}.layout, {}, GIVEN_STATISTICS_SCALE_SHIFT)",
                names.of(input(node, 0)?)?,
                float(*epsilon)
            );
            let mut more = vec![];
            for (i, number) in ["SCALE", "SHIFT", "MEAN", "VARIANCE"].into_iter().enumerate() {
                more.push((number.to_string(), format!("read_plain(r, &{}).memory", names.of(input(node, i + 1)?)?)));
            }
            alike(node, names, "this batch norm", &init, &more)
        }
    }
}

fn input(node: &Node, i: usize) -> Result<&str, String> {
    Ok(node.inputs.get(i).ok_or_else(|| format!("has {} inputs", node.inputs.len()))?)
}

/// The number of a function, with its name.
fn number(f: Eltwise) -> String {
    let named = serde_json::to_value(f.function).ok().and_then(|v| v.as_str().map(String::from)).unwrap_or_default();
    format!("{:#x} /* {named} */", eltwise_number(f.function, VERSION))
}

/// A primitive whose result is stored as its data are. `more`: numbers and memories of further arguments.
fn alike(node: &Node, names: &Names<'_>, what: &str, init: &str, more: &[(String, String)]) -> Result<String, String> {
    let (data, result) = (names.of(input(node, 0)?)?, names.of(&node.output)?);
    let mut c = String::from("  operation op = {{0}};\n  primitive p;\n");
    let _ = writeln!(c, "  if (!r->failed) check(r, \"{what}\", {init});");
    let _ = writeln!(c, "  p = primitive_of(r, \"{what}\", &op, NULL);");
    let _ = writeln!(c, "  {result} = made(r, {}, &{data}.layout);", sized(&node.shape));
    let mut list = vec![("SOURCE".to_string(), format!("{data}.memory"))];
    list.extend_from_slice(more);
    list.push(("DESTINATION".into(), format!("{result}.memory")));
    c.push_str(&added(&list));
    Ok(c)
}

/// The step of the primitive `p` with these arguments.
fn added(list: &[(String, String)]) -> String {
    let arguments: Vec<String> = list.iter().map(|(number, memory)| format!("{{{number}, {memory}}}")).collect();
    format!("  add_step(r, p, {}, (const argument[]){{{}}});\n", list.len(), arguments.join(", "))
}

/// Post-ops: the statements that make the list `posts`, the arguments that they read, and those that bring what is
/// added into the result. `channels` is the axis of a result of `rank` axes along which the operand of a binary one may
/// vary.
struct Posts {
    made: String,
    arguments: Vec<(String, String)>,
    sums: String,
}

fn posts(node: &Node, names: &Names<'_>, rank: usize, channels: usize) -> Result<Posts, String> {
    let mut p = Posts { made: String::new(), arguments: vec![], sums: String::new() };
    if node.post_ops.is_empty() {
        p.made.push_str("  void *posts = NULL;\n");
        return Ok(p);
    }
    p.made.push_str("  void *posts = post_ops(r);\n");
    for (i, op) in node.post_ops.iter().enumerate() {
        let call = match op {
            PostOp::Eltwise(f) => {
                format!("eltwise(posts, 1.0f, {}, {}, {})", number(*f), float(f.alpha), float(f.beta))
            }
            PostOp::Sum { input } => {
                let _ = writeln!(p.sums, "  copy(r, {}, {}, 0);", names.of(input)?, names.of(&node.output)?);
                "sum(posts, 1.0f)".into()
            }
            PostOp::Binary { function, input } => {
                let mut shape = vec![1; rank];
                shape[channels] = elements(names.shape(input)?);
                let _ = writeln!(p.made, "  const layout as{i} = dense(r, {});", sized(&shape));
                let other = names.of(input)?;
                let _ = writeln!(
                    p.made,
                    "  const tensor other{i} = seen(r, read_plain(r, &{other}), {}, &as{i});",
                    sized(&shape)
                );
                p.arguments.push((format!("POST_OP({i})"), format!("other{i}.memory")));
                format!("binary(posts, {:#x}, &as{i})", binary_number(*function))
            }
        };
        let _ = writeln!(p.made, "  if (!r->failed) check(r, \"a post-op\", dnnl_post_ops_append_{call});");
    }
    Ok(p)
}

fn lists(names: &[&str], values: &[&Vec<i64>]) -> String {
    let each: Vec<String> = names.iter().zip(values).map(|(n, v)| format!("{n}[] = {{{}}}", list(v))).collect();
    format!("  static const int64_t {};\n", each.join(", "))
}

fn convolution(node: &Node, names: &Names<'_>, window: [&Vec<i64>; 4], groups: i64) -> Result<String, String> {
    let (data, filter) = (input(node, 0)?, input(node, 1)?);
    let mut shape = names.shape(filter)?.to_vec();
    if groups > 1 && !shape.is_empty() {
        shape[0] /= groups;
        shape.insert(0, groups);
    }
    let posts = posts(node, names, node.shape.len(), 1)?;
    let mut c = lists(&["strides", "dilates", "begin", "end"], &window);
    c.push_str(&posts.made);
    let _ = writeln!(c, "  const layout any_source = chosen(r, {});", sized(names.shape(data)?));
    let _ = writeln!(c, "  const layout any_weights = chosen(r, {});", sized(&shape));
    let _ = writeln!(c, "  const layout any_result = chosen(r, {});", sized(&node.shape));
    let _ = writeln!(c, "  const layout stored = dense(r, {});", sized(&shape));
    let bias = node.inputs.get(2).map(|n| names.of(n)).transpose()?;
    let bias_layout = bias.as_ref().map_or("NULL".to_string(), |b| format!("&{b}.layout"));
    let _ = writeln!(
        c,
        "  operation op = {{{{0}}}};\n  primitive p;\n  tensor source, weights;\n  if (!r->failed) check(r, \"this convolution\", \
         dnnl_dilated_convolution_forward_desc_init(&op, FORWARD_INFERENCE, CONVOLUTION_DIRECT, &any_source, &any_weights, \
         {bias_layout}, &any_result, strides, dilates, begin, end));\n  p = primitive_of(r, \"this convolution\", &op, posts);"
    );
    let _ = writeln!(c, "  source = stored_as(r, {}, layout_of(r, p, OF_SOURCE), 0);", names.of(data)?);
    let (weights, constant) = (names.of(filter)?, names.is_constant(filter));
    let _ = writeln!(
        c,
        "  weights = stored_as(r, seen(r, read_plain(r, &{weights}), {}, &stored), layout_of(r, p, OF_WEIGHTS), {constant});",
        sized(&shape)
    );
    let result = names.of(&node.output)?;
    let _ = writeln!(
        c,
        "  const layout result = layout_of(r, p, OF_DESTINATION);\n  {result} = made(r, {}, &result);",
        sized(&node.shape)
    );
    let ends = ["source.memory".to_string(), "weights.memory".to_string(), format!("{result}.memory")];
    c.push_str(&finished(&posts, ends, bias.map(|b| format!("{b}.memory"))));
    Ok(c)
}

/// What the result starts with, and the step.
fn finished(posts: &Posts, [source, weights, destination]: [String; 3], bias: Option<String>) -> String {
    let mut list =
        vec![("SOURCE".to_string(), source), ("WEIGHTS".into(), weights), ("DESTINATION".into(), destination)];
    list.extend(bias.map(|b| ("BIAS".into(), b)));
    list.extend_from_slice(&posts.arguments);
    posts.sums.clone() + &added(&list)
}

fn matmul(node: &Node, names: &Names<'_>, transposed: bool) -> Result<String, String> {
    let (data, filter) = (input(node, 0)?, input(node, 1)?);
    let stored = names.shape(filter)?;
    let rank = stored.len();
    // Leading axes of the data are rows, if the weights have none.
    let rows = |shape: &[i64]| match shape {
        [lead @ .., last] if rank == 2 => vec![lead.iter().product(), *last],
        other => other.to_vec(),
    };
    let (from, to) = (rows(names.shape(data)?), rows(&node.shape));
    if rank < 2 || from.len() != rank || to.len() != rank {
        return Err(format!("data of shape {:?} with weights of shape {stored:?}", names.shape(data)?));
    }
    let (mut shape, mut strides) = (stored.to_vec(), crate::runtime::dense(stored));
    if transposed {
        shape.swap(rank - 1, rank - 2);
        strides.swap(rank - 1, rank - 2);
    }
    let constant = names.is_constant(filter);
    let posts = posts(node, names, rank, rank - 1)?;
    let mut c = posts.made.clone();
    let (x, w, result) = (names.of(data)?, names.of(filter)?, names.of(&node.output)?);
    let _ = writeln!(c, "  const layout of_source = dense(r, {}), of_result = dense(r, {});", sized(&from), sized(&to));
    let _ =
        writeln!(c, "  const layout stored = strided(r, {}, (const int64_t[]){{{}}});", sized(&shape), list(&strides));
    match constant {
        1 => _ = writeln!(c, "  const layout of_weights = chosen(r, {});", sized(&shape)),
        _ => c.push_str("  const layout of_weights = stored;\n"),
    }
    let _ = writeln!(c, "  const tensor source = seen(r, read_plain(r, &{x}), {}, &of_source);", sized(&from));
    let mut bias_layout = "NULL";
    if let Some(bias) = node.inputs.get(2) {
        let mut row = vec![1; rank];
        row[rank - 1] = shape[rank - 1];
        let _ = writeln!(c, "  const layout of_bias = dense(r, {});", sized(&row));
        let _ = writeln!(
            c,
            "  const tensor bias = seen(r, read_plain(r, &{}), {}, &of_bias);",
            names.of(bias)?,
            sized(&row)
        );
        bias_layout = "&of_bias";
    }
    let _ = writeln!(
        c,
        "  operation op = {{{{0}}}};\n  primitive p;\n  tensor weights, destination;\n  if (!r->failed) check(r, \"this matrix product\", \
         dnnl_matmul_desc_init(&op, &of_source, &of_weights, {bias_layout}, &of_result));\n  \
         p = primitive_of(r, \"this matrix product\", &op, posts);"
    );
    let _ = writeln!(
        c,
        "  weights = stored_as(r, seen(r, read_plain(r, &{w}), {}, &stored), layout_of(r, p, OF_WEIGHTS), {constant});",
        sized(&shape)
    );
    let _ = writeln!(c, "  {result} = plain(r, {});", sized(&node.shape));
    let _ = writeln!(c, "  destination = seen(r, {result}, {}, &of_result);", sized(&to));
    let ends = ["source.memory", "weights.memory", "destination.memory"].map(String::from);
    c.push_str(&finished(&posts, ends, node.inputs.get(2).map(|_| "bias.memory".into())));
    Ok(c)
}

fn pool(node: &Node, names: &Names<'_>, kind: PoolKind, window: [&Vec<i64>; 5]) -> Result<String, String> {
    let (data, result) = (names.of(input(node, 0)?)?, names.of(&node.output)?);
    let algorithm = match kind {
        PoolKind::Max => "0x1ff /* max */",
        PoolKind::AverageWithPadding => "0x2ff /* average, padding included */",
        PoolKind::Average => "0x3ff /* average */",
    };
    let mut c = lists(&["strides", "kernel", "dilates", "begin", "end"], &window);
    let _ = writeln!(c, "  const layout any_result = chosen(r, {});", sized(&node.shape));
    let _ = writeln!(
        c,
        "  operation op = {{{{0}}}};\n  primitive p;\n  if (!r->failed) check(r, \"this pool\", \
         dnnl_pooling_v2_forward_desc_init(&op, FORWARD_INFERENCE, {algorithm}, &{data}.layout, &any_result, strides, kernel, \
         dilates, begin, end));\n  p = primitive_of(r, \"this pool\", &op, NULL);\n  \
         const layout result = layout_of(r, p, OF_DESTINATION);\n  {result} = made(r, {}, &result);",
        sized(&node.shape)
    );
    let list = [("SOURCE".to_string(), format!("{data}.memory")), ("DESTINATION".into(), format!("{result}.memory"))];
    c.push_str(&added(&list));
    Ok(c)
}

/// A second operand of the same shape is brought into the layout of the first; one that is repeated is read as it is at
/// the border.
fn binary(node: &Node, names: &Names<'_>, algorithm: i32) -> Result<String, String> {
    let (first, second) = (input(node, 0)?, input(node, 1)?);
    let (a, b, result) = (names.of(first)?, names.of(second)?, names.of(&node.output)?);
    let rank = dims(&node.shape).len();
    let posts = posts(node, names, rank, rank - 1)?;
    let mut c = posts.made.clone();
    if names.shape(first)? == names.shape(second)? {
        let _ = writeln!(c, "  const tensor second = stored_as(r, {b}, {a}.layout, 0);");
    } else {
        let own = names.shape(second)?;
        let missing = rank.checked_sub(own.len()).ok_or("an operand of more axes than the result")?;
        let shape = [vec![1; missing], own.to_vec()].concat();
        let _ = writeln!(c, "  const layout as = dense(r, {});", sized(&shape));
        let _ = writeln!(c, "  const tensor second = seen(r, read_plain(r, &{b}), {}, &as);", sized(&shape));
    }
    let _ = writeln!(
        c,
        "  operation op = {{{{0}}}};\n  primitive p;\n  if (!r->failed) check(r, \"this function of two\", \
         dnnl_binary_desc_init(&op, {algorithm:#x}, &{a}.layout, &second.layout, &{a}.layout));\n  \
         p = primitive_of(r, \"this function of two\", &op, posts);\n  {result} = made(r, {}, &{a}.layout);",
        sized(&node.shape)
    );
    let mut list = vec![("SOURCE".to_string(), format!("{a}.memory")), ("SECOND".into(), "second.memory".into())];
    list.push(("DESTINATION".into(), format!("{result}.memory")));
    list.extend_from_slice(&posts.arguments);
    c.push_str(&added(&list));
    Ok(c)
}

fn concat(node: &Node, names: &Names<'_>, axis: usize) -> Result<String, String> {
    let sources: Vec<String> = node.inputs.iter().map(|n| names.of(n)).collect::<Result<_, _>>()?;
    let result = names.of(&node.output)?;
    let layouts: Vec<String> = sources.iter().map(|s| format!("{s}.layout")).collect();
    let mut c = format!("  const layout any_result = chosen(r, {});\n", sized(&node.shape));
    let _ = writeln!(
        c,
        "  const layout sources[] = {{{}}};\n  primitive p = {{NULL, NULL}};\n  if (!r->failed) check(r, \"this concatenation\", \
         dnnl_concat_primitive_desc_create(&p.descriptor, &any_result, {}, {axis}, sources, NULL, r->engine));\n  p = kept(r, p);\n  \
         const layout result = layout_of(r, p, OF_DESTINATION);\n  {result} = made(r, {}, &result);",
        layouts.join(", "),
        sources.len(),
        sized(&node.shape)
    );
    let read = sources.iter().enumerate().map(|(i, s)| (format!("MULTIPLE({i})"), format!("{s}.memory")));
    let list: Vec<(String, String)> = read.chain([("DESTINATION".into(), format!("{result}.memory"))]).collect();
    c.push_str(&added(&list));
    Ok(c)
}
