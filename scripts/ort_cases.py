#!/usr/bin/env python3
"""ort_cases.py FOLDER [FAMILY ...]

Writes models of the operators that ONNX Runtime adds to ONNX (`FAMILY.onnx`), with inputs (`FAMILY.in.npz`) and ONNX Runtime's results
on the CPU (`FAMILY.out.npz`). Each result of a model is one variant of an operator. `cli/tests/ort_cases.rs` runs them.
Needs numpy, onnx and onnxruntime. Data are drawn from fixed seeds, so that the same releases write the same files.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"

# Results with elements that nobody defines, of tokens that fill a prompt up: they are no results of the model.
UNDEFINED = ["prompt_padded_out0"]


class Model:
    """A model that grows by variants, each a node with inputs and constants of its own."""

    def __init__(self, name, opset=17):
        self.rng = np.random.default_rng(abs(hash_of(name)))
        self.name, self.opset, self.bytes_as_floats = name, opset, False
        self.nodes, self.inits, self.inputs, self.outputs, self.data = [], [], [], [], {}

    def draw(self, *shape):
        return self.rng.standard_normal(shape).astype(np.float32)

    def bytes(self, *shape, dtype=np.uint8):
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max + 1, shape).astype(dtype)

    def weights(self, *shape, dtype=np.int8):
        """Seven bits: with more, the products of ONNX Runtime saturate on x86 without VNNI."""
        return self.rng.integers(-64, 64, shape).astype(dtype) if dtype == np.int8 else self.bytes(*shape, dtype=dtype)

    def add(self, op, variant, inputs, outputs=1, domain=MS, constant=(), names=None, **attrs):
        """`inputs`: arrays (or None); those at the positions `constant` are initializers. `outputs`: how many, or which are named."""
        given = []
        for i, x in enumerate(inputs):
            if x is None:
                given.append("")
                continue
            name = f"{variant}_{i}"
            given.append(name)
            if i in constant:
                self.inits.append(numpy_helper.from_array(np.asarray(x), name))
            else:
                x = np.asarray(x)
                self.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
                self.data[name] = x
        named = [True] * outputs if isinstance(outputs, int) else outputs
        results = [f"{variant}_out{i}" if n else "" for i, n in enumerate(named)]
        self.outputs += [r for r in results if r and r not in UNDEFINED]
        made = helper.make_node(op, given, results, domain=domain, name=variant, **attrs)
        self.nodes.append(made)
        if self.bytes_as_floats:
            # ONNX Runtime rounds in another order: one step of a byte is within the tolerance of floats.
            made.output[0] = variant + "_bytes"
            self.nodes.append(helper.make_node("Cast", [made.output[0]], results, to=TensorProto.FLOAT))

    def build(self):
        outputs = [helper.make_value_info(o, onnx.TypeProto()) for o in self.outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, outputs, self.inits)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=9)

    def run(self):
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(self.build().SerializeToString(), options, providers=["CPUExecutionProvider"])
        return dict(zip(self.outputs, session.run(self.outputs, self.data)))


def hash_of(name):
    return int.from_bytes(name.encode(), "little") % 2**31


def norms(m):
    for name, skip in [("plain", (2, 5, 8)), ("row", (1, 5, 8)), ("flat", (5, 8))]:
        x, s, g, b, c = m.draw(2, 5, 8), m.draw(*skip), m.draw(8), m.draw(8), m.draw(8)
        m.add("SkipLayerNormalization", f"skip_{name}", [x, s, g, b, c], [1, 0, 0, 1], constant=(2, 3, 4), epsilon=1e-5)
        m.add("SkipSimplifiedLayerNormalization", f"skip_rms_{name}", [x, s, g, c], [1, 0, 0, 1], constant=(2, 3), epsilon=1e-5)
    x, s, g, b = m.draw(3, 8), m.draw(3, 8), m.draw(8), m.draw(8)
    m.add("SkipLayerNormalization", "skip_matrix", [x, s, g], 1, constant=(2,))
    m.add("SkipLayerNormalization", "skip_beta", [x, s, g, b], 1)
    m.add("SkipSimplifiedLayerNormalization", "skip_rms_matrix", [x, s, g], 1)
    x = m.draw(2, 3, 4)
    m.add("SimplifiedLayerNormalization", "rms", [x, m.draw(4)], 1, domain="", axis=-1, epsilon=1e-5, stash_type=1)
    m.add("SimplifiedLayerNormalization", "rms_axis", [x, m.draw(3, 4)], 1, domain="", axis=1)


def embeddings(m):
    ids = m.rng.integers(0, 10, (2, 4)).astype(np.int32)
    segments, at = m.rng.integers(0, 2, (2, 4)).astype(np.int32), m.rng.integers(0, 6, (2, 4)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)
    tables = [m.draw(10, 8), m.draw(6, 8), m.draw(2, 8), m.draw(8), m.draw(8)]
    c = (2, 3, 4, 5, 6)
    m.add("EmbedLayerNormalization", "all", [ids, segments, *tables, mask, at], [1, 1, 1], constant=c, epsilon=1e-6)
    m.add("EmbedLayerNormalization", "mask", [ids, segments, *tables, mask], [1, 1], constant=c)
    m.add("EmbedLayerNormalization", "plain", [ids, segments, *tables], [1, 1], constant=c)
    m.add("EmbedLayerNormalization", "distil", [ids, None, tables[0], tables[1], None, tables[3], tables[4]], [1, 1], constant=c)


def activations(m):
    x, b = m.draw(2, 3, 8) * 3, m.draw(8)
    m.add("BiasGelu", "bias_gelu", [x, b])
    m.add("FastGelu", "fast_gelu", [x])
    m.add("FastGelu", "fast_gelu_bias", [x, b], constant=(1,))
    m.add("QuickGelu", "quick_gelu", [x])
    m.add("QuickGelu", "silu", [x], alpha=1.0)
    m.add("Gelu", "gelu", [x])


def products(m):
    a, b = m.draw(2, 3, 4), m.draw(2, 4, 5)
    t = lambda v: np.ascontiguousarray(v.swapaxes(-1, -2))
    m.add("FusedMatMul", "plain", [a, b], alpha=0.25)
    m.add("FusedMatMul", "a", [t(a), b], transA=1)
    m.add("FusedMatMul", "b", [a, t(b)], transB=1, alpha=-2.0)
    m.add("FusedMatMul", "ab", [t(a), t(b)], transA=1, transB=1)
    first = lambda v: np.ascontiguousarray(np.moveaxis(v, -2, 0))
    a, b = m.draw(2, 6, 3, 4), m.draw(2, 6, 4, 5)
    m.add("FusedMatMul", "batch_a", [first(a), b], transBatchA=1)
    m.add("FusedMatMul", "batch_b", [a, first(b)], transBatchB=1)
    m.add("FusedMatMul", "batch_ab", [first(t(a)), first(t(b))], transA=1, transB=1, transBatchA=1, transBatchB=1)
    m.add("FusedMatMul", "vector", [m.draw(4), m.draw(4, 5)], alpha=0.5)
    for act, extra in [("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.3}), ("Sigmoid", {}), ("Tanh", {}),
                       ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}), ("Elu", {"activation_alpha": 0.7})]:
        m.add("FusedGemm", f"gemm_{act}", [m.draw(4, 3), m.draw(5, 4), m.draw(5)], constant=(1, 2), activation=act, transA=1, transB=1,
              alpha=0.5, beta=2.0, **extra)
    x, w, bias = m.draw(1, 4, 6, 6), m.draw(4, 2, 3, 3), m.draw(4)
    for act, params in [("Relu", None), ("Sigmoid", None), ("Tanh", None), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.75]), ("HardSigmoid", [0.3, 0.6])]:
        extra = {} if params is None else {"activation_params": params}
        m.add("FusedConv", f"conv_{act}", [x, w, bias], constant=(1, 2), activation=act, group=2, pads=[1, 1, 1, 1], **extra)
    m.add("FusedConv", "conv_sum", [x, w, bias, m.draw(1, 4, 3, 3)], constant=(1, 2), activation="Relu", group=2, pads=[1, 1, 1, 1], strides=[2, 2])
    m.add("FusedConv", "conv_no_bias", [x, w], constant=(1,), activation="Relu", group=2)


def attention(m):
    b, s, l, h, d = 2, 3, 5, 2, 4
    q, k, v, bias = m.draw(b, s, h * d), m.draw(b, l, h * d), m.draw(b, l, h * 6), m.draw(2 * h * d + h * 6)
    m.add("MultiHeadAttention", "mha", [q, k, v], num_heads=h)
    m.add("MultiHeadAttention", "mha_bias", [q, k, v, bias], constant=(3,), num_heads=h, scale=0.3)
    ends = np.array([3, 5], np.int32)
    m.add("MultiHeadAttention", "mha_ends", [q, k, v, None, ends], num_heads=h)
    mask = np.array([[1, 1, 0, 1, 0], [0, 1, 1, 1, 1]], np.int32)
    m.add("MultiHeadAttention", "mha_mask", [q, k, v, None, mask], num_heads=h, mask_filter_value=-50.0)
    m.add("MultiHeadAttention", "mha_mask3", [q, k, v, None, m.rng.integers(0, 2, (b, s, l)).astype(np.int32)], num_heads=h)
    m.add("MultiHeadAttention", "mha_add", [q, k, v, None, None, m.draw(1, h, s, l)], num_heads=h)
    past = [m.draw(b, h, 2, d), m.draw(b, h, 2, d)]
    qs = [m.draw(b, s, h * d) for _ in range(3)]
    m.add("MultiHeadAttention", "mha_past", [*qs, m.draw(3 * h * d), None, None, *past], 3, num_heads=h)
    m.add("MultiHeadAttention", "mha_causal", qs, 3, num_heads=h, unidirectional=1)
    m.add("MultiHeadAttention", "mha_causal_mask", [*qs, None, np.array([[1, 1, 0], [0, 1, 1]], np.int32)], num_heads=h, unidirectional=1)
    m.add("MultiHeadAttention", "mha_cross", [q, m.draw(b, h, l, d), m.draw(b, h, l, d)], num_heads=h)

    x, w, wb = m.draw(b, 4, 6), m.draw(6, 24), m.draw(24)
    m.add("Attention", "plain", [x, w, wb], constant=(1, 2), num_heads=h)
    m.add("Attention", "causal", [x, w, wb], constant=(1, 2), num_heads=h, unidirectional=1)
    m.add("Attention", "no_bias", [x, w], constant=(1,), num_heads=h, scale=0.2)
    m.add("Attention", "ends", [x, w, wb, np.array([2, 4], np.int32)], constant=(1, 2), num_heads=h)
    m.add("Attention", "starts", [x, w, wb, np.array([4, 3, 1, 0], np.int32)], constant=(1, 2), num_heads=h)
    m.add("Attention", "mask", [x, w, wb, np.array([[1, 1, 1, 0], [0, 1, 1, 1]], np.int32)], constant=(1, 2), num_heads=h)
    m.add("Attention", "mask_causal", [x, w, wb, np.array([[1, 1, 1, 0], [0, 1, 1, 1]], np.int32)], constant=(1, 2), num_heads=h, unidirectional=1)
    m.add("Attention", "mask3", [x, w, wb, m.rng.integers(0, 2, (b, 4, 4)).astype(np.int32)], constant=(1, 2), num_heads=h)
    m.add("Attention", "past", [x, w, wb, None, m.draw(2, b, h, 3, 4)], 2, constant=(1, 2), num_heads=h, unidirectional=1)
    m.add("Attention", "bias", [x, w, wb, None, None, m.draw(b, h, 4, 4)], constant=(1, 2), num_heads=h)
    m.add("Attention", "sizes", [x, m.draw(6, 8 + 8 + 12), m.draw(28)], constant=(1, 2), num_heads=h, qkv_hidden_sizes=[8, 8, 12])


def rotary(m):
    cos, sin = np.cos(m.draw(9, 4)), np.sin(m.draw(9, 4))
    at = m.rng.integers(0, 9, (2, 3)).astype(np.int64)
    for name, attrs in [("halves", {}), ("pairs", {"interleaved": 1})]:
        m.add("RotaryEmbedding", f"heads_{name}", [m.draw(2, 2, 3, 8), at, cos, sin], constant=(2, 3), **attrs)
        m.add("RotaryEmbedding", f"flat_{name}", [m.draw(2, 3, 16), at, cos, sin], constant=(2, 3), **attrs)
        m.add("RotaryEmbedding", f"first_{name}", [m.draw(2, 3, 16), np.array([4], np.int64), cos, sin], constant=(2, 3), **attrs)
        m.add("RotaryEmbedding", f"part_{name}", [m.draw(2, 3, 24), at, cos, sin], constant=(2, 3), num_heads=2, rotary_embedding_dim=8, **attrs)


def grouped_steps(m, constant):
    """A function that adds steps of a decoder; `constant`: whether the total length is known when the model is compiled."""
    n, g, d = 4, 2, 16
    cos, sin = np.cos(m.draw(16, d // 2)), np.sin(m.draw(16, d // 2))
    total = lambda t: np.array(t, np.int32)

    def step(name, s, past, ends, t, packed=False, **attrs):
        b = len(ends)
        rotary = attrs.get("do_rotary", 0)
        qkv = [m.draw(b, s, (n + 2 * g) * d), None, None] if packed else [m.draw(b, s, n * d), m.draw(b, s, g * d), m.draw(b, s, g * d)]
        caches = [m.draw(b, g, past, d), m.draw(b, g, past, d)] if past else [None, None]
        extra = attrs.pop("more", [])
        tables = [cos, sin] if rotary else [None, None]
        m.add("GroupQueryAttention", name, [*qkv, *caches, np.array(ends, np.int32), total(t), *tables, *extra], 3, constant=(6, 7, 8) if constant else (7, 8),
              num_heads=n, kv_num_heads=g, **attrs)

    return step


def group_query(m):
    step = grouped_steps(m, True)
    step("prompt", 4, 0, [3, 3], 4)
    step("prompt_rotary", 4, 0, [3, 3], 4, do_rotary=1)
    step("prompt_packed", 4, 0, [3, 3], 4, packed=True, do_rotary=1, rotary_interleaved=1)
    step("prompt_padded", 4, 0, [3, 1], 4, do_rotary=1)
    step("token", 1, 5, [5, 5], 6, do_rotary=1)
    step("token_ragged", 1, 5, [5, 3], 6, do_rotary=1, scale=0.4)
    step("token_buffer", 1, 8, [5, 5], 6, do_rotary=1)
    step("chunk", 3, 4, [6], 7, do_rotary=1, softcap=2.0)
    step("window", 6, 0, [5, 5], 6, local_window_size=2)
    step("window_token", 1, 6, [6, 6], 7, local_window_size=3)
    step("smooth", 3, 0, [2, 2], 3, smooth_softmax=1)
    step("places", 3, 0, [2], 3, do_rotary=1, more=[np.array([[3, 4, 5]], np.int64)])
    step("places_token", 1, 5, [5, 5], 6, do_rotary=1, more=[np.array([[2], [3]], np.int64)])
    step("bias", 3, 0, [2, 2], 3, more=[None, m.draw(1, 4, 3, 3)])
    step("sink", 3, 0, [2, 2], 3, more=[None, None, m.draw(4)])


def group_query_grown(m):
    step = grouped_steps(m, False)
    step("token", 1, 5, [5, 5], 6, do_rotary=1)
    step("token_ragged", 1, 5, [5, 3], 6, do_rotary=1, scale=0.4)
    step("token_buffer", 1, 8, [5, 5], 6, do_rotary=1)
    step("chunk", 3, 4, [6], 7, do_rotary=1, softcap=2.0)
    step("window_token", 1, 6, [6, 6], 7, local_window_size=3)


def nbits(m):
    def one(name, bits, block, k, n, zeros=None, bias=False, rows=(2,)):
        blocks = -(-k // block)
        w, scales = m.bytes(n, blocks, block * bits // 8), m.draw(n, blocks)
        z = {None: None, "packed": m.bytes(n, -(-blocks * bits // 8)), "float": np.abs(m.draw(n, blocks)) * 4}[zeros]
        m.add("MatMulNBits", name, [m.draw(*rows, k), w, scales, z, None, m.draw(n) if bias else None], constant=(1, 2, 3, 5),
              K=k, N=n, bits=bits, block_size=block)

    for block in (16, 32, 64, 128, 256):
        one(f"four_{block}", 4, block, 2 * block, 6)
        one(f"four_zero_{block}", 4, block, 3 * block, 5, zeros="packed")
    for block in (16, 32, 128):
        one(f"eight_{block}", 8, block, 2 * block, 4)
        one(f"eight_zero_{block}", 8, block, 2 * block, 4, zeros="packed")
    one("ragged", 4, 16, 40, 6, zeros="packed", bias=True, rows=(2, 3))
    one("float_zero", 4, 32, 64, 6, zeros="float", bias=True)
    data = m.bytes(6, 32)
    ids = m.rng.integers(0, 6, (2, 3)).astype(np.int64)
    m.add("GatherBlockQuantized", "gather", [data, ids, m.draw(6, 4)], constant=(0, 2), bits=4, block_size=16, gather_axis=0, quantize_axis=1)
    m.add("GatherBlockQuantized", "gather_zero", [data, ids, m.draw(6, 4), m.bytes(6, 2)], constant=(0, 2, 3), bits=4, block_size=16,
          gather_axis=0, quantize_axis=1)


def quantized(m):
    f = np.float32
    m.bytes_as_floats = True

    def scaled(dtype=np.uint8, shape=(2, 3, 4, 5), scale=0.05, zero=None):
        info = np.iinfo(dtype)
        zero = (info.min + info.max + 1) // 2 if zero is None else zero
        return [m.bytes(*shape, dtype=dtype), f(scale), np.array(zero, dtype)]

    for dtype, name in [(np.uint8, "u8"), (np.int8, "i8")]:
        zero = lambda v: np.array(v, dtype)
        m.add("QLinearAdd", f"add_{name}", [*scaled(dtype), *scaled(dtype, (4, 5), 0.03, 7), f(0.07), zero(11)], constant=(1, 2, 4, 5, 6, 7))
        m.add("QLinearMul", f"mul_{name}", [*scaled(dtype), *scaled(dtype, (4, 1), 0.03, 7), f(0.05), zero(11)], constant=(1, 2, 4, 5, 6, 7))
        m.add("QLinearSigmoid", f"sigmoid_{name}", [*scaled(dtype), f(1 / 256), zero(0)], constant=(1, 2, 3, 4))
        m.add("QLinearLeakyRelu", f"leaky_{name}", [*scaled(dtype), f(0.04), zero(9)], constant=(1, 2, 3, 4), alpha=0.2)
        m.add("QLinearGlobalAveragePool", f"global_{name}", [*scaled(dtype), f(0.004), zero(9)], constant=(1, 2, 3, 4))
        m.add("QLinearAveragePool", f"pool_{name}", [*scaled(dtype), f(0.04), zero(9)], constant=(1, 2, 3, 4), kernel_shape=[2, 2], pads=[1, 0, 0, 1])
        m.add("QLinearConcat", f"concat_{name}", [f(0.06), zero(5), *scaled(dtype), *scaled(dtype, (2, 1, 4, 5), 0.02, 3)],
              constant=(0, 1, 3, 4, 6, 7), axis=1)
        m.add("QLinearSoftmax", f"softmax_{name}", [*scaled(dtype, (3, 7)), f(1 / 256), zero(0 if name == "u8" else -128)], constant=(1, 2, 3, 4),
              axis=-1, opset=13)
        m.add("QLinearWhere", f"where_{name}", [m.rng.integers(0, 2, (3, 4)).astype(bool), *scaled(dtype, (3, 4)), *scaled(dtype, (4,), 0.02, 3),
              f(0.04), zero(2)], constant=(2, 3, 5, 6, 7, 8))
    m.add("QLinearGlobalAveragePool", "global_last", [*scaled(np.uint8, (2, 4, 5, 3)), f(0.004), np.uint8(9)], constant=(1, 2, 3, 4), channels_last=1)


def quantized_products(m):
    f = np.float32
    x = m.draw(2, 3, 16)
    for dtype, name in [(np.uint8, "u8"), (np.int8, "i8")]:
        w = m.weights(16, 6, dtype=dtype)
        m.add("DynamicQuantizeMatMul", f"dynamic_{name}", [x, w, f(0.02), np.array(5, dtype), m.draw(6)], constant=(1, 2, 3, 4))
        m.add("DynamicQuantizeMatMul", f"dynamic_columns_{name}", [x, w, np.abs(m.draw(6)) * f(0.01), m.bytes(6, dtype=dtype)], constant=(1, 2, 3))
        a = m.bytes(4, 16)
        m.add("MatMulIntegerToFloat", f"float_{name}", [a, w, f(0.02), f(0.03), np.uint8(120), np.array(4, dtype), m.draw(6)],
              constant=(1, 2, 3, 4, 5, 6))
        m.add("MatMulIntegerToFloat", f"float_columns_{name}", [a, w, f(0.02), np.abs(m.draw(6)) * f(0.01), None, m.bytes(6, dtype=dtype)],
              constant=(1, 2, 3, 5))
    m.add("DynamicQuantizeMatMul", "dynamic_zeros", [np.zeros((2, 16), f), w, f(0.02), np.int8(5), m.draw(6)], constant=(1, 2, 3, 4))
    m.add("QuantizeLinear", "quantize_u16", [m.draw(2, 3), f(0.001), np.uint16(300)], constant=(1, 2))
    m.add("DequantizeLinear", "dequantize_i16", [m.bytes(2, 3, dtype=np.int16), f(0.01), np.int16(7)], constant=(1, 2))
    a, b, c = m.bytes(4, 16), m.weights(6, 16), m.rng.integers(-500, 500, (6,)).astype(np.int32)
    head = [a, f(0.02), np.uint8(110), b, f(0.01), np.int8(3), c]
    m.add("QGemm", "gemm", head, constant=(1, 2, 3, 4, 5, 6), transB=1)
    m.add("QGemm", "gemm_bytes", [*head, f(0.05), np.uint8(100)], constant=(1, 2, 3, 4, 5, 6, 7, 8), transB=1)


def lstm(m):
    f = np.float32

    def one(name, steps, directions, outputs=3, lengths=None, state=False, peephole=False, bias=True, columns=False, **attrs):
        i, h, batch = 6, 5, 2
        w, r = m.weights(directions, i, 4 * h), m.weights(directions, h, 4 * h)
        scale = lambda: np.abs(m.draw(directions, 4 * h)) * f(0.005) if columns else np.abs(m.draw(directions)) * f(0.01) + f(0.002)
        zero = np.zeros((directions, 4 * h) if columns else directions, np.int8)
        states = [m.draw(directions, batch, h), m.draw(directions, batch, h)] if state else [None, None]
        m.add("DynamicQuantizeLSTM", name, [m.draw(steps, batch, i), w, r, m.draw(directions, 8 * h) * f(0.3) if bias else None,
              None if lengths is None else np.array(lengths, np.int32), *states, m.draw(directions, 3 * h) if peephole else None,
              scale(), zero, scale(), zero], outputs, constant=(1, 2, 3, 7, 8, 9, 10, 11), hidden_size=h, **attrs)

    one("few", 3, 1)
    one("many", 12, 1, state=True)
    one("both", 4, 2, direction="bidirectional")
    one("both_many", 11, 2, direction="bidirectional", state=True)
    one("back", 10, 1, direction="reverse", bias=False)
    one("columns", 4, 1, columns=True, clip=0.5)
    one("peephole", 3, 1, peephole=True)
    one("ragged", 4, 1, lengths=[2, 4])


def sequences(m):
    """Sequences and optionals, whose lengths are known when a model is imported."""
    node = lambda op, given, results, **attrs: m.nodes.append(helper.make_node(op, given, results, **attrs))

    def given(name, x):
        x = np.asarray(x)
        m.inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
        m.data[name] = x

    def number(name, value):
        m.inits.append(numpy_helper.from_array(np.array(value, np.int64), name))

    given("x", m.draw(5, 3))
    given("z", m.draw(2, 3))
    for name, value in [("m2", -2), ("m1", -1), ("zero", 0), ("one", 1), ("two", 2), ("five", 5), ("sizes", [1, 3, 1])]:
        number(name, value)
    # Parts of two rows, of the sizes that are given, and rows.
    node("SplitToSequence", ["x", "two"], ["pairs"], axis=0)
    node("SplitToSequence", ["x", "sizes"], ["parts"], axis=0)
    node("SplitToSequence", ["x"], ["rows"], axis=0, keepdims=0)
    node("SplitToSequence", ["x"], ["columns"], axis=-1)
    node("ConcatFromSequence", ["rows"], ["stacked"], axis=1, new_axis=1)
    node("ConcatFromSequence", ["columns"], ["joined"], axis=1)
    node("SequenceLength", ["parts"], ["length"])
    # The end is the last place; negative places count from the end.
    node("SequenceInsert", ["pairs", "z"], ["longer"])
    node("SequenceInsert", ["longer", "z", "m2"], ["longest"])
    node("ConcatFromSequence", ["longest"], ["inserted"], axis=0)
    node("SequenceErase", ["longest", "one"], ["erased"])
    node("SequenceErase", ["erased"], ["shorter"])
    node("SequenceAt", ["shorter", "m1"], ["last"])
    node("SequenceConstruct", ["z", "z", "x"], ["made"])
    node("SequenceAt", ["made", "two"], ["third"])
    node("SequenceEmpty", [], ["nothing"])
    node("SequenceInsert", ["nothing", "z"], ["single"])
    node("ConcatFromSequence", ["single"], ["alone"], axis=0)
    # A loop that carries a sequence: element i of the rows and the place i, one after the other.
    info = lambda name, kind: helper.make_tensor_value_info(name, kind, [])
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    carried = lambda name: helper.make_value_info(name, helper.make_sequence_type_proto(tensor))
    body = helper.make_graph(
        [
            helper.make_node("SequenceAt", ["rows", "i"], ["row"]),
            helper.make_node("Cast", ["i"], ["place"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["row", "place"], ["scaled"]),
            helper.make_node("SequenceInsert", ["before", "scaled"], ["after"]),
            helper.make_node("Identity", ["go"], ["on"]),
        ],
        "body",
        [info("i", TensorProto.INT64), info("go", TensorProto.BOOL), carried("before")],
        [info("on", TensorProto.BOOL), carried("after")],
    )
    node("Loop", ["five", "", "nothing"], ["collected"], body=body)
    node("ConcatFromSequence", ["collected"], ["looped"], axis=0)
    # What is there, and what is not.
    node("Optional", ["z"], ["some"])
    node("OptionalHasElement", ["some"], ["there"])
    node("OptionalGetElement", ["some"], ["element"])
    node("Relu", ["element"], ["positive"])
    m.outputs += ["stacked", "joined", "length", "inserted", "last", "third", "alone", "looped", "there", "positive"]


def packed_weights(m):
    """DequantizeLinear of constants in front of products: blocks, channels and whole tensors, in both layouts."""
    import ml_dtypes

    m.opset, f = 21, np.float32
    ranges = {"i4": (ml_dtypes.int4, -8, 8), "u4": (ml_dtypes.uint4, 0, 16)}
    ranges |= {"i8": (np.int8, -128, 128), "u8": (np.uint8, 0, 256)}
    k, n, block = 64, 48, 16
    for name, (dtype, low, high) in ranges.items():
        draw = lambda *shape: m.rng.integers(low, high, shape).astype(dtype)
        scale = lambda *shape: np.abs(m.draw(*shape)) * f(0.1)
        for layout in ("kn", "nk"):
            axis, shape = (0, (k, n)) if layout == "kn" else (1, (n, k))
            blocks = tuple(-(-size // block) if i == axis else size for i, size in enumerate(shape))
            forms = {"block": (blocks, dict(axis=axis, block_size=block)), "channel": ((n,), dict(axis=1 - axis))}
            forms["tensor"] = ((), {})
            for form, (of, attrs) in forms.items():
                for rows, zero in ((1, True), (3, False)):
                    variant = f"{name}_{layout}_{form}_{rows}"
                    inputs = [draw(*shape), scale(*of)] + ([draw(*of)] if zero else [])
                    m.add("DequantizeLinear", f"{variant}_w", inputs, constant=(0, 1, 2), domain="", **attrs)
                    weights = m.outputs.pop()
                    x = f"{variant}_x"
                    m.data[x] = m.draw(rows, k)
                    m.inputs.append(helper.make_tensor_value_info(x, TensorProto.FLOAT, (rows, k)))
                    kind, extra = ("MatMul", {}) if layout == "kn" else ("Gemm", dict(transB=1))
                    m.nodes.append(helper.make_node(kind, [x, weights], [variant], name=variant, **extra))
                    m.outputs.append(variant)


FAMILIES = [norms, embeddings, activations, products, attention, rotary, group_query, group_query_grown, nbits, packed_weights, quantized, quantized_products, lstm, sequences]


def main():
    folder, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    for family in FAMILIES:
        name = family.__name__
        if wanted and name not in wanted:
            continue
        model = Model(name)
        family(model)
        results = model.run()
        onnx.save(model.build(), folder / f"{name}.onnx")
        np.savez_compressed(folder / f"{name}.in.npz", **model.data)
        np.savez_compressed(folder / f"{name}.out.npz", **results)
        print(f"{name}: {len(results)} results")


if __name__ == "__main__":
    main()
