# Gradients of nodes that read values whose rank inference has lost: recovered from the reader, or not needed.
"""Tests of gradgen.engine.ranks, and of rules that read the rank at run time."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import gradgen
from gradgen.differences import jacobian_fd
from gradgen.engine.inference import infer_shapes
from gradgen.engine.prepare import infer
from gradgen.engine.protos import imports, scopes
from gradgen.engine.ranks import recover_ranks
from gradgen.engine.registry import registered
from gradgen.evaluate import Evaluator

RNG = np.random.default_rng(4)


def lost(op, shapes, lose, result, opset=21):
    """A float64 model of one node, called with `op` as the text `Name <attributes> (operands)`.

    The operands in `lose` pass a reduction over axes that are an input, behind which nothing is known of the shape.
    """
    declared = [
        f"double[{','.join(map(str, [*shape, 1] if name in lose else shape))}] {name}_in"
        for name, shape in shapes.items()
    ]
    reads = "".join(
        f"{n} = ReduceSum <keepdims = 0> ({n}_in, axes) " if n in lose else f"{n} = Identity({n}_in) " for n in shapes
    )
    proto = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : {opset}, "ai.onnx.ml" : 5, "com.microsoft" : 1]> '
        f"g ({', '.join(declared)}, int64[1] axes) => ({result} y) {{ {reads} y = {op} }}"
    )
    feeds = {f"{n}_in": RNG.uniform(-1, 1, [*shape, 1] if n in lose else shape) for n, shape in shapes.items()}
    return proto, {**feeds, "axes": np.array([-1])}


def check(proto, feeds, tolerance=1e-6):
    wrt = [name for name in feeds if name != "axes"]
    derived = gradgen.vjp(proto, wrt=wrt)
    onnx.checker.check_model(derived, full_check=True)
    run = Evaluator(proto)
    outputs = run(feeds)
    cotangents = {name: RNG.standard_normal(value.shape) for name, value in outputs.items()}
    found = Evaluator(derived)({**feeds, **{f"grad_{name}": ct for name, ct in cotangents.items()}})
    for name in wrt:
        want, _, kinks = jacobian_fd(run, feeds, name, cotangents)
        assert not kinks.any()
        np.testing.assert_allclose(
            found[f"grad_{name}"], want, rtol=tolerance, atol=tolerance * np.abs(want).max(initial=0)
        )


CONVOLUTIONS = [
    "Conv (x, w)",
    "Conv <strides = [2]> (x, w)",
    "Conv <kernel_shape = [3], strides = [2], pads = [1, 0]> (x, w)",
    'Conv <auto_pad = "SAME_UPPER"> (x, w)',
    "ConvTranspose (x, w)",
    "ConvTranspose <strides = [2], output_shape = [12]> (x, w)",
    "ConvTranspose <strides = [2], output_shape = [12], kernel_shape = [3]> (x, w)",
    "ConvTranspose <kernel_shape = [3], strides = [2], output_padding = [1]> (x, w)",
]


@pytest.mark.parametrize("lose", ["x", "w", "xw"])
@pytest.mark.parametrize("op", CONVOLUTIONS)
def test_convolutions(op, lose):
    check(*lost(op, {"x": [2, 3, 6], "w": [3, 3, 3]}, lose, "double[p, q, r]"))


def test_a_convolution_with_one_element():
    check(*lost("Conv <kernel_shape = [1]> (x, w)", {"x": [2, 3, 5], "w": [4, 3, 1]}, "w", "double[p, q, r]"))


RECURRENT = {"x": [3, 2, 3], "w": [1, 6, 3], "r": [1, 6, 2], "b": [1, 12], "h": [1, 2, 2]}


@pytest.mark.parametrize("lose", [*RECURRENT, "xwrbh"])
@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_layers(op, gates, lose):
    shapes = {**RECURRENT, "w": [1, 2 * gates, 3], "r": [1, 2 * gates, 2], "b": [1, 4 * gates]}
    check(*lost(f"{op} <hidden_size = 2> (x, w, r, b, , h)", shapes, lose, "double[p, q, r, s]"))


@pytest.mark.parametrize("lose", ["x", "s", "b"])
def test_the_scale_and_bias_of_a_channel(lose):
    shapes = {"x": [2, 3, 4], "s": [3], "b": [3]}
    check(*lost("InstanceNormalization (x, s, b)", shapes, lose, "double[p, q, r]"))


def test_a_body_states_the_element_type_where_the_rank_is_open():
    """The rank of a convolution with a kernel of unknown size is lost; what reshapes its result states it again."""
    text = """g (float[2, 2, 5] x, float[m, c, k] f, int64[3] s) => (float[p, q, r] y)
        { c = com.microsoft.FusedConv <activation = "Relu"> (x, f) a = Reshape (c, s) y = Sin (a) }"""
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> {text}')
    known = {v.name: v.type.tensor_type for v in infer(model, registered()).graph.value_info}
    assert known["c"].elem_type == known["a"].elem_type == onnx.TensorProto.FLOAT
    assert len(known["a"].shape.dim) == 3


@pytest.mark.parametrize("lose", ["a", "b", "ab"])
@pytest.mark.parametrize(
    ("a", "b", "rank"),
    [([3], [3], 0), ([3], [3, 2], 1), ([2, 3], [3], 1), ([2, 3], [3, 4], 2), ([3], [2, 3, 4], 2), ([2, 2, 3], [3], 2),
     ([2, 1, 2, 3], [4, 3, 2], 4), ([2, 3], [2, 3, 4], 3), ([2, 0, 3], [3, 4], 3)],
)  # fmt: skip
def test_products(a, b, rank, lose):
    result = f"double[{','.join('pqrs'[:rank])}]" if rank else "double"
    check(*lost("MatMul (a, b)", {"a": a, "b": b}, lose, result))


@pytest.mark.parametrize(
    ("op", "shapes", "lose", "result", "opset"),
    [
        ("AveragePool <kernel_shape = [2, 2]> (x)", {"x": [1, 2, 4, 3]}, "x", "double[p, q, r, s]", 21),
        ("Gemm (x, w)", {"x": [2, 3], "w": [3, 2]}, "xw", "double[p, q]", 21),
        ("Concat <axis = 1> (x, w)", {"x": [2, 3], "w": [2, 2]}, "x", "double[p, q]", 21),
        ("Det (x)", {"x": [2, 3, 3]}, "x", "double[p]", 21),
        ("TensorScatter (x, w)", {"x": [2, 4, 3], "w": [2, 2, 3]}, "w", "double[p, q, r]", 24),
    ],
)
def test_other_ops(op, shapes, lose, result, opset):
    check(*lost(op, shapes, lose, result, opset))


@pytest.mark.parametrize(
    "op",
    [
        "LinearRegressor <coefficients = [1.0, -0.5, 0.25, 2.0], targets = 2>",
        "SVMRegressor <coefficients = [1.5, -0.5], rho = [0.25]>",
    ],
)
def test_linear_models(op):
    """Their kernels compute in float32; the gradient of a linear map is its matrix."""
    proto, feeds = lost(f"ai.onnx.ml.{op} (x)", {"x": [3, 2]}, "x", "double[p, q]")
    text = onnx.printer.to_text(proto).replace("double", "float")
    derived = gradgen.vjp(parser.parse_model(text), wrt=["x_in"])
    ct = RNG.standard_normal((3, 2 if "targets" in op else 1)).astype(np.float32)
    found = Evaluator(derived, strict=True)({**feeds, "x_in": feeds["x_in"].astype(np.float32), "grad_y": ct})
    matrix = np.array([[1, -0.5], [0.25, 2]] if "targets" in op else [[1.5, -0.5]])
    np.testing.assert_allclose(found["grad_x_in"][..., 0], ct @ matrix, rtol=1e-6)


def test_the_value_of_an_attention():
    proto, feeds = lost(
        "com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v)",
        {"q": [1, 2, 4], "k": [1, 3, 4], "v": [1, 3, 4]}, "v", "double[p, q, r]",
    )  # fmt: skip
    model = parser.parse_model(onnx.printer.to_text(proto).replace("double", "float"))
    single = {n: a.astype(np.float32) if a.dtype.kind == "f" else a for n, a in feeds.items()}
    ct = RNG.standard_normal((1, 2, 4)).astype(np.float32)
    found = Evaluator(gradgen.vjp(model, wrt=["v_in"]), strict=True)({**single, "grad_y": ct})
    q, k, c = (x.reshape(-1, 2, 2).transpose(1, 0, 2) for x in (feeds["q_in"], feeds["k_in"], ct))
    weights = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(2))
    weights /= weights.sum(-1, keepdims=True)
    want = (weights.transpose(0, 2, 1) @ c).transpose(1, 0, 2).reshape(1, 3, 4, 1)
    np.testing.assert_allclose(found["grad_v_in"], want, rtol=1e-4, atol=1e-5)


def ranks_of(text, opset=21):
    proto = infer_shapes(parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}'))
    while recover_ranks(list(scopes(proto.graph)), imports(proto)):
        proto = infer_shapes(proto)
    return {
        v.name: len(v.type.tensor_type.shape.dim)
        for v in proto.graph.value_info
        if v.type.tensor_type.HasField("shape")
    }


def test_a_declared_result_says_the_rank_of_what_it_is_made_of():
    known = ranks_of(
        "g (float[2,3,4] x, int64[n] a) => (float[p, q] y) { l = ReduceSum <keepdims=0> (x, a) y = Exp(l) }"
    )
    assert known == {"l": 2}


def test_a_node_that_takes_any_rank_says_nothing():
    text = "g (float[2,3] x, int64[n] a) => (float[p] y, int64[m] s) "
    assert "l" not in ranks_of(text + "{ l = ReduceSum <keepdims=0> (x, a) s = Shape(l) y = Flatten(l) }")


def test_a_branch_says_nothing_of_a_value_outside():
    text = """g (bool c, float[2,3,4] x, float[3,4] w, int64[n] a) => (float[p, q] y) {
        l = ReduceSum <keepdims=0> (x, a)
        y = If(c) < then_branch = t () => (float[p, q] t1) { t1 = Gemm(l, w) },
                    else_branch = e () => (float[p, q] e1) { e1 = Identity(w) } > }"""
    assert "l" not in ranks_of(text)


def test_the_parts_of_a_split_at_sizes_of_run_time_keep_the_rank_of_the_whole():
    """The body splits the bias at the widths of its operands."""
    sizes = {"q": [1, 2, 4], "k": [1, 3, 4], "v": [1, 3, 6], "b": [14]}
    declared = ", ".join(f"float[{', '.join(f'{n}{i}' for i in range(len(s)))}] {n}" for n, s in sizes.items())
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]> g ({declared}) => (float[r, s, t] y) '
        "{ y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, b) }"
    )
    feeds = {n: RNG.standard_normal(s).astype(np.float32) for n, s in sizes.items()}
    ct = RNG.standard_normal((1, 2, 6)).astype(np.float32)
    found = Evaluator(gradgen.vjp(model, wrt=["b"]), strict=True)({**feeds, "grad_y": ct})["grad_b"]
    np.testing.assert_allclose(found[8:], ct.sum((0, 1)), rtol=1e-4)  # every row of the weights adds up to 1
    np.testing.assert_allclose(found[4:8], 0, atol=1e-5)  # a shift of all keys moves no weight


def test_the_products_of_queries_and_keys_have_four_dimensions():
    text = """g (float[2,2,3,4,1] x, int64[n] a) => (float[p,q,r,s] y, float[t,u,v,w] z) {
        l = ReduceSum <keepdims = 0> (x, a)
        y, k, v, products = Attention <qk_matmul_output_mode = 1> (l, l, l)
        z = Exp(products) }"""
    assert ranks_of(text, opset=24)["products"] == 4


@pytest.mark.parametrize("loss", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
@pytest.mark.parametrize("scores", ["Identity(x)", "Reshape(x, a)"])
def test_labels_of_a_loss(loss, scores):
    proto = parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (double[3,4] x, int64[3] t, int64[n] a, int64[m] b) => (double y) {{
            s = {scores}
            l = Reshape(t, b)
            y = {loss}(s, l) }}""")
    x, labels, ct = RNG.standard_normal((3, 4)), np.array([0, 2, 1]), np.array(1.5)
    feeds = {"x": x, "t": labels, "a": np.array([3, 4]), "b": np.array([3]), "grad_y": ct}
    run = Evaluator(gradgen.vjp(proto, wrt=["x"]))
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True) if loss.startswith("Soft") else 0
    want = (p - np.eye(4)[labels]) * ct / 3
    np.testing.assert_allclose(run({n: v for n, v in feeds.items() if n in run.input_names})["grad_x"], want, rtol=1e-6)


@pytest.mark.parametrize("operands", ["x, l, l", "x, x, l", "l, x, x", "l, l, x"])
def test_the_products_have_four_dimensions_whichever_rank_is_lost(operands):
    """Where that of the values is, onnx states one dimension, or none."""
    proto = parser.parse_model(f"""<ir_version: 11, opset_import: ["" : 24]>
        g (float[1,2,3,4] x, float[1,2,3,4,1] h, int64[n] a) => (float[t,u,v,w] z) {{
            l = ReduceSum <keepdims = 0> (h, a)
            y, , , products = Attention <qk_matmul_output_mode = 1, softcap = 1.0> ({operands})
            z = Exp(products) }}""")
    feeds = {"x": RNG.standard_normal((1, 2, 3, 4)), "h": RNG.standard_normal((1, 2, 3, 4, 1))}
    feeds = {n: v.astype(np.float32) for n, v in feeds.items()} | {"a": np.array([-1])}
    ct = RNG.standard_normal((1, 2, 3, 3)).astype(np.float32)
    queries, keys = (feeds["x"] if n == "x" else feeds["h"][..., 0] for n in operands.split(", ")[:2])
    found = Evaluator(gradgen.vjp(proto, wrt=["x", "h"]), strict=True)({**feeds, "grad_z": ct})
    products = np.tanh(queries @ keys.transpose(0, 1, 3, 2) / 2)
    scores = ct * np.exp(products) * (1 - products**2) / 2
    want = {"x": np.zeros_like(queries), "h": np.zeros_like(queries)}
    for name, part in zip(
        operands.split(", ")[:2], (scores @ keys, scores.transpose(0, 1, 3, 2) @ queries), strict=True
    ):
        want["x" if name == "x" else "h"] += part
    np.testing.assert_allclose(found["grad_x"], want["x"], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["grad_h"][..., 0], want["h"], rtol=1e-4, atol=1e-5)


def test_a_rank_that_inference_gets_wrong_is_refused_in_words():
    """onnx forgets the axis along which output_shape cuts: a gradient model that states the shape does not load."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[1,2,4,5] x, float[2,2,5,5] w) => (float[p, q] z) {
            y = ConvTranspose <output_shape = [8, 4], strides = [2, 1]> (x, w)
            z = Flatten(y) }""")
    with pytest.raises(gradgen.GradientError, match="3 dimensions where there are 4.*state the pads"):
        gradgen.vjp(proto)


@pytest.mark.parametrize(
    ("declared", "node", "rank"),
    [
        ("float[n,c,h,w] x, float[m,c,i,j] f", "y = Conv (x, f)", 4),
        ("float[n,c,h] x, float[c,m,i] f", "y = ConvTranspose (x, f)", 3),
        ("float[n,c,h,w] x, float[m,c,i,j] f, float[n,o,p,q] d", "y = DeformConv (x, f, d)", 4),
        ("float[n,c,h,1] x, float[n,i,j,2] f, int64[k] a", "l = ReduceSum (x, a) y = GridSample (l, f)", 4),
        ("float[n,t] x, float[k] f, int64 s", "y = STFT (x, s, f)", 4),
        ("float[n,2,3] x, int64[4] f, int64[k] a", "l = ReduceSum (x, a) y = AffineGrid (l, f)", 4),
        ("float[n,l,e] x, float[m,c,1] f, int64[k] a", "l1 = ReduceSum (x, a) y = Conv (l1, f)", 3),
    ],
)
def test_inference_learns_the_rank_of_a_result_from_any_operand(declared, node, rank):
    """What onnx leaves open where sizes are unknown, or where the first operand's rank is lost."""
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({declared}) => (float z) {{ {node} z = ReduceSum <keepdims = 0> (y) }}'
    )
    known = {v.name: v.type.tensor_type for v in infer(model, registered()).graph.value_info}
    assert known["y"].HasField("shape") and len(known["y"].shape.dim) == rank


def test_a_rank_that_no_branch_is_for_fails_at_run_time():
    """Of a convolution whose operands' rank is lost, gradients are written for one to three axes of space."""
    proto = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (double[1,1,2,2,2,2,1] x, double[1,1,1,1,1,1,1] w, int64[n] a) => (double z) {
            b = ReduceSum <keepdims = 0> (x, a) f = ReduceSum <keepdims = 0> (w, a)
            y = Conv (b, f) z = ReduceSum <keepdims = 0> (y) }""")
    feeds = {"x": RNG.standard_normal((1, 1, 2, 2, 2, 2, 1)), "w": np.ones((1,) * 7), "a": np.array([-1])}
    with pytest.raises(ValueError, match=r"[Rr]eshape"):
        Evaluator(gradgen.grad(proto, wrt=["x"]))(feeds)


@pytest.mark.parametrize(
    ("op", "shapes", "opset"),
    [
        ("Conv (x, w)", {"x": [1, 2, 4, 3], "w": [2, 2, 2, 2]}, 21),
        ("GridSample (x, w)", {"x": [1, 1, 3, 4], "w": [1, 2, 1, 2]}, 21),
        ("Attention <q_num_heads = 2, kv_num_heads = 2> (x, w, w)", {"x": [1, 2, 4], "w": [1, 3, 4]}, 23),
        ('Einsum <equation = "...ij,...jk->...ik"> (x, w)', {"x": [2, 2, 3], "w": [2, 3, 1]}, 21),
        ("BatchNormalization (x, w, w, w, v)", {"x": [2, 2, 3], "w": [2], "v": [2]}, 21),
    ],
)
def test_a_rank_of_run_time_has_a_second_derivative(op, shapes, opset):
    """The gradient of the gradient, against differences of the gradient."""
    text = f"double[{','.join('pqrs'[: len(shapes['x'])])}]"
    proto, feeds = lost(op, shapes, list(shapes), text, opset)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    feeds = {n: np.abs(v) / 2 + 0.1 if v.dtype.kind == "f" else v for n, v in feeds.items()}
    first = gradgen.vjp(proto, wrt=["x_in", "w_in"])
    feeds["grad_y"] = RNG.standard_normal(Evaluator(proto)(feeds)["y"].shape)
    check_second = gradgen.vjp(first, wrt=["x_in", "w_in", "grad_y"], of=["grad_x_in", "grad_w_in"])
    run = Evaluator(first)
    cotangents = {n: RNG.standard_normal(feeds[n.removeprefix("grad_")].shape) for n in ("grad_x_in", "grad_w_in")}
    names = [i.name for i in check_second.graph.input][-2:]
    found = Evaluator(check_second)({**feeds, **dict(zip(names, cotangents.values(), strict=True))})
    results = [o.name for o in check_second.graph.output][-3:]
    for name, result in zip(("x_in", "w_in", "grad_y"), results, strict=True):
        want, _, kinks = jacobian_fd(run, feeds, name, cotangents)
        assert not kinks.any()
        np.testing.assert_allclose(found[result], want, rtol=1e-5, atol=1e-5 * np.abs(want).max(initial=1e-3))
