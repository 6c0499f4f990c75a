"""Gradients of DFT and STFT against numpy's transforms, for lengths, axes and directions in combination."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper
from single_node import build, session

import gradgen
from gradgen.differences import jacobian_fd
from gradgen.evaluate import Evaluator

RNG = np.random.default_rng(5)


def transform(x: np.ndarray, length: int, inverse: int, onesided: int) -> np.ndarray:
    """DFT along axis 1 of [B, N, 1 or 2], as numpy computes it."""
    z = x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    if inverse and onesided:
        return np.fft.irfft(z, length, axis=1)[..., None]
    z = np.fft.ifft(z, length, axis=1) if inverse else np.fft.fft(z, length, axis=1)
    z = z[:, : length // 2 + 1] if onesided else z
    return np.stack([z.real, z.imag], -1)


def of_basis(function: Any, shape: tuple[int, ...], ct: np.ndarray) -> np.ndarray:
    """The gradient of a linear function: ⟨ct, f(e)⟩ for every unit vector e."""
    want = np.zeros(shape)
    for index in np.ndindex(*shape):
        unit = np.zeros(shape)
        unit[index] = 1
        want[index] = np.vdot(ct, function(unit))
    return want


CASES = [
    (inverse, onesided, parts)
    for inverse, onesided, parts in [(0, 0, 1), (0, 0, 2), (0, 1, 1), (1, 0, 1), (1, 0, 2), (1, 1, 2)]
]


@pytest.mark.parametrize(("inverse", "onesided", "parts"), CASES)
@pytest.mark.parametrize("length", [None, 1, 2, 5, 8])
@pytest.mark.parametrize("size", [2, 5])
def test_dft(inverse, onesided, parts, length, size):
    x = RNG.standard_normal((2, size, parts))
    reach = length or (2 * (size - 1) if inverse and onesided else size)
    inputs = {"x": x, "length": np.asarray(reach)} if length else {"x": x}
    y = transform(x, reach, inverse, onesided)
    ct = RNG.standard_normal(y.shape)
    model = build("DFT", inputs, inverse=inverse, onesided=onesided, constants=[n for n in inputs if n == "length"])
    # The reference evaluator: onnxruntime inverts to real values only where the number of bins is that of the length.
    found = Evaluator(gradgen.vjp(model, wrt=["x"]), prefer="reference", strict=True)({"x": x, "grad_y0": ct})["grad_x"]
    want = of_basis(lambda v: transform(v, reach, inverse, onesided), x.shape, ct)
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("inverse", "onesided", "parts"), CASES)
def test_dft_axis_and_length_known_at_run_time(inverse, onesided, parts):
    x = RNG.standard_normal((2, 5, 3, parts))
    inputs = {"x": x, "length": np.asarray(8), "axis": np.asarray(-3)}
    ct = RNG.standard_normal((2, 8, 3, 1) if inverse and onesided else (2, 5 if onesided else 8, 3, 2))
    model = build("DFT", inputs, inverse=inverse, onesided=onesided)
    del model.graph.value_info[:]
    for value in [*model.graph.input, *model.graph.output]:
        for i, dim in enumerate(value.type.tensor_type.shape.dim):
            dim.dim_param = f"{value.name}_{i}"
    gradient = gradgen.vjp(model, wrt=["x"])
    onnx.checker.check_model(gradient, full_check=True)
    found = session(gradient).run(["grad_x"], {**inputs, "grad_y0": ct})[0]
    lanes = [of_basis(lambda v: transform(v, 8, inverse, onesided), (2, 5, parts), ct[:, :, lane]) for lane in range(3)]
    np.testing.assert_allclose(found, np.stack(lanes, 2), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("onesided", "parts"), [(0, 1), (0, 2), (1, 1)])
def test_dft_of_symbolic_sizes_along_a_constant_axis(onesided, parts):
    """onnx's inference takes the way back for as long as the spectrum, and onnxruntime plans its buffers with that."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 21]>
        g (double[b, n, c] x) => (double[p, q, r] z) <int64 axis = {{1}}> {{
            y = DFT <onesided = {onesided}> (x, , axis)
            s = Mul(y, y)
            t = Tanh(s)
            z = Mul(t, y)
        }}""")
    x = RNG.standard_normal((2, 6, parts))
    run = session(model)
    ct = RNG.standard_normal(run.run(None, {"x": x})[0].shape)
    found = session(gradgen.vjp(model)).run(["grad_x"], {"x": x, "grad_z": ct})[0]
    want, _, _ = jacobian_fd(lambda feeds: {"z": run.run(None, feeds)[0]}, {"x": x}, "x", {"z": ct})
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-7)


def frames(x: np.ndarray, window: np.ndarray, step: int) -> np.ndarray:
    """Frames [B, T, F, parts] of x [B, N, parts], times the window."""
    size = len(window)
    starts = range(0, x.shape[1] - size + 1, step)
    return np.stack([x[:, s : s + size] * window[:, None] for s in starts], 1)


def short_time(x: np.ndarray, window: np.ndarray, step: int, onesided: int) -> np.ndarray:
    cut = frames(x, window, step)
    y = transform(cut.reshape(-1, *cut.shape[2:]), len(window), 0, onesided)
    return y.reshape(*cut.shape[:2], *y.shape[1:])


def stft_gradients(x, step, window, ct=None, late=False, **attributes):
    """The gradients to the signal and the window in float64; `late` leaves the step to when the model runs."""
    given = {"x": x, "window": window, **({"step": np.asarray(step)} if late else {})}
    declared = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in given.items()
    ]
    fixed = [] if late else [numpy_helper.from_array(np.asarray(step), "step")]
    node = helper.make_node("STFT", ["x", "step", "window"], ["y"], **attributes)
    y = helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, ["b", "t", "f", 2])
    graph = helper.make_graph([node], "stft", declared, [y], fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    gradient = gradgen.vjp(model, wrt=["x", "window"])
    # onnx's own inference takes an absent `onesided` for 0, and calls the right shape of the result a conflict.
    onnx.checker.check_model(gradient, full_check="onesided" in attributes)
    run = session(gradient)
    seed = np.ones(session(model).run(None, given)[0].shape) if ct is None else ct
    return run.run(["grad_x", "grad_window"], {**given, "grad_y": seed})


@pytest.mark.parametrize(("onesided", "parts"), [(1, 1), (0, 1), (0, 2)])
@pytest.mark.parametrize(("size", "length", "step"), [(12, 4, 3), (11, 5, 2), (9, 3, 5), (7, 7, 1), (13, 4, 4)])
@pytest.mark.parametrize("late", [False, True])
def test_stft(onesided, parts, size, length, step, late):
    x, window = RNG.standard_normal((2, size, parts)), RNG.standard_normal(length)
    ct = RNG.standard_normal(short_time(x, window, step, onesided).shape)
    dx, dwindow = stft_gradients(x, step, window, ct, late, onesided=onesided)
    want = of_basis(lambda v: short_time(v, window, step, onesided), x.shape, ct)
    np.testing.assert_allclose(dx, want, rtol=1e-6, atol=1e-9)
    want = of_basis(lambda w: short_time(x, w, step, onesided), window.shape, ct)
    np.testing.assert_allclose(dwindow, want, rtol=1e-6, atol=1e-9)


def test_stft_is_one_sided_by_default():
    x, window = RNG.standard_normal((1, 8, 1)), np.ones(4)
    want = of_basis(lambda v: short_time(v, window, 2, 1), x.shape, np.ones((1, 3, 3, 2)))
    np.testing.assert_allclose(stft_gradients(x, 2, window)[0], want, rtol=1e-6, atol=1e-9)


def test_samples_behind_the_last_frame_have_no_gradient():
    dx, _ = stft_gradients(RNG.standard_normal((1, 11, 1)), 4, np.ones(4))
    assert dx[0, :8].all() and not dx[0, 8:].any()
