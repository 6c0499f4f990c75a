"""A step of one library in a process of its own, for tools/bench_training.py: a line in, the seconds of a step out.

It imports nothing of the other library: gradgen and onnxruntime-training need different environments.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Step = Callable[[], Any]
Arrays = dict[str, np.ndarray]
# What onnxruntime-training's gradients read beside the first output, by operator: so many outputs a node must have.
OUTPUTS = {"SoftmaxCrossEntropyLoss": 2, "MaxPool": 2, "LayerNormalization": 3}


def gradgen_step(folder: Path, feeds: Arrays, weights: Arrays, threads: int) -> tuple[Step, Arrays]:
    """The step of gradgen's model, and its gradients."""
    import gradgen

    model = gradgen.value_and_grad(str(folder / "primal.onnx"), wrt=list(weights), of=["loss"])
    step = gradgen.compile(model, feed=list(weights), threads=threads)
    values = {**feeds, **weights}
    found = step(**values)
    return lambda: step(**values), {n: found[f"grad_{n}"].copy() for n in weights}


def training_step(folder: Path, feeds: Arrays, weights: Arrays, threads: int) -> tuple[Step, Arrays]:
    """A step of onnxruntime-training, which adds to its gradients and then drops them; and its gradients.

    It does not show gradients: they are what one step of gradient descent with rate 1 takes off the parameters.
    """
    import onnxruntime
    from onnxruntime.training import artifacts
    from onnxruntime.training.api import CheckpointState, Module, Optimizer

    model = onnx.load(folder / "primal.onnx")
    for node in model.graph.node:
        for k in range(len(node.output), OUTPUTS.get(node.op_type, 0)):
            node.output.append(f"{node.output[0]}/saved{k}")
    frozen = [t.name for t in model.graph.initializer if t.name not in weights]
    artifacts.generate_artifacts(model, requires_grad=list(weights), frozen_params=frozen,
                                 optimizer=artifacts.OptimType.SGD, artifact_directory=str(folder))  # fmt: skip
    state = CheckpointState.load_checkpoint(str(folder / "checkpoint"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    paths = [str(folder / f"{name}_model.onnx") for name in ("training", "eval", "optimizer")]
    module = Module(paths[0], state, paths[1], device="cpu", session_options=options)
    optimizer = Optimizer(paths[2], module)
    optimizer.set_learning_rate(1.0)
    module.train()
    arguments = [feeds[name] for name in module.input_names()]
    module(*arguments)
    optimizer.step()
    module.lazy_reset_grad()
    found = {n: weights[n] - state.parameters[n].data for n in weights}
    for name, value in weights.items():
        state.parameters[name].data = value

    def step() -> Any:
        loss = module(*arguments)
        module.lazy_reset_grad()
        return loss

    return step, found


def main(library: str, folder: Path, threads: int) -> None:
    """Write the gradients, say so, and then take a step for each line that comes in."""
    feeds, weights = (dict(np.load(folder / f"{name}.npz")) for name in ("feeds", "weights"))
    make = {"gradgen": gradgen_step, "training": training_step}[library]
    step, gradients = make(folder, feeds, weights, threads)
    np.savez(folder / f"{library}.npz", **gradients)
    step()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        step()
        print(time.perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
