"""Batches of rows as matrices, on what vjp writes: values of primal and gradients, what nodes are left, what stays."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from text_models import model

import gradgen
from gradgen.evaluate import Evaluator
from gradgen.rules.row_regions import ALONG, ELEMENTWISE, REDUCTIONS


def checked(text: str, wrt: list[str], **sizes: int) -> tuple[Counter[str], onnx.ModelProto]:
    """Op types of the vjp of a model and that, whose outputs are the primal's and whose gradients are differences'."""
    primal = model(text)
    result = gradgen.vjp(primal, wrt=wrt)
    onnx.checker.check_model(result, full_check=True)
    rng = np.random.default_rng(1)
    feeds = {}
    for value in primal.graph.input:
        tensor = value.type.tensor_type
        shape = [d.dim_value or sizes[d.dim_param] for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[value.name] = rng.uniform(0.1, 0.6, shape).astype(dtype)
    primary = Evaluator(primal)(feeds)
    cts = {n: rng.standard_normal(v.shape).astype(v.dtype) for n, v in primary.items()}
    found = Evaluator(result)({**feeds, **{f"grad_{n}": ct for n, ct in cts.items()}})
    for name, value in primary.items():
        assert found[name].shape == value.shape
        np.testing.assert_allclose(found[name], value, rtol=1e-13)
    for name in wrt:
        direction, step = rng.standard_normal(feeds[name].shape), 1e-5
        ends = [Evaluator(primal)({**feeds, name: feeds[name] + s * step * direction}) for s in (1, -1)]
        quotient = sum(float(np.vdot(cts[n], ends[0][n] - ends[1][n])) for n in cts) / (2 * step)
        assert found[f"grad_{name}"].shape == feeds[name].shape
        np.testing.assert_allclose(np.vdot(found[f"grad_{name}"], direction), quotient, rtol=1e-7)
    return Counter(n.op_type for n in result.graph.node), result


@pytest.mark.parametrize(("batch", "sizes"), [("2,3", {}), ("N,3", {"N": 2}), ("2,N", {"N": 3}), ("2,1,3", {})])
def test_layers_have_one_view_for_each_input_and_output(batch, sizes):
    kinds, _ = checked(
        f"g (double[{batch},4] x, double[4,5] w, double[5] b, double[5,4] v, double[4] s) => (double[{batch},4] y) "
        "{ p = MatMul(x, w)\n a = Add(p, b)\n t = Tanh(a)\n q = MatMul(t, v)\n r = Add(q, x)\n"
        " y = LayerNormalization<axis=-1>(r, s) }",
        ["x", "w", "b", "v", "s"], **sizes,
    )  # fmt: skip
    assert kinds["Flatten"] == 2 and kinds["Reshape"] == 2 and kinds["MatMul"] == 1, "x and ct, y and its gradient"


def test_an_open_number_of_rows_that_may_be_none():
    text = (
        "g (double[N,3,4] x, double[4,4] w) => (double[N,3,4] y) { p = MatMul(x, w)\n t = Exp(p)\n y = MatMul(t, w) }"
    )
    result = gradgen.vjp(model(text), wrt=["x", "w"])
    empty = np.zeros((0, 3, 4))
    found = Evaluator(result)({"x": empty, "w": np.eye(4), "grad_y": empty})
    assert found["y"].shape == found["grad_x"].shape == (0, 3, 4) and not found["grad_w"].any()


# What stands between two products, and whether it is done on matrices: then no MatMul of a batch is left.
BETWEEN = [
    ("a = Softmax<axis=2>(p)\n b = Mul(a, p)", True),
    ("i = Constant<value_ints=[2]>()\n m = ReduceMean<keepdims=1>(p, i)\n b = Sub(p, m)", True),
    ("i = Constant<value_ints=[-1]>()\n m = ReduceMax<keepdims=1>(p, i)\n e = Sub(p, m)\n b = Exp(e)", True),
    ("l, r = Split<axis=2, num_outputs=2>(p)\n c = Concat<axis=-1>(r, l)\n b = Mul(c, p)", True),
    ("k = LessOrEqual(p, x)\n b = Where(k, p, x)", True),
    ("b = LpNormalization<axis=-1>(p)", True),
    ("i = Constant<value_ints=[0, 1]>()\n m = ReduceSum<keepdims=0>(p, i)\n b = Mul(p, m)", True),
    ("i = Constant<value_ints=[1, 0]>()\n m = ReduceMean<keepdims=0>(p, i)\n b = Mul(p, m)", True),
    ("i = Constant<value_ints=[1]>()\n m = ReduceMean<keepdims=1>(p, i)\n b = Mul(p, m)", False),
    ("i = Constant<value_ints=[0, 2, 2, 2]>()\n h = Reshape(p, i)\n t = Transpose<perm=[0, 2, 1, 3]>(h)\n"
     " e = Exp(t)\n j = Constant<value_ints=[0, -1, 4]>()\n f = Reshape(e, j)\n b = Mul(f, p)", True),
    ("f = Flatten<axis=2>(p)\n e = Exp(f)\n i = Constant<value_ints=[2, 2, 4]>()\n b = Reshape(e, i)", True),
    ("f = Flatten<axis=1>(p)\n e = Exp(f)\n i = Constant<value_ints=[2, 2, 4]>()\n b = Reshape(e, i)", True),
    ("i = Constant<value_ints=[0]>()\n u = Unsqueeze(p, i)\n e = Exp(u)\n b = Squeeze(e, i)", True),
    ("b = Mul(p, p)", True),
    ("t = Transpose<perm=[1, 0, 2]>(p)\n e = Exp(t)\n b = Mul(e, p)", True),
]  # fmt: skip


@pytest.mark.parametrize(("nodes", "rows"), BETWEEN)
def test_what_stands_between_two_products(nodes, rows):
    _, result = checked(
        f"g (double[2,2,4] x, double[4,4] w, double[4] bias) => (double[2,2,4] y) "
        f"{{ p0 = MatMul(x, w)\n p = Add(p0, bias)\n {nodes}\n q = MatMul(b, w)\n y = Add(q, bias) }}",
        ["x", "w"],
    )
    products = [n for n in result.graph.node if n.op_type == "MatMul"]
    assert not products if rows else products


ROWWISE = [*sorted(ELEMENTWISE), *sorted(REDUCTIONS), *ALONG]
SPECIAL = {
    "Cast": "o = Cast<to=1>(x)", "BitShift": 'o = BitShift<direction="LEFT">(u, u)', "BitwiseNot": "o = BitwiseNot(u)",
    "Not": "o = Not(k)", "Where": "o = Where(k, x, s)", "Split": "o, o2 = Split<axis=-1, num_outputs=2>(x)",
    "Concat": "o = Concat<axis=-1>(x, x)", "LayerNormalization": "o = LayerNormalization(x, r)",
    "RMSNormalization": "o = RMSNormalization(x, r)", "Clip": "o = Clip(x, l, h)", "Mean": "o = Mean(x, s)",
    "IsNaN": "o = IsNaN(x)",
}  # fmt: skip
SPECIAL |= {op: f"o = {op}(u, u)" for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")}
SPECIAL |= {op: f"o = {op}(k, k)" for op in ("And", "Or", "Xor")}
SPECIAL |= {op: f"i = Constant<value_ints=[-1]>()\n o = {op}<keepdims=1>(x, i)" for op in REDUCTIONS}
PAIRS = {
    "Add",
    "Div",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mul",
    "Pow",
    "Sub",
    "Sum",
}


@pytest.mark.parametrize("op_type", ROWWISE)
def test_what_treats_each_row_alone(op_type):
    """An op gives a matrix of rows the rows of what it gives a batch of them: the claim of row_regions about it."""
    line = SPECIAL.get(op_type, f"o = {op_type}(x, s)" if op_type in PAIRS else f"o = {op_type}(x)")
    if op_type == "Mod":
        line = "o = Mod<fmod=1>(x, s)"
    newest = op_type in ("Swish", "RMSNormalization")
    found = []
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.uniform(0.1, 0.9, (2, 3, 4)) + (op_type == "Acosh"), "s": rng.uniform(0.1, 0.9, (2, 3, 4)),
        "u": rng.integers(0, 5, (2, 3, 4)).astype(np.uint8), "k": rng.random((2, 3, 4)) < 0.5, "r": rng.random(4),
        "l": np.asarray(0.2), "h": np.asarray(0.8),
    }  # fmt: skip
    for batch in ((2, 3), (6,)):
        sizes = ",".join(map(str, (*batch, 4)))
        proto = onnx.parser.parse_model(
            f'<ir_version: 10, opset_import: ["" : {24 if newest else 21}]> g (double[{sizes}] x, double[{sizes}] s, '
            f"uint8[{sizes}] u, bool[{sizes}] k, double[4] r, double l, double h) => (o) {{ {line} }}"
        )
        given = {n: a.reshape(*batch, 4) if a.ndim == 3 else a for n, a in feeds.items()}
        (value,) = ReferenceEvaluator(proto).run(None, given)
        found.append(np.asarray(value))
    assert found[1].shape == (6, found[0].shape[-1])
    np.testing.assert_array_equal(found[0].reshape(found[1].shape), found[1])


@pytest.mark.parametrize("shape", ["1,4", "2,4", "2,2,4", "1,1,4", "2,1", "1", "2,2,1", "1,2,1"])
def test_what_is_broadcast_keeps_what_it_is_broadcast_along(shape):
    checked(
        f"g (double[2,2,4] x, double[4,4] w, double[{shape}] b) => (double[2,2,4] y) "
        "{ p = MatMul(x, w)\n a = Add(p, b)\n t = Tanh(a)\n q = MatMul(t, w)\n y = Mul(q, b) }",
        ["x", "w", "b"],
    )


def test_what_lies_between_can_be_an_output_too():
    kinds, _ = checked(
        "g (double[2,3,4] x, double[4,5] w, double[5] b, double[5,4] v) => (double[2,3,5] p, double[2,3,5] a, "
        "double[2,3,5] t, double[2,3,4] y, double[6,5] f) "
        "{ p = MatMul(x, w)\n a = Add(p, b)\n t = Tanh(a)\n f = Flatten<axis=2>(t)\n y = MatMul(t, v) }",
        ["x", "w", "b", "v"],
    )  # fmt: skip
    assert kinds["Gemm"] == 4 and kinds["Tanh"] == 1, "p and a are of products apart, as both are outputs"


def test_what_a_branch_captures_keeps_its_axes():
    checked(
        "g (double[2,3,4] x, double[4,4] w, bool c) => (double[2,3,4] y) { p = MatMul(x, w)\n t = Tanh(p)\n"
        " k = If (c) <then_branch = g1 () => (double[2,3,4] o) { o = Transpose<perm=[0,1,2]>(t) },"
        " else_branch = g2 () => (double[2,3,4] z) { z = Mul(t, t) }>\n q = MatMul(t, w)\n y = Add(q, k) }",
        ["x", "w"],
    )


def test_weights_that_are_stored_transposed_are_read_so():
    kinds, _ = checked(
        "g (double[2,3,4] x, double[5,4] w, double[5] b) => (double[2,3,5] y) "
        "{ t = Transpose<perm=[1,0]>(w)\n p = MatMul(x, t)\n a = Add(b, p)\n y = Tanh(a) }",
        ["x", "w", "b"],
    )
    assert kinds["Transpose"] == 0 and kinds["MatMul"] == 0


def test_two_open_axes_stay():
    kinds, _ = checked(
        "g (double[N,M,4] x, double[4,5] w, double[5] b) => (double[N,M,5] y) "
        "{ p = MatMul(x, w)\n a = Add(p, b)\n y = Tanh(a) }",
        ["x", "w", "b"], N=2, M=3,
    )  # fmt: skip
    assert kinds["Add"] == 1, "the bias is added to a batch"


def test_half_precision_keeps_the_product_apart():
    """A Gemm rounds the sum once, MatMul and Add twice."""
    text = ("g (float16[2,3,4] x, float16[4,5] w, float16[5] b) => (float16[2,3,5] y) "
            "{ p = MatMul(x, w)\n a = Add(p, b)\n y = Tanh(a) }")  # fmt: skip
    result = gradgen.vjp(model(text), wrt=["x", "w", "b"])
    assert "MatMul" in [n.op_type for n in result.graph.node]


def test_a_constant_is_stored_as_rows_and_no_node_views_it():
    text = ("g (double[2,3,4] x, double[4,5] w, double[5,4] v) => (double l) "
            "{ p = MatMul(x, w)\n t = Tanh(p)\n q = MatMul(t, v)\n l = ReduceMean<keepdims=0>(q) }")  # fmt: skip
    result = gradgen.grad(model(text), wrt=["w", "v"])
    assert [list(n.input) for n in result.graph.node if n.op_type == "Flatten"] == [["x"]]
    x, w, v = (np.random.default_rng(0).standard_normal(s) for s in ((2, 3, 4), (4, 5), (5, 4)))
    slope = (1 - np.tanh(x @ w) ** 2) * v.sum(1) / 24
    found = Evaluator(result)({"x": x, "w": w, "v": v})
    np.testing.assert_allclose(found["grad_w"], np.einsum("abi,abj->ij", x, slope), rtol=1e-11)
    np.testing.assert_allclose(found["grad_v"], np.tanh(x @ w).sum((0, 1))[:, None] / 24 + np.zeros(4), rtol=1e-11)


def test_names_of_values_that_stay_are_the_models_own():
    text = "g (double[2,3,4] x, double[4,5] w) => (double[2,3,5] y) { p = MatMul(x, w)\n y = Tanh(p) }"
    proto = model(text)
    proto.graph.initializer.append(numpy_helper.from_array(np.ones(1), "p/rows"))
    result = gradgen.vjp(proto, wrt=["x", "w"])
    names = [o for n in result.graph.node for o in n.output] + [t.name for t in result.graph.initializer]
    assert len(set(names)) == len(names)
    assert [o.name for o in result.graph.output] == ["y", "grad_x", "grad_w"]


def test_two_batches_of_the_same_rows():
    """The views of one are readers of what the other one brings into its rows."""
    checked(
        "g (double[2,3,4] x, double[4,5] w, double[5] b) => (double[2,3,5] y, double[6,1,5] z) "
        "{ s = Constant<value_ints=[6,1,4]>()\n u = Reshape(x, s)\n p = MatMul(u, w)\n a = Add(p, b)\n z = Tanh(a)\n"
        " q = MatMul(x, w)\n c = Add(q, b)\n y = Tanh(c) }",
        ["x", "w", "b"],
    )


@pytest.mark.parametrize("place", ["e = Exp(x)", "o = MatMul(x, v)\n e = Exp(o)"])
def test_the_names_of_sizes_stay(place):
    _, result = checked(
        f"g (double[M,4] x, double[4,4] v, double[4,5] w, double[5] b) => (double[M,4] e, double[N,3,5] y) {{ {place}\n"
        " s = Constant<value_ints=[-1,3,4]>()\n u = Reshape(e, s)\n p = MatMul(u, w)\n a = Add(p, b)\n y = Tanh(a) }",
        ["x", "w", "b"], M=6, N=2,
    )  # fmt: skip
    shapes = {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in result.graph.output}
    assert shapes["e"] == shapes["grad_x"] == ["M", 4] and shapes["y"] == ["N", 3, 5]


def test_a_bias_is_added_in_the_node_that_added_it():
    """With its name, by which it is found in a profile; and it is the primal's, not gradgen's."""
    proto = model("g (double[2,3,4] x, double[4,5] w, double[5] b) => (double[2,3,5] y) "
                  "{ p = MatMul(x, w)\n a = Add(p, b)\n y = Tanh(a) }")  # fmt: skip
    proto.graph.node[1].name = "layer"
    result = gradgen.vjp(proto, wrt=["x", "w", "b"])
    (layer,) = [n for n in result.graph.node if n.name == "layer"]
    assert layer.op_type == "Gemm" and not layer.metadata_props


@pytest.mark.parametrize("border", ["p", "a", "t", "q", "d", "s", "f"])
def test_what_checkpoint_names_is_kept(border):
    proto = model("g (double[2,3,4] x, double[4,4] w, double[4] b) => (double[2,3,4] y) { p = MatMul(x, w)\n"
                  " a = Add(p, b)\n t = Tanh(a)\n q = MatMul(t, w)\n d = Add(q, b)\n s = Sigmoid(d)\n"
                  " f = Flatten<axis=2>(s)\n i = Constant<value_ints=[2, 3, 4]>()\n g = Reshape(f, i)\n"
                  " r = MatMul(g, w)\n e = Add(r, b)\n y = Tanh(e) }")  # fmt: skip
    plain, kept = (gradgen.vjp(proto, wrt=["x", "w"], checkpoint=c) for c in (None, [border]))
    names = {o for n in kept.graph.node for o in n.output}
    assert names & {border, f"{border}/rows"} and any(n.endswith("/again") for n in names)
    rng = np.random.default_rng(0)
    feeds = {"x": rng.random((2, 3, 4)), "w": rng.random((4, 4)), "b": rng.random(4), "grad_y": rng.random((2, 3, 4))}
    for name, value in Evaluator(plain)(feeds).items():
        np.testing.assert_allclose(Evaluator(kept)(feeds)[name], value, rtol=1e-13)


@pytest.mark.parametrize(("batch", "other"), [("N,3", '"N*3",4'), ("N,3", '"gradgen.rows",4'), ("N,3,2", '"N,3",2,4')])
def test_the_name_of_a_number_of_rows_is_no_other_size(batch, other):
    """onnxruntime would take one buffer for values whose sizes have the same names."""
    proto = model(
        f"g (double[{batch},4] x, double[{other}] m, double[4,4] w) => (double[{batch},4] y, double[{other}] k) "
        "{ a = Sin(m)\n b = MatMul(a, w)\n c = Sin(b)\n d = MatMul(c, w)\n k = Neg(d)\n"
        " p = MatMul(x, w)\n q = Sin(p)\n r = MatMul(q, w)\n s = Sin(r)\n t = MatMul(s, w)\n y = Sin(t) }"
    )
    result = gradgen.vjp(proto, wrt=["x", "w"])
    rng = np.random.default_rng(0)
    sizes = {"N": 5, "N*3": 2, "gradgen.rows": 2, "N,3": 2}
    feeds = {
        v.name: rng.standard_normal([d.dim_value or sizes[d.dim_param] for d in v.type.tensor_type.shape.dim])
        for v in result.graph.input
    }
    session = onnxruntime.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(2):  # memory is planned in the first run
        found = dict(zip((o.name for o in result.graph.output), session.run(None, feeds), strict=True))
    x, m, w = feeds["x"], feeds["m"], feeds["w"]
    np.testing.assert_allclose(found["k"], -np.sin(np.sin(m) @ w) @ w, rtol=1e-11)
    np.testing.assert_allclose(found["y"], np.sin(np.sin(np.sin(x @ w) @ w) @ w), rtol=1e-11)


@pytest.mark.parametrize("view", ["i = Constant<value_ints=[0]>()\n v = Unsqueeze(x, i)",
                                  "i = Constant<value_ints=[0,0,-1]>()\n v = Reshape(x, i)"])  # fmt: skip
def test_a_view_of_what_comes_into_rows(view):
    shape = "1,2,3,4" if "Unsqueeze" in view else "2,3,4"
    checked(
        f"g (double[2,3,4] x, double[4,4] w) => (double[{shape}] y, double[2,3,4] z) {{ {view}\n a = MatMul(v, w)\n"
        " t = Tanh(a)\n y = MatMul(t, w)\n b = MatMul(x, w)\n c = Add(b, x)\n s = Tanh(c)\n z = MatMul(s, w) }",
        ["x", "w"],
    )


def test_an_open_number_of_rows_is_not_stated():
    """onnxruntime would plan memory for it after a first run, beside what that run holds."""
    proto = model("g (float[N,3,4] x, float[4,4] w, float[4] b) => (float[N,3,4] y) "
                  "{ p = MatMul(x, w)\n a = Add(p, b)\n t = Tanh(a)\n q = MatMul(t, w)\n y = Add(q, b) }")  # fmt: skip
    result = gradgen.vjp(proto, wrt=["x", "w", "b"])
    assert any(o.endswith("/rows") for n in result.graph.node for o in n.output)
    sizes = [d.dim_param for v in result.graph.value_info for d in v.type.tensor_type.shape.dim]
    assert not [d for d in sizes if d.startswith("gradgen.rows")]
    assert all(v.type.tensor_type.HasField("shape") for v in [*result.graph.input, *result.graph.output])


@pytest.mark.parametrize("options", [{}, {"closed": True}, {"closed": True, "seeds": 2}, {"checkpoint": ["t"]}])
def test_the_halves_of_a_pair_state_the_shapes_of_what_they_hand_over(options):
    proto = model("g (float[N,3,4] x, float[4,4] w, float[4] b) => (float[N,3,4] y) "
                  "{ p = MatMul(x, w)\n a = Add(p, b)\n t = Tanh(a)\n q = MatMul(t, w)\n y = Add(q, b) }")  # fmt: skip
    halves = gradgen.vjp_pair(proto, wrt=["x", "w", "b"], **options)
    for half in halves:
        onnx.checker.check_model(half, full_check=True)
        inner = [d.dim_param for v in half.graph.value_info for d in v.type.tensor_type.shape.dim]
        assert not [d for d in inner if d.startswith("gradgen.rows")]
    shapes = [v.type.tensor_type.shape for v in halves[0].graph.output if v.name.startswith("residual")]
    assert shapes and all(len(s.dim) for s in shapes)
