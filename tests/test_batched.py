"""The Scan builder by itself: what moves into the body, what stays, and what the steps give."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from matrices import at_level, drawn, model

from gradgen.engine.knowledge import Constants, Knowledge
from gradgen.engine.link import Linker
from gradgen.engine.names import Names
from gradgen.engine.registry import registered
from gradgen.errors import GradientError
from gradgen.transforms.batched import dependents, repeat, typed

TEXT = """(float[3] x, float[3] seed) => (float[3] r, float s, float[3] f) {
  f = Sin(x) g = Mul(f, x) a = Mul(seed, g) r = Add(a, seed) p = Mul(a, f) s = ReduceSum<keepdims=0>(p) }"""
CAPTURED = """(bool c, float[3] x, float[3] seed) => (float[3] r) {
  f = Sin(x) r = If (c) <then_branch = t () => (float[3] u) { u = Mul(f, seed) },
                         else_branch = e () => (float[3] v) { v = Mul(f, x) }> }"""


def opened(text):
    """The graph of a model, a linker for it, and its values by name."""
    found = ir.from_proto(onnx.shape_inference.infer_shapes(model(text)))
    graph = found.graph
    names = Names.of(graph)
    linker = Linker(graph, registered(), 21, Knowledge(), names, Constants(graph, names))
    values = {v.name: v for v in [*graph.inputs, *(o for node in graph for o in node.outputs)]}
    return found, linker, values


def stack(text, results, steps, seeding=None, slices=None):
    """The model in which `seed` is given several times, as `seeds`."""
    found, linker, values = opened(text)
    graph, seed = found.graph, values["seed"]
    graph.inputs.remove(seed)
    stacked = ir.Value(name="seeds", type=seed.type, shape=ir.Shape([steps, *(slices or seed.shape)]))
    graph.inputs.append(stacked)
    kept = [v for v in graph.outputs if v.name not in results]
    graph.outputs.clear()
    graph.outputs.extend(kept)
    wanted = [values[n] for n in results]
    for name, value in zip(results, repeat(linker, [seed], wanted, wanted, [stacked], steps, seeding), strict=True):
        value.name = f"{name}s"
        graph.outputs.append(value)
    return ir.to_proto(found)


def test_dependents_are_in_order_and_count_captures():
    found, _, values = opened(TEXT)
    assert [n.outputs[0].name for n in dependents(found.graph, [values["seed"]])] == ["a", "r", "p", "s"]
    assert [n.outputs[0].name for n in dependents(found.graph, [values["f"]])] == ["g", "a", "r", "p", "s"]
    found, _, values = opened(CAPTURED)
    assert [n.op_type for n in dependents(found.graph, [values["seed"]])] == ["If"]


@pytest.mark.parametrize("steps", [1, 4, "K"])
def test_results_are_stacked(steps):
    built = stack(TEXT, ["r", "s"], steps)
    outside = [n.op_type for n in built.graph.node]
    assert outside[:2] == ["Sin", "Mul"] and ("Scan" in outside) == (steps != 1)
    x, seeds = drawn(3), drawn(steps if isinstance(steps, int) else 4, 3)
    f, r, s = at_level(built, {"x": x, "seeds": seeds})
    np.testing.assert_allclose(f, np.sin(x), rtol=1e-6)
    np.testing.assert_allclose(r, seeds * f * x + seeds, rtol=1e-5)
    np.testing.assert_allclose(s, (seeds * f * f * x).sum(1), rtol=1e-5)
    dims = [[d.dim_param or d.dim_value for d in o.type.tensor_type.shape.dim] for o in built.graph.output]
    assert dims == [[3], [steps, 3], [steps]]


@pytest.mark.parametrize("steps", [1, 4])
def test_results_that_do_not_depend_on_the_seed_are_repeated(steps):
    (f,) = at_level(stack(TEXT.replace("=> (float[3] r, float s, float[3] f)", "=> (float[3] f)"), ["f"], steps),
                    {"x": drawn(3), "seeds": drawn(steps, 3)})  # fmt: skip
    np.testing.assert_allclose(f, np.broadcast_to(np.sin(drawn(3)), (steps, 3)), rtol=1e-6)


@pytest.mark.parametrize("steps", [1, 4])
def test_the_seed_itself_and_a_result_twice(steps):
    found, linker, values = opened(TEXT)
    seed, a = values["seed"], values["a"]
    found.graph.inputs.remove(seed)
    stacked = ir.Value(name="seeds", type=seed.type, shape=ir.Shape([steps, 3]))
    found.graph.inputs.append(stacked)
    found.graph.outputs.clear()
    found.graph.outputs.extend(repeat(linker, [seed], [seed, a, a], [a, a, a], [stacked], steps))
    seeds = drawn(steps, 3)
    first, second, third = at_level(ir.to_proto(found), {"x": drawn(3), "seeds": seeds})
    np.testing.assert_array_equal(first, seeds)
    np.testing.assert_array_equal(second, third)
    np.testing.assert_allclose(second, seeds * np.sin(drawn(3)) * drawn(3), rtol=1e-5)


@pytest.mark.parametrize("steps", [1, 4])
def test_the_content_of_the_seeds_is_written_in_each_step(steps):
    def spread(inner, slices):
        like = typed(slices[0], (3,))
        return [inner.node("Expand", [slices[0], inner.constants.get(np.array([3]))], like, "spread")]

    built = stack(TEXT, ["r", "s"], steps, spread, slices=(1,))
    _, r, _ = at_level(built, {"x": drawn(3), "seeds": drawn(steps, 1)})
    np.testing.assert_allclose(r, drawn(steps, 1) * (np.sin(drawn(3)) * drawn(3) + 1), rtol=1e-5)


def test_a_seed_that_a_branch_reads():
    built = stack(CAPTURED, ["r"], 2)
    assert [n.op_type for n in built.graph.node] == ["Sin", "Scan"]
    x, seeds = drawn(3), drawn(2, 3)
    for c, want in ((True, np.sin(x) * seeds), (False, np.broadcast_to(np.sin(x) * x, (2, 3)))):
        np.testing.assert_allclose(at_level(built, {"c": np.asarray(c), "x": x, "seeds": seeds})[0], want, rtol=1e-5)


@pytest.mark.parametrize(
    "draw",
    [
        "n = RandomNormalLike(a)",
        "c = Constant<value=bool {1}>() n = If (c) <then_branch = t () => (float[3] u) { u = RandomNormalLike(a) },"
        " else_branch = e () => (float[3] v) { v = Identity(a) }>",
    ],
)
def test_a_draw_that_depends_on_the_seed_is_refused(draw):
    text = f"(float[3] x, float[3] seed) => (float[3] r) {{ a = Mul(seed, x) {draw} r = Mul(n, a) }}"
    with pytest.raises(GradientError, match="draws random numbers in a way that depends on a seed"):
        stack(text, ["r"], 2)
