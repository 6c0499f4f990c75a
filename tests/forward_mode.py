"""What the tests of jvp and hvp share: models as functions, and derivatives of them along directions by differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

import gradgen
from gradgen.differences import directional, promote_initializers
from gradgen.evaluate import Evaluator, evaluator, to_float64

Arrays = dict[str, np.ndarray]
DATA = Path(__file__).parent / "data"


def model_of(name: str, batch: int = 3) -> tuple[onnx.ModelProto, Arrays, list[str]]:
    """A model of tests/data with its parameters as inputs; a point; the names of its float inputs."""
    model = onnx.load(DATA / f"{name}.onnx")
    sizes = {t.name: int(np.prod(t.dims)) for t in model.graph.initializer}
    parameters = [n for n in gradgen.parameters(model) if sizes[n] > 1]
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.name in parameters}
    rng = np.random.default_rng(3)
    shape = [d.dim_value or batch for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": rng.standard_normal(shape).astype(np.float32), **weights}
    if len(model.graph.input) > 1:
        feeds["label"] = rng.integers(0, 10, shape[0])
    return promote_initializers(model, parameters), feeds, ["x", *parameters]


def wide(feeds: Mapping[str, np.ndarray]) -> Arrays:
    """Feeds in float64."""
    return {n: np.asarray(a, np.float64) if np.asarray(a).dtype.kind == "f" else a for n, a in feeds.items()}


def directions(feeds: Mapping[str, np.ndarray], names: Sequence[str], seed: int) -> Arrays:
    """A random direction for each name, of the value's shape."""
    rng = np.random.default_rng(seed)
    return {n: rng.standard_normal(np.shape(feeds[n])) for n in names}


def prefixed(prefix: str, arrays: Mapping[str, np.ndarray]) -> Arrays:
    return {prefix + n: a for n, a in arrays.items()}


def wide_run(model: onnx.ModelProto) -> Evaluator:
    """The model in float64 as a function."""
    return evaluator(to_float64(model))


def check_hvp(model: onnx.ModelProto, feeds: Arrays, wrt: Sequence[str], tolerance: float = 1e-6, **options) -> None:
    """hvp in float64 against differences of the gradient: its inner product with a random vector."""
    point, v, w = wide(feeds), directions(feeds, wrt, 1), directions(feeds, wrt, 2)
    gradient = wide_run(gradgen.grad(model, wrt=wrt, **options))
    found = wide_run(gradgen.hvp(model, wrt=wrt, **options))({**point, **prefixed("vector_", v)})
    assert list(found) == [f"hvp_{n}" for n in wrt]
    got = 0.0
    size = 0.0
    for name in wrt:
        assert found[f"hvp_{name}"].shape == np.shape(feeds[name])
        products = w[name] * found[f"hvp_{name}"]
        got, size = got + products.sum(), size + float(np.linalg.norm(products))
    want = directional(gradient, point, v, prefixed("grad_", w))
    assert want.finite and not want.kink
    assert size > 1e-3, "the Hessian is zero here: the test shows nothing"
    assert abs(got - want.value) <= tolerance * size + 3 * want.error, f"{got}, by differences {want}"
