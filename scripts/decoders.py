#!/usr/bin/env python3
"""Language models with seeded random weights, in the forms that exporters write, for benchmarks and tests.

    decoders.py FORM OUT [KEY=VALUE ...]     one file
    decoders.py small FOLDER                 fifteen small ones: every form, f32, f16 and 4 bits, with and without options
    decoders.py tests FOLDER                 the three of cli/tests/transcripts/decoders, and their prompt
    decoders.py packed FOLDER                the three of cli/tests/models/decoders

Forms: genai  as onnxruntime-genai's model builder writes them (GroupQueryAttention, MatMulNBits)
       std23  operators of opset 23 (Attention, RMSNormalization, RotaryEmbedding)
       old    PyTorch's decomposed export, opset 14: norms, rotation, mask and cache of small operators
       gguf   the same shape for llama.cpp (type=q4_0, f16 or f32); needs the package gguf, the others onnx
Keys, with their defaults, are those of DEFAULTS below: `layers=2 d=1024 heads=16 kv=4 head=64 ff=2816 vocab=8000`.
"""
import os
import sys

import numpy as np

DEFAULTS = dict(
    layers=2, d=128, heads=8, kv=2, head=16, ff=256, vocab=512, context=512,
    f16=0,              # weights and activations
    q4=1, block=32, level=4, zero=0,     # 4-bit weights; MatMulNBits' block, accuracy_level, zero points
    embed="gather",     # or gbq: GatherBlockQuantized; tied: its table is the last product's as well, through a Reshape
    bias=0,             # of Q, K and V, as in Qwen 2
    qknorm=0,           # norms of Q and K, as in Qwen 3
    window=-1,          # of attention
    mask="standard",    # or capture (no Shape, for graph capture), or none
    positions=0,        # position_ids as an input of genai's form
    open_head=0,        # the width of a head has the name kv_cache_dim in the cache
    type="q4_0",        # of gguf
)

SMALL = [
    "g_f32 genai q4=0", "g_q4 genai level=0", "g_q4f16 genai f16=1 level=0", "g_f16 genai f16=1 q4=0",
    "g_q4z genai level=0 zero=1 embed=gbq", "g_q4cap genai level=0 mask=capture", "g_qwen genai level=0 bias=1 positions=1",
    "g_qwen3 genai level=0 qknorm=1", "g_win genai level=0 window=6",
    "s_f32 std23 q4=0", "s_f16 std23 q4=0 f16=1", "s_nomask std23 q4=0 mask=none",
    "o_f32 old q4=0", "o_f16 old q4=0 f16=1", "o_q4 old level=0",
]
TINY = "layers=1 d=16 heads=2 kv=1 head=16 ff=16 vocab=24 context=32 block=16"
TESTS = [f"genai genai {TINY} level=0 open_head=1", f"std23 std23 {TINY} q4=0", f"old old {TINY} q4=0"]
ONE = "layers=1 d=64 heads=2 kv=1 head=32 ff=128 vocab=32 context=8 level=0"
PACKED = [
    f"zeros genai {ONE} zero=1 embed=gbq qknorm=1 bias=1", f"halves genai {ONE} f16=1", f"old old {ONE}",
    f"tied genai {ONE} d=128 vocab=512 embed=tied",
]
LISTS = {"small": SMALL, "tests": TESTS, "packed": PACKED}
MICROSOFT = "com.microsoft"


class Graph:
    """An ONNX graph under construction. Values are names."""

    def __init__(self, c):
        import onnx

        self.onnx, self.c, self.random = onnx, c, np.random.default_rng(0)
        self.type = onnx.TensorProto.FLOAT16 if c["f16"] else onnx.TensorProto.FLOAT
        self.np = np.float16 if c["f16"] else np.float32
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.count, self.names, self.tied = 0, set(), None

    def new(self, stem="t"):
        self.count += 1
        return f"{stem}_{self.count}"

    def op(self, kind, inputs, outputs=1, domain="", **attributes):
        out = [self.new(kind) for _ in range(outputs)] if isinstance(outputs, int) else outputs
        name = self.new("n_" + kind)
        self.nodes.append(self.onnx.helper.make_node(kind, inputs, out, name=name, domain=domain, **attributes))
        return out[0] if len(out) == 1 else out

    def const(self, array, name=None):
        name = name or self.new("w")
        if name not in self.names:
            self.names.add(name)
            self.weights.append(self.onnx.numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def ints(self, values, dtype=np.int64):
        values = np.array(values, dtype)
        return self.const(values, f"c_{values.dtype}_{'_'.join(map(str, values.ravel()))}_{values.ndim}")

    def float(self, value):
        return self.const(np.array(value, self.np), f"f_{value}")

    def drawn(self, *shape, scale=None):
        values = self.random.standard_normal(shape, dtype=np.float32)
        return self.const((values * (scale or 1 / np.sqrt(shape[0]))).astype(self.np))

    def norm(self, width):
        return self.const((1 + 0.1 * self.random.standard_normal(width)).astype(self.np))

    def port(self, list_, name, dtype, shape):
        list_.append(self.onnx.helper.make_tensor_value_info(name, dtype, shape))

    def ports(self, positions, mask=True):
        """The inputs and results of every form."""
        c, int64 = self.c, self.onnx.TensorProto.INT64
        self.port(self.inputs, "input_ids", int64, ["batch_size", "sequence_length"])
        if mask:
            self.port(self.inputs, "attention_mask", int64, ["batch_size", "total_sequence_length"])
        if positions:
            self.port(self.inputs, "position_ids", int64, ["batch_size", "sequence_length"])
        self.port(self.outputs, "logits", self.type, ["batch_size", "sequence_length", c["vocab"]])
        width = "kv_cache_dim" if c["open_head"] else c["head"]
        for layer in range(c["layers"]):
            for what in ("key", "value"):
                shape = lambda length: ["batch_size", c["kv"], length, width]
                self.port(self.inputs, f"past_key_values.{layer}.{what}", self.type, shape("past_sequence_length"))
                self.port(self.outputs, f"present.{layer}.{what}", self.type, shape("total_sequence_length"))

    def q4(self, x, k, n, weights=None):
        """A product with these weights and scales, else with random nibbles, and scales with which weights deviate by
        1/sqrt(k)."""
        c = self.c
        blocks = -(-k // c["block"])
        attributes = dict(K=k, N=n, bits=4, block_size=c["block"], accuracy_level=c["level"])
        if weights:
            return self.op("MatMulNBits", [x, *weights], domain=MICROSOFT, **attributes)
        nibbles = self.random.integers(0, 256, (n, blocks, c["block"] // 2), dtype=np.uint8)
        spread = np.abs(1 + 0.1 * self.random.standard_normal((n, blocks), dtype=np.float32))
        inputs = [x, self.const(nibbles), self.const((spread / np.sqrt(k) / (16 / np.sqrt(12))).astype(self.np))]
        if c["zero"]:
            inputs.append(self.const(self.random.integers(0, 256, (n, (blocks + 1) // 2), dtype=np.uint8)))
        return self.op("MatMulNBits", inputs, domain=MICROSOFT, **attributes)

    def linear(self, x, k, n, bias=False):
        y = self.q4(x, k, n) if self.c["q4"] else self.op("MatMul", [x, self.drawn(k, n)])
        return self.op("Add", [y, self.drawn(n, scale=0.02)]) if bias else y

    def qkv(self, y, bias=False):
        c = self.c
        return [self.linear(y, c["d"], n * c["head"], bias) for n in (c["heads"], c["kv"], c["kv"])]

    def mlp(self, y):
        c = self.c
        gate, up = self.linear(y, c["d"], c["ff"]), self.linear(y, c["d"], c["ff"])
        swish = self.op("Mul", [gate, self.op("Sigmoid", [gate])])
        return self.linear(self.op("Mul", [swish, up]), c["ff"], c["d"])

    def tables(self):
        half = self.c["head"] // 2
        angles = np.outer(np.arange(self.c["context"]), 1 / (10000 ** (np.arange(half) / half)))
        return self.const(np.cos(angles).astype(self.np), "cos_cache"), self.const(np.sin(angles).astype(self.np), "sin_cache")

    def logits(self, y):
        if self.tied:
            self.q4(y, self.c["d"], self.c["vocab"], self.tied)
        else:
            self.linear(y, self.c["d"], self.c["vocab"])
        self.nodes[-1].output[0] = "logits"

    def save(self, path, opset):
        helper = self.onnx.helper
        graph = helper.make_graph(self.nodes, "main_graph", self.inputs, self.outputs, self.weights)
        uses = any(n.domain == MICROSOFT for n in self.nodes)
        opsets = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(MICROSOFT, 1)] if uses else [])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10 if opset < 23 else 11, producer_name="decoders.py")
        apart = model.ByteSize() > 1_900_000_000
        self.onnx.save(model, path, save_as_external_data=apart, location=os.path.basename(path) + ".data")


def genai(path, c):
    g, onnx = Graph(c), __import__("onnx")
    d, head = c["d"], c["head"]
    g.ports(c["positions"])
    cos, sin = g.tables()
    if c["mask"] == "capture":
        lengths = g.op("ReduceSum", [g.op("Cast", ["attention_mask"], to=onnx.TensorProto.INT32), g.ints([1])], keepdims=0)
        last, total = g.op("Sub", [lengths, g.ints([1], np.int32)]), g.op("ReduceMax", [lengths], keepdims=0)
    else:
        lengths = g.op("Sub", [g.op("ReduceSum", ["attention_mask", g.ints([1])], keepdims=1), g.ints([1])])
        last = g.op("Cast", [lengths], to=onnx.TensorProto.INT32)
        total = g.op("Gather", [g.op("Shape", ["attention_mask"]), g.ints(1)], axis=0)
        total = g.op("Cast", [total], to=onnx.TensorProto.INT32)
    if c["embed"] in ("gbq", "tied"):
        table = g.random.integers(0, 256, (c["vocab"], d // 2), dtype=np.uint8)
        scales = np.abs(0.2 * g.random.standard_normal((c["vocab"], d // c["block"]), dtype=np.float32)).astype(g.np)
        attributes = dict(bits=4, block_size=c["block"], gather_axis=0, quantize_axis=1)
        table, scales = g.const(table), g.const(scales)
        x = g.op("GatherBlockQuantized", [table, "input_ids", scales], domain=MICROSOFT, **attributes)
        if c["embed"] == "tied":
            blocks = [c["vocab"], d // c["block"], c["block"] // 2]
            g.tied = [g.op("Reshape", [table, g.ints(blocks)]), g.op("Reshape", [scales, g.ints([-1])])]
    else:
        x = g.op("Gather", [g.drawn(c["vocab"], d, scale=1), "input_ids"])
    simplified = lambda x, width: g.op("SimplifiedLayerNormalization", [x, g.norm(width)], axis=-1, epsilon=1e-5, stash_type=1)

    def skip_norm(a, b, last=False):
        outputs = 1 if last else [g.new("n"), "", "", g.new("s")]
        out = g.op("SkipSimplifiedLayerNormalization", [a, b, g.norm(d)], outputs, domain=MICROSOFT, epsilon=1e-5)
        return (out, None) if last else (out[0], out[3])

    def head_norm(x, heads):
        x = simplified(g.op("Reshape", [x, g.ints([0, -1, head])]), head)
        return g.op("Reshape", [x, g.ints([0, -1, heads * head])])

    skip, y = x, simplified(x, d)
    for layer in range(c["layers"]):
        q, k, v = g.qkv(y, c["bias"])
        if c["qknorm"]:
            q, k = head_norm(q, c["heads"]), head_norm(k, c["kv"])
        past, present = ([f"{stem}.{layer}.{what}" for what in ("key", "value")] for stem in ("past_key_values", "present"))
        attention = g.op(
            "GroupQueryAttention", [q, k, v, *past, last, total, cos, sin], [g.new("attn"), *present], domain=MICROSOFT,
            num_heads=c["heads"], kv_num_heads=c["kv"], do_rotary=1, rotary_interleaved=0, local_window_size=c["window"],
            scale=float(1 / np.sqrt(head)), softcap=0.0,
        )[0]
        y, skip = skip_norm(skip, g.linear(attention, c["heads"] * head, d))
        y, skip = skip_norm(skip, g.mlp(y), layer == c["layers"] - 1)
    g.logits(y)
    g.save(path, 21)


def std23(path, c):
    g, onnx = Graph(c), __import__("onnx")
    d, masked = c["d"], c["mask"] != "none"
    g.ports(True, mask=masked)
    cos, sin = g.tables()
    x, bias = g.op("Gather", [g.drawn(c["vocab"], d, scale=1), "input_ids"]), ""
    if masked:      # [batch, 1, tokens, total] of padding; the operator is causal itself
        padding = g.op("Unsqueeze", [g.op("Cast", ["attention_mask"], to=onnx.TensorProto.BOOL), g.ints([1, 2])])
        tokens, total = g.op("Shape", ["input_ids"], start=1, end=2), g.op("Shape", ["attention_mask"], start=1, end=2)
        bias = g.op("Expand", [padding, g.op("Concat", [g.ints([1]), g.ints([1]), tokens, total], axis=0)])
    norm = lambda x: g.op("RMSNormalization", [x, g.norm(d)], axis=-1, epsilon=1e-5)
    for layer in range(c["layers"]):
        q, k, v = g.qkv(norm(x))
        q, k = (g.op("RotaryEmbedding", [t, cos, sin, "position_ids"], num_heads=n) for t, n in ((q, c["heads"]), (k, c["kv"])))
        past, present = ([f"{stem}.{layer}.{what}" for what in ("key", "value")] for stem in ("past_key_values", "present"))
        outputs, heads = [g.new("attn"), *present], dict(q_num_heads=c["heads"], kv_num_heads=c["kv"])
        attention = g.op("Attention", [q, k, v, bias, *past], outputs, is_causal=1, **heads)[0]
        x = g.op("Add", [x, g.linear(attention, c["heads"] * c["head"], d)])
        x = g.op("Add", [x, g.mlp(norm(x))])
    g.logits(norm(x))
    g.save(path, 23)


def old(path, c):
    g, onnx = Graph(c), __import__("onnx")
    d, head, heads, kv = c["d"], c["head"], c["heads"], c["kv"]
    g.ports(True)
    F32, INT64 = onnx.TensorProto.FLOAT, np.int64
    tensor = onnx.numpy_helper.from_array
    dim = lambda x, i: g.op("Gather", [g.op("Shape", [x]), g.ints(i)], axis=0)
    unsqueeze = lambda x, axes: g.op("Unsqueeze", [x, g.ints(axes)])
    concat = lambda list_, axis: g.op("Concat", list_, axis=axis)
    cast = lambda x, to: g.op("Cast", [x], to=to)
    lowest = float(np.finfo(g.np).min)

    def expand(x, shape):
        """As PyTorch writes `x.expand(shape)`: -1 keeps a size."""
        ones = g.op("ConstantOfShape", [g.op("Shape", [shape])], value=tensor(np.array([1], INT64)))
        return g.op("Expand", [x, g.op("Where", [g.op("Equal", [shape, g.ints([-1])]), ones, shape])])

    batch, tokens, past = dim("input_ids", 0), dim("input_ids", 1), dim("past_key_values.0.key", 2)
    total = g.op("Add", [past, tokens])
    b, s, t = unsqueeze(batch, [0]), unsqueeze(tokens, [0]), unsqueeze(total, [0])
    columns, rows = g.op("Range", [g.ints(0), total, g.ints(1)]), g.op("Range", [past, total, g.ints(1)])
    above = g.op("Greater", [unsqueeze(columns, [0]), unsqueeze(rows, [1])])
    full = g.op("ConstantOfShape", [concat([s, t], 0)], value=tensor(np.array([lowest], g.np)))
    causal = unsqueeze(g.op("Mul", [full, cast(above, g.type)]), [0, 1])
    causal = expand(causal, concat([b, g.ints([1]), s, t], 0))
    padded = g.op("Equal", [cast(unsqueeze("attention_mask", [1, 2]), g.type), g.float(0.0)])
    mask = g.op("Where", [padded, g.float(lowest), causal])
    frequencies = g.const((1 / (10000 ** (np.arange(head // 2) / (head // 2)))).astype(np.float32)[None, :, None])
    angles = g.op("MatMul", [frequencies, cast(unsqueeze("position_ids", [1]), F32)])
    angles = g.op("Transpose", [angles], perm=[0, 2, 1])
    angles = concat([angles, angles], -1)
    cos, sin = (unsqueeze(cast(g.op(kind, [angles]), g.type), [1]) for kind in ("Cos", "Sin"))

    def norm(x):
        x = cast(x, F32)
        mean = g.op("ReduceMean", [g.op("Pow", [x, g.const(np.float32(2), "two")])], axes=[-1], keepdims=1)
        root = g.op("Sqrt", [g.op("Add", [mean, g.const(np.float32(1e-5), "eps")])])
        y = g.op("Mul", [x, g.op("Div", [g.const(np.float32(1), "one"), root])])
        return g.op("Mul", [g.norm(d), cast(y, g.type)])

    def split(x, n):
        shape = concat([b, s, g.ints([n]), g.ints([head])], 0)
        return g.op("Transpose", [g.op("Reshape", [x, shape])], perm=[0, 2, 1, 3])

    def rotate(x):
        half = g.ints([head // 2])
        low = g.op("Slice", [x, g.ints([0]), half, g.ints([3])])
        high = g.op("Slice", [x, half, g.ints([2**63 - 1]), g.ints([3])])
        turned = concat([g.op("Neg", [high]), low], -1)
        return g.op("Add", [g.op("Mul", [x, cos]), g.op("Mul", [turned, sin])])

    def repeat(x):
        x = expand(unsqueeze(x, [2]), concat([b, g.ints([kv]), g.ints([heads // kv]), t, g.ints([head])], 0))
        return g.op("Reshape", [x, concat([b, g.ints([heads]), t, g.ints([head])], 0)])

    x = g.op("Gather", [g.drawn(c["vocab"], d, scale=1), "input_ids"])
    for layer in range(c["layers"]):
        q, k, v = (split(y, n) for y, n in zip(g.qkv(norm(x)), (heads, kv, kv)))
        q, k = rotate(q), rotate(k)
        k, v = (
            repeat(g.op("Concat", [f"past_key_values.{layer}.{what}", y], [f"present.{layer}.{what}"], axis=2))
            for y, what in ((k, "key"), (v, "value"))
        )
        scores = g.op("MatMul", [q, g.op("Transpose", [k], perm=[0, 1, 3, 2])])
        scores = g.op("Add", [g.op("Div", [scores, g.float(float(np.sqrt(head)))]), mask])
        weights = cast(g.op("Softmax", [cast(scores, F32)], axis=-1), g.type)
        joined = g.op("Transpose", [g.op("MatMul", [weights, v])], perm=[0, 2, 1, 3])
        joined = g.op("Reshape", [joined, concat([b, s, g.ints([heads * head])], 0)])
        x = g.op("Add", [x, g.linear(joined, heads * head, d)])
        x = g.op("Add", [x, g.mlp(norm(x))])
    g.logits(norm(x))
    g.save(path, 14)


def gguf(path, c):
    import gguf as package

    kinds = {"q4_0": (package.GGMLQuantizationType.Q4_0, 2), "f16": (package.GGMLQuantizationType.F16, 1)}
    kind, file_type = kinds.get(c["type"], (package.GGMLQuantizationType.F32, 0))
    w, random, d, vocab = package.GGUFWriter(path, "llama"), np.random.default_rng(0), c["d"], c["vocab"]
    w.add_context_length(c["context"])
    w.add_embedding_length(d)
    w.add_block_count(c["layers"])
    w.add_feed_forward_length(c["ff"])
    w.add_head_count(c["heads"])
    w.add_head_count_kv(c["kv"])
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(c["head"])
    w.add_rope_freq_base(10000.0)
    w.add_vocab_size(vocab)
    w.add_tokenizer_model("llama")
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [f"t{i}" for i in range(vocab - 259)]
    w.add_token_list(words)
    w.add_token_scores([0.0] * vocab)
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * (vocab - 259))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)

    def matrix(name, n, k, kind=kind):
        values = random.standard_normal((n, k), dtype=np.float32) / np.sqrt(k)
        if kind == package.GGMLQuantizationType.F32:
            w.add_tensor(name, values)
        else:
            w.add_tensor(name, package.quants.quantize(values, kind), raw_dtype=kind)

    matrix("token_embd.weight", vocab, d, package.GGMLQuantizationType.F16 if c["type"] != "f32" else kind)
    for layer in range(c["layers"]):
        block = f"blk.{layer}."
        for name in ("attn_norm", "ffn_norm"):
            w.add_tensor(f"{block}{name}.weight", np.ones(d, np.float32))
        inner, small = c["heads"] * c["head"], c["kv"] * c["head"]
        shapes = dict(attn_q=(inner, d), attn_k=(small, d), attn_v=(small, d), attn_output=(d, inner))
        shapes |= dict(ffn_gate=(c["ff"], d), ffn_up=(c["ff"], d), ffn_down=(d, c["ff"]))
        for name, shape in shapes.items():
            matrix(f"{block}{name}.weight", *shape)
    w.add_tensor("output_norm.weight", np.ones(d, np.float32))
    matrix("output.weight", vocab, d)
    w.add_file_type(file_type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


FORMS = {"genai": genai, "std23": std23, "old": old, "gguf": gguf}


def parsed(pairs):
    c = dict(DEFAULTS)
    for pair in pairs:
        key, value = pair.split("=")
        if key not in c:
            sys.exit(f"{key}: no such key; there are: {', '.join(DEFAULTS)}")
        c[key] = value if isinstance(c[key], str) else int(value)
    return c


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in FORMS.keys() | LISTS.keys():
        sys.exit(__doc__)
    form, out, pairs = sys.argv[1], sys.argv[2], sys.argv[3:]
    if form in FORMS:
        return FORMS[form](out, parsed(pairs))
    os.makedirs(out, exist_ok=True)
    for name, kind, *pairs in (line.split() for line in LISTS[form]):
        FORMS[kind](os.path.join(out, name + ".onnx"), parsed(pairs))
    if form == "tests":
        np.save(os.path.join(out, "prompt.npy"), np.array([[3, 1, 4, 1, 5]]))


if __name__ == "__main__":
    main()
