"""How many nodes a derivative has for each node of its primal, on small models of the usual kinds; is it right?"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import gradgen
from gradgen.differences import promote_initializers
from gradgen.evaluate import evaluator, to_float64

Arrays = dict[str, np.ndarray]
DATA = Path(__file__).parent / "data"
# Nodes of value_and_grad to all parameters, forward pass included, over nodes of the primal.
LIMITS = {
    "mlp_static": 4.5,
    "mlp_dynamic": 4.5,
    "cnn_static": 5.0,
    "cnn_dynamic": 5.5,
    # PyTorch's TransformerEncoder, and one by hand in which Gelu and each projection are single nodes.
    "transformer_static": 3.1,
    "transformer_dynamic": 2.8,
    "encoder_static": 3.8,
    "encoder_dynamic": 3.9,
    "chain_static": 3.0,
    "chain_dynamic": 3.0,
}


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those in subgraphs included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for subgraph in [attribute.g, *attribute.graphs]:
                yield from nodes(subgraph)


def derivative_of(name: str) -> tuple[onnx.ModelProto, list[str], onnx.ModelProto]:
    primal = onnx.load(DATA / f"{name}.onnx")
    # The exporter keeps the scale of attention as an initializer of one element: no parameter.
    sizes = {t.name: int(np.prod(t.dims)) for t in primal.graph.initializer}
    parameters = [n for n in gradgen.parameters(primal) if sizes[n] > 1]
    return primal, parameters, gradgen.value_and_grad(primal, wrt=parameters, of=["loss"])


def feeds_for(model: onnx.ModelProto, batch: int) -> Arrays:
    rng = np.random.default_rng(3)
    shape = [d.dim_value or batch for d in model.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": rng.standard_normal(shape).astype(np.float32)}
    if len(model.graph.input) > 1:
        feeds["label"] = rng.integers(0, 10, batch)
    return feeds


@pytest.mark.parametrize("name", LIMITS)
def test_few_nodes(name: str) -> None:
    primal, _, derivative = derivative_of(name)
    ratio = len(list(nodes(derivative.graph))) / len(list(nodes(primal.graph)))
    assert ratio <= LIMITS[name], f"{name}: {ratio:.2f} nodes for each node of the primal"


@pytest.mark.parametrize("name", LIMITS)
def test_no_shape_arithmetic_and_no_slow_ops(name: str) -> None:
    _, _, derivative = derivative_of(name)
    unwanted = {"NonZero", "Where"} | ({"Shape", "Size"} if name.endswith("_static") else set())
    assert not unwanted & {node.op_type for node in nodes(derivative.graph)}


@pytest.mark.parametrize("name", LIMITS)
def test_every_parameter_has_its_gradient(name: str) -> None:
    primal, parameters, derivative = derivative_of(name)
    weights = {t.name: numpy_helper.to_array(t) for t in primal.graph.initializer}
    floats = {weight for weight, value in weights.items() if value.dtype.kind == "f" and value.size > 1}
    assert floats <= set(parameters) <= set(weights)

    feeds = feeds_for(primal, batch=4 if name.endswith("_static") else 3)
    results = evaluator(derivative, strict=True)(feeds)
    gradients = dict(zip(parameters, list(results.values())[1:], strict=True))
    loss = loss_of_weights(primal, parameters, feeds)
    np.testing.assert_allclose(results["loss"], loss(weights), rtol=1e-5)
    rng = np.random.default_rng(4)
    for parameter, gradient in gradients.items():
        assert gradient.shape == weights[parameter].shape and gradient.dtype == weights[parameter].dtype
        direction = rng.standard_normal(gradient.shape)
        ends = [loss({**weights, parameter: weights[parameter] + step * direction}) for step in (1e-6, -1e-6)]
        numeric = (ends[0] - ends[1]) / 2e-6
        size = np.linalg.norm(gradient) + 1e-5
        assert abs(np.vdot(gradient, direction) - numeric) <= 1e-3 * size, parameter


def loss_of_weights(model: onnx.ModelProto, names: list[str], feeds: Arrays) -> Callable[[Arrays], float]:
    """The model's loss in float64 as a function of its weights, by name."""
    run = evaluator(to_float64(promote_initializers(model, names)))
    wide = {k: v.astype(np.float64) if v.dtype.kind == "f" else v for k, v in feeds.items()}
    return lambda weights: float(run({**wide, **{n: np.asarray(weights[n], np.float64) for n in names}})["loss"])
