# Fits the parameters of a damped oscillator to measurements, with the gradient of a model that is written as text.
"""Fitting a small physics model: `python examples/fit_oscillator.py`."""

import numpy as np
import onnx.parser
import onnxruntime

import gradgen

# x(t) = a·exp(−γt)·cos(ωt), and the mean squared distance from what was measured.
OSCILLATOR = """
<ir_version: 10, opset_import: ["" : 21]>
oscillator (double[N] t, double[N] measured, double a, double gamma, double omega) => (double[N] x, double loss)
{
    decay = Mul(gamma, t)
    falling = Neg(decay)
    envelope = Exp(falling)
    phase = Mul(omega, t)
    wave = Cos(phase)
    unit = Mul(envelope, wave)
    x = Mul(a, unit)
    error = Sub(x, measured)
    square = Mul(error, error)
    loss = ReduceMean <keepdims = 0> (square)
}
"""
PARAMETERS = ["a", "gamma", "omega"]


def fit(t: np.ndarray, measured: np.ndarray, start: list[float], steps: int = 2000) -> tuple[np.ndarray, float]:
    """Gradient descent with momentum; returns the parameters and the loss."""
    model = gradgen.value_and_grad(onnx.parser.parse_model(OSCILLATOR), wrt=PARAMETERS, of=["loss"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = ["loss", *(f"grad_{name}" for name in PARAMETERS)]
    point, velocity, loss = np.array(start), np.zeros(3), np.inf
    for _ in range(steps):
        feeds = {name: np.array(value) for name, value in zip(PARAMETERS, point, strict=True)}
        loss, *gradient = session.run(wanted, {"t": t, "measured": measured, **feeds})
        velocity = 0.9 * velocity - 0.02 * np.array(gradient)
        point = point + velocity
    return point, float(loss)


if __name__ == "__main__":
    truth = np.array([1.5, 0.3, 2.0])
    t = np.linspace(0, 6, 60)
    noise = np.random.default_rng(0).normal(0, 0.02, t.shape)
    found, loss = fit(t, truth[0] * np.exp(-truth[1] * t) * np.cos(truth[2] * t) + noise, start=[1.0, 0.1, 1.7])
    for name, value, right in zip(PARAMETERS, found, truth, strict=True):
        print(f"{name:6} {value:.4f} (used to make the data: {right})")
    print(f"loss   {loss:.1e}")
