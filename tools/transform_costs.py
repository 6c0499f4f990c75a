"""Prints what each transform costs: nodes and time beside the primal's, on the models of tests/data, as a table.

    python tools/transform_costs.py [--wrt inputs|parameters] [--repeats N]

Nodes are counted with those in subgraphs, over those of the primal, which is simplified already. Times are the smallest of
several runs on onnxruntime with one thread; the models are small, so that they tell of nodes more than of arithmetic.
A transform is a line of TRANSFORMS.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
import onnxruntime

import gradgen

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
MODELS = {"MLP": "mlp_static", "CNN": "cnn_static", "transformer": "transformer_static"}
Arrays = dict[str, np.ndarray]

# Name, signature, and what makes the model of a primal whose output is `loss`.
TRANSFORMS: list[tuple[str, str, Callable[[onnx.ModelProto, list[str]], onnx.ModelProto]]] = [
    ("vjp", "inputs, `grad_<y>` → outputs, `grad_<x>`", lambda m, wrt: gradgen.vjp(m, wrt=wrt)),
    ("grad", "inputs → `grad_<x>`", lambda m, wrt: gradgen.grad(m, wrt=wrt)),
    ("jvp", "inputs, `tangent_<x>` → outputs, `tangent_<y>`", lambda m, wrt: gradgen.jvp(m, wrt=wrt)),
    ("hvp", "inputs, `vector_<x>` → `hvp_<x>`", lambda m, wrt: gradgen.hvp(m, wrt=wrt)),
    (
        "vjp, seeds=8",
        "inputs, `grad_<y>` [8, y] → outputs, `grad_<x>` [8, x]",
        lambda m, wrt: gradgen.vjp(m, wrt=wrt, seeds=8),
    ),
    (
        "jacobian, of 10 outputs for each sample",
        "inputs → outputs, `jacobian_<y>_<x>` [y, x]",
        lambda m, _: gradgen.jacobian(m, wrt="x", of=logits(m), per_sample=True, mode="reverse"),
    ),
    (
        "hessian, of a bias of 10",
        "inputs → outputs, `hessian_<x>_<z>` [x, z]",
        lambda m, _: gradgen.hessian(m, wrt=bias(m)),
    ),
]


def logits(model: onnx.ModelProto) -> str:
    """What the loss of a model is computed from."""
    return next(n.input[0] for n in reversed(model.graph.node) if n.op_type == "SoftmaxCrossEntropyLoss")


def bias(model: onnx.ModelProto) -> str:
    """The bias of the last layer."""
    return next(n.input[2] for n in model.graph.node if logits(model) in n.output)


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """All nodes, those in subgraphs included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                yield from nodes(inner)


def parameters(model: onnx.ModelProto) -> list[str]:
    """The trainable weights: the exporter keeps the scale of attention as an initializer of one element."""
    sizes = {t.name: int(np.prod(t.dims)) for t in model.graph.initializer}
    return [n for n in gradgen.parameters(model) if sizes[n] > 1]


def feeds_for(model: onnx.ModelProto) -> Arrays:
    """Random inputs of the declared shapes; labels are below 10."""
    rng, feeds = np.random.default_rng(0), {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [d.dim_value for d in kind.shape.dim]
        floats = kind.elem_type == onnx.TensorProto.FLOAT
        feeds[value.name] = rng.standard_normal(shape).astype(np.float32) if floats else rng.integers(0, 10, shape)
    return feeds


def session(model: onnx.ModelProto) -> Callable[[], Any]:
    """A run of a model on random inputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    loaded = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = feeds_for(model)
    return lambda: loaded.run(None, feeds)


def seconds(runs: list[Callable[[], Any]], repeats: int) -> list[float]:
    """The smallest time of each, all in turn, so that what else the machine does falls on all alike."""
    best = [float("inf")] * len(runs)
    for _ in range(repeats):
        for k, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[k] = min(best[k], time.perf_counter() - start)
    return best


def table(wrt: str, repeats: int) -> list[str]:
    """The lines of the table."""
    cells: dict[str, list[str]] = {name: [] for name, _, _ in TRANSFORMS}
    for stem in MODELS.values():
        primal = onnx.load(DATA / f"{stem}.onnx")
        names = ["x"] if wrt == "inputs" else parameters(primal)
        made = [make(primal, names) for _, _, make in TRANSFORMS]
        first, *times = seconds([session(m) for m in [primal, *made]], repeats)
        for (name, _, _), model, spent in zip(TRANSFORMS, made, times, strict=True):
            ratio = len(list(nodes(model.graph))) / len(list(nodes(primal.graph)))
            cells[name].append(f"{ratio:.1f} / {spent / first:.1f}")
    head = " | ".join(f"{name}: nodes / time" for name in MODELS)
    lines = [f"| Transform | Signature | {head} |", "|---" * (2 + len(MODELS)) + "|"]
    return [*lines, *(f"| `{name}` | {signature} | {' | '.join(cells[name])} |" for name, signature, _ in TRANSFORMS)]


@click.command()
@click.option("--wrt", type=click.Choice(["inputs", "parameters"]), default="inputs")
@click.option("--repeats", default=300, help="How often each model runs.")
def main(wrt: str, repeats: int) -> None:
    """Print the table."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gradgen.GradientWarning)
        click.echo("\n".join(table(wrt, repeats)))


if __name__ == "__main__":
    main()
