"""Models of one recurrent node, with every optional input and attribute present at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}
INPUTS = {op: ["X", "W", "R", "B", "sequence_lens", "initial_h"] for op in GATES}
INPUTS["LSTM"] += ["initial_c", "P"]
OUTPUTS = {"RNN": ["Y", "Y_h"], "GRU": ["Y", "Y_h"], "LSTM": ["Y", "Y_h", "Y_c"]}
ACTIVATIONS = ["Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"]
ACTIVATIONS += ["Softsign", "Softplus"]

Arrays = dict[str, np.ndarray]


def draw(
    op: str, seed: int, parameters: int | None = None, batch: int = 3, hidden: int = 2
) -> tuple[Arrays, dict[str, Any]]:
    """Float32 inputs and attributes; `parameters` says how many alphas and betas there are, if not a random number."""
    rng = np.random.default_rng([seed, GATES[op]])
    steps, size = 4, 3
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    count, gates = (2 if direction == "bidirectional" else 1), GATES[op]
    shapes = {
        "X": (steps, batch, size), "W": (count, gates * hidden, size), "R": (count, gates * hidden, hidden),
        "B": (count, 2 * gates * hidden), "sequence_lens": (batch,), "initial_h": (count, batch, hidden),
        "initial_c": (count, batch, hidden), "P": (count, 3 * hidden),
    }  # fmt: skip
    feeds = {
        n: rng.uniform(-1, 1, shapes[n]).astype(np.float32) for n in INPUTS[op] if n in "XWR" or rng.random() < 0.6
    }
    if "sequence_lens" in feeds:
        feeds["sequence_lens"] = rng.integers(0, steps + 1, batch).astype(np.int32)
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if rng.random() < 0.4:
        attributes["clip"] = 0.5
    if rng.random() < 0.6:
        attributes["activations"] = [str(a) for a in rng.choice(ACTIVATIONS, count * FUNCTIONS[op])]
        length = int(rng.integers(0, 4)) if parameters is None else parameters
        attributes |= {f"activation_{n}": list(rng.uniform(0.1, 0.9, length)) for n in ("alpha", "beta") if length}
    if op == "GRU":
        attributes["linear_before_reset"] = int(rng.integers(2))
    if op == "LSTM":
        attributes["input_forget"] = int(rng.integers(2))
    return feeds, attributes


def batch_first(feeds: Arrays) -> Arrays:
    """The inputs for layout 1."""
    return {n: v.swapaxes(0, 1) if n in ("X", "initial_h", "initial_c") else v for n, v in feeds.items()}


def model(
    op: str, feeds: Arrays, attributes: dict[str, Any], outputs: list[str] | None = None, fixed_lengths: bool = False,
    sizes: tuple[int | str, ...] = ("a", "b", "c")
) -> onnx.ModelProto:  # fmt: skip
    """A model of one node, whose inputs have the types and shapes of `feeds`; dimensions of X are `sizes`."""
    outputs = OUTPUTS[op] if outputs is None else outputs
    named = [n if n in outputs else "" for n in OUTPUTS[op]]
    node = helper.make_node(op, [n if n in feeds else "" for n in INPUTS[op]], named, name="node", **attributes)
    stored = {n: v for n, v in feeds.items() if fixed_lengths and n == "sequence_lens"}
    kinds = {n: helper.np_dtype_to_tensor_dtype(v.dtype) for n, v in feeds.items()}
    inputs = [
        helper.make_tensor_value_info(n, kinds[n], sizes if n == "X" else v.shape)
        for n, v in feeds.items()
        if n not in stored
    ]
    results = [helper.make_tensor_value_info(n, kinds["X"], [None] * (4 if n == "Y" else 3)) for n in outputs]
    weights = [numpy_helper.from_array(v, n) for n, v in stored.items()]
    graph = helper.make_graph([node], "recurrent", inputs, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
