"""Gradients of matrix products by their formulas: traps of the runtime, broadcast letters, singular matrices, names."""

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from single_node import gradients, session

import gradgen

rng = np.random.default_rng(6)


def normal(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def close(found: Any, want: Any) -> None:
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def derivative(text: str) -> onnx.ModelProto:
    """The derivative of a graph from all its inputs to its first output."""
    primal = onnx.parser.parse_model('<ir_version: 10, opset_import: ["" : 21]>\n' + text)
    model = gradgen.vjp(primal, wrt=[i.name for i in primal.graph.input], of=[primal.graph.output[0].name])
    onnx.checker.check_model(model, full_check=True)
    return model


def added(text: str) -> list[str]:
    """The ops that the derivative of a graph of one node adds."""
    return [n.op_type for n in derivative(text).graph.node][1:]


def run(model: onnx.ModelProto, **feeds: np.ndarray) -> dict[str, np.ndarray]:
    names = [o.name for o in model.graph.output]
    return dict(zip(names, session(model).run(None, feeds), strict=True))


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
def test_vector_times_transposed_weight(shape: tuple[int, int]) -> None:
    # onnxruntime fuses Transpose and MatMul, and then gets a transposed matrix times a vector wrong.
    text = "g (float[K] x, float[N,K] w) => (float[N] y) { t = Transpose<perm = [1, 0]>(w) y = MatMul(x, t) }"
    x, w, ct = normal(shape[1]), normal(*shape), normal(shape[0])
    results = run(derivative(text), x=x, w=w, grad_y=ct)
    close(results["grad_x"], w.T @ ct)
    close(results["grad_w"], np.outer(ct, x))


@pytest.mark.parametrize(("m", "n"), [(3, 4), (1, 4), (0, 4), (4, 1)])
def test_transposed_weight_times_vector_as_right_operand(m: int, n: int) -> None:
    a, b, ct = normal(m, n), normal(n), normal(m)
    d_a, d_b = gradients("MatMul", {"A": a, "B": b}, ct)
    close(d_a, np.outer(ct, b))
    close(d_b, a.T @ ct)


def test_batches_broadcast_both_ways_under_names() -> None:
    model = derivative("g (float[B,1,M,K] a, float[H,K,N] b) => (float[B,H,M,N] y) { y = MatMul(a, b) }")
    for batch, heads in [(2, 3), (1, 3), (2, 1), (1, 1), (0, 2)]:
        a, b, ct = normal(batch, 1, 4, 5), normal(heads, 5, 2), normal(batch, heads, 4, 2)
        results = run(model, a=a, b=b, grad_y=ct)
        close(results["grad_a"], np.einsum("bhmn,hkn->bmk", ct, b)[:, None])
        close(results["grad_b"], np.einsum("bomk,bhmn->hkn", a, ct))


def test_equal_names_leave_no_reduction() -> None:
    attention = "g (float[B,8,T,16] a, float[B,8,16,T] b) => (float[B,8,T,T] y) { y = MatMul(a, b) }"
    assert sorted(added(attention)) == ["MatMul", "MatMul", "Transpose", "Transpose"]
    weight = "g (float[B,T,16] a, float[16,4] b) => (float[B,T,4] y) { y = MatMul(a, b) }"
    assert sorted(added(weight)) == ["Flatten", "Flatten", "Gemm", "MatMul", "Transpose"]
    plain = "g (float[M,K] a, float[K,N] b) => (float[M,N] y) { y = MatMul(a, b) }"
    assert added(plain) == ["Gemm", "Gemm"]
    einsum = 'g (float[B,Q,16] a, float[B,K,16] b) => (float[B,Q,K] y) { y = Einsum<equation = "bqd,bkd->bqk">(a, b) }'
    assert added(einsum) == ["Einsum", "Einsum"]


def test_empty_batch_and_empty_inner_axis() -> None:
    model = derivative("g (float[B,T,K] a, float[K,N] b) => (float[B,T,N] y) { y = MatMul(a, b) }")
    for shape in [(0, 3, 4, 2), (2, 0, 4, 2), (2, 3, 0, 2), (2, 3, 4, 0)]:
        b, t, k, n = shape
        results = run(model, a=normal(b, t, k), b=normal(k, n), grad_y=normal(b, t, n))
        assert results["grad_a"].shape == (b, t, k) and results["grad_b"].shape == (k, n)
        assert not results["grad_a"].any() or n
        assert not results["grad_b"].any() or b * t


@pytest.mark.parametrize("shape", [(), (1,), (3,), (1, 3), (2, 1), (2, 3)])
def test_gemm_sums_the_third_operand_to_its_shape(shape: tuple[int, ...]) -> None:
    a, b, c, ct = normal(4, 2), normal(3, 4), normal(*shape), normal(2, 3)
    found = gradients("Gemm", {"A": a, "B": b, "C": c}, ct, alpha=0.5, beta=-2.0, transA=1, transB=1)
    close(found[0], 0.5 * (ct @ b).T)
    close(found[1], 0.5 * (a @ ct).T)
    lead = np.broadcast_to(c, (2, 3)).ndim - c.ndim
    axes = (*range(lead), *(i + lead for i, d in enumerate(shape) if d == 1))
    close(found[2], -2 * ct.sum(axis=axes).reshape(shape))


def test_gemm_with_names_for_the_third_operand() -> None:
    model = derivative("g (float[M,K] a, float[K,N] b, float[R,C] c) => (float[M,N] y) { y = Gemm(a, b, c) }")
    for rows, columns in [(2, 3), (1, 3), (2, 1), (1, 1)]:
        ct = normal(2, 3)
        found = run(model, a=normal(2, 4), b=normal(4, 3), c=normal(rows, columns), grad_y=ct)["grad_c"]
        close(found, ct.sum(axis=tuple(i for i, d in enumerate((rows, columns)) if d == 1), keepdims=True))


def test_einsum_letters_broadcast_from_size_one() -> None:
    a, b = normal(2, 1), normal(2, 3)
    ct = normal(2)
    node = {"equation": "ij,ij->i"}
    d_a, d_b = einsum_gradients([a, b], ct, **node)
    close(d_a, (ct[:, None] * b).sum(1, keepdims=True))
    close(d_b, ct[:, None] * a * np.ones((1, 3)))


def test_einsum_letters_broadcast_under_names() -> None:
    text = 'g (float[I,J] a, float[P,Q] b) => (float[O] y) { y = Einsum<equation = "ij,ij->i">(a, b) }'
    model = derivative(text)
    for left, right in [((2, 3), (2, 3)), ((2, 1), (2, 3)), ((1, 3), (2, 3)), ((2, 3), (2, 1)), ((2, 3), (1, 1))]:
        a, b, ct = normal(*left), normal(*right), normal(max(left[0], right[0]))
        results = run(model, a=a, b=b, grad_y=ct)
        for name, value, other in [("a", a, b), ("b", b, a)]:
            full = np.broadcast_to(ct[:, None] * other, np.broadcast_shapes(left, right))
            summed = full.sum(axis=tuple(i for i in (0, 1) if value.shape[i] == 1), keepdims=True)
            close(results[f"grad_{name}"], summed if 1 in value.shape else full)


def test_einsum_diagonal_under_names() -> None:
    model = derivative('g (float[B,N,N] a, float[N] v) => (float[B] y) { y = Einsum<equation = "...ii,i">(a, v) }')
    a, v, ct = normal(2, 3, 3), normal(3), normal(2)
    results = run(model, a=a, v=v, grad_y=ct)
    close(results["grad_a"], ct[:, None, None] * np.diag(v))
    close(results["grad_v"], np.einsum("bii,b->i", a, ct))


def test_einsum_of_one_operand_twice_adds_both_sides() -> None:
    model = derivative('g (float[2,3] a) => (float[2,2] y) { y = Einsum<equation = "ik,jk->ij">(a, a) }')
    a, ct = normal(2, 3), normal(2, 2)
    close(run(model, a=a, grad_y=ct)["grad_a"], (ct + ct.T) @ a)


def einsum_gradients(operands: list[np.ndarray], ct: np.ndarray, equation: str) -> list[np.ndarray]:
    return gradients("Einsum", {f"x{i}": x for i, x in enumerate(operands)}, ct, equation=equation)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_determinant_of_a_singular_matrix(rank: int) -> None:
    # The adjugate is the derivative at every rank; det·inverse is not.
    x = np.zeros((3, 3), np.float32)
    for _ in range(rank):
        x += np.outer(rng.integers(-3, 4, 3), rng.integers(-3, 4, 3)).astype(np.float32)
    minors = [[np.delete(np.delete(x, i, 0), j, 1) for j in range(3)] for i in range(3)]
    want = [
        [(-1) ** (i + j) * (m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]) for j, m in enumerate(r)]
        for i, r in enumerate(minors)
    ]
    close(gradients("Det", {"X": x}, 2.0), 2 * np.array(want))


def test_determinants_of_matrices_whose_size_has_a_name() -> None:
    model = derivative("g (float[B,N,N] x) => (float[B] y) { y = Det(x) }")
    for size in (1, 2, 4):
        x, ct = normal(2, size, size), normal(2)
        inverse = np.linalg.inv(x.astype(np.float64))
        want = ct[:, None, None] * np.linalg.det(x.astype(np.float64))[:, None, None] * inverse.swapaxes(1, 2)
        np.testing.assert_allclose(run(model, x=x, grad_y=ct)["grad_x"], want, rtol=1e-4, atol=1e-4)


def test_triangle_by_a_diagonal_known_at_run_time() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[R,C] x, int64 k) => (float[R,C] y) { y = Trilu(x, k) }'
    )
    model = gradgen.vjp(model, wrt=["x"], of=["y"])
    ct = normal(3, 4)
    for k in (-5, -1, 0, 2, 6):
        found = run(model, x=normal(3, 4), k=np.array(k), grad_y=ct)["grad_x"]
        np.testing.assert_array_equal(found, np.triu(ct, k))


@pytest.mark.parametrize("equation", ["...ij,...jk->...ik", "ij,jk->ik"])
def test_an_equation_that_does_not_fit_its_operands_is_refused_in_words(equation: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]> g (float[2,3,4] x, float[5,2,4,3] w) => (float y) {'
        f' a = Einsum<equation="{equation}">(x, w)\n y = ReduceSum<keepdims=0>(a) }}'
    )
    with pytest.raises(gradgen.GradientError, match="does not fit operands of rank"):
        gradgen.vjp(model)
