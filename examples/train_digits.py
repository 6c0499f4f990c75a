# Trains the digits classifier from scratch: onnxruntime computes loss and gradients, numpy makes the steps.
"""Stochastic gradient descent on a gradient model: `python examples/train_digits.py`."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import gradgen

HERE = Path(__file__).parent


def as_inputs(model: onnx.ModelProto, names: list[str]) -> dict[str, np.ndarray]:
    """Turn initializers into graph inputs, so that every run is fed the weights; returns what they held."""
    stored = {t.name: t for t in model.graph.initializer if t.name in names}
    for name in names:
        tensor = stored[name]
        model.graph.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
        model.graph.initializer.remove(tensor)
    return {name: numpy_helper.to_array(stored[name]) for name in names}


def train(steps: int = 200, batch: int = 8, rate: float = 0.1) -> tuple[float, float, float]:
    """Loss before, loss after, and accuracy, on the 16 digits of the sample."""
    model = onnx.load(HERE / "digits_cnn.onnx")
    trained = as_inputs(model, gradgen.parameters(model))
    gradient = gradgen.value_and_grad(model, wrt=list(trained), of=["loss"])
    session = onnxruntime.InferenceSession(gradient.SerializeToString(), providers=["CPUExecutionProvider"])

    digits = dict(np.load(HERE / "digits_sample.npz"))
    rng = np.random.default_rng(0)
    weights = {n: np.zeros_like(w) for n, w in trained.items()}
    for name, w in trained.items():
        if w.ndim > 1:  # biases start at 0, weights as He proposes
            weights[name] = (rng.standard_normal(w.shape) * np.sqrt(2 / w[0].size)).astype(np.float32)
    before = float(session.run(["loss"], {**digits, **weights})[0])
    for _ in range(steps):
        chosen = rng.choice(len(digits["label"]), batch, replace=False)
        feeds = {name: array[chosen] for name, array in digits.items()}
        gradients = session.run([f"grad_{n}" for n in weights], {**feeds, **weights})
        for name, g in zip(weights, gradients, strict=True):
            weights[name] = weights[name] - np.float32(rate) * g
    logits, after = session.run(["logits", "loss"], {**digits, **weights})
    return before, float(after), float((logits.argmax(axis=1) == digits["label"]).mean())


if __name__ == "__main__":
    before, after, accuracy = train()
    print(f"loss {before:.3f} -> {after:.3f}, accuracy on the sample {accuracy:.0%}")
