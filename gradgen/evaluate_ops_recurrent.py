# RNN, GRU, LSTM with every attribute, Scan with axes and directions, Loop; SequenceInsert and Optional.
"""Replacements for `onnx.reference.ReferenceEvaluator(new_ops=...)`: the recurrent operators in the dtype of the input.

The reference evaluator's own know neither activations, clip, sequence_lens nor linear_before_reset. Where the standard
is silent they agree with onnxruntime: a sequence of length 0 leaves zeros in every output.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_loop import Loop as ReferenceLoop
from onnx.reference.ops.op_scan import Scan as ReferenceScan

from gradgen.evaluate_ops import Op

Activation = Callable[[np.ndarray], np.ndarray]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


# By lower-case name: the function, and its default alpha and beta where it has them. The default of ThresholdedRelu,
# Affine and ScaledTanh is that of onnxruntime.
_ACTIVATIONS: dict[str, tuple[Callable[..., np.ndarray], float | None, float | None]] = {
    "relu": (lambda x: np.maximum(x, 0), None, None),
    "tanh": (np.tanh, None, None),
    "sigmoid": (_sigmoid, None, None),
    "softsign": (lambda x: x / (1 + np.abs(x)), None, None),
    "softplus": (lambda x: np.logaddexp(x, 0), None, None),
    "affine": (lambda x, alpha, beta: alpha * x + beta, 0.0, 0.0),
    "scaledtanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), 0.0, 0.0),
    "hardsigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), 0.2, 0.5),
    "leakyrelu": (lambda x, alpha: np.where(x >= 0, x, alpha * x), 0.01, None),
    "thresholdedrelu": (lambda x, alpha: np.where(x > alpha, x, 0), 0.0, None),
    "elu": (lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0))), 1.0, None),
}


def activations(names: Any, alphas: Any, betas: Any) -> list[Activation]:
    """The activation functions; each takes the next alpha and beta if it has one."""
    alpha_left, beta_left = iter(alphas or ()), iter(betas or ())

    def one(name: str) -> Activation:
        fn, alpha, beta = _ACTIVATIONS[name.lower()]
        given: dict[str, float] = {}
        if alpha is not None:
            given["alpha"] = next(alpha_left, alpha)
        if beta is not None:
            given["beta"] = next(beta_left, beta)
        return lambda x: fn(x, **given)

    return [one(name) for name in names]


def _clipped(fn: Activation, clip: float) -> Activation:
    return lambda x: fn(np.clip(x, -clip, clip))


class _Recurrent(Op):
    """Loops over directions and time; a subclass computes one step of one direction.

    `step` takes the projected input, the states and the direction's parameters, and returns the next states.
    """

    gates = 1
    default: tuple[str, ...] = ("Tanh",)

    def _run(
        self, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, *initial: Any, **attributes: Any
    ) -> tuple:
        given = {k: v for k, v in attributes.items() if v is not None}
        direction, batch_first = given.get("direction", "forward"), given.get("layout", 0) == 1
        if batch_first:
            x = np.swapaxes(x, 0, 1)
            initial = tuple(v if k > 1 or v is None else np.swapaxes(v, 0, 1) for k, v in enumerate(initial))
        count, size = (2 if direction == "bidirectional" else 1), r.shape[-1]
        names = given.get("activations") or self.default * count
        functions = activations(names, given.get("activation_alpha"), given.get("activation_beta"))
        clip = given.get("clip") or np.inf
        # The input of every activation of a gate is clipped; that of LSTM's h, the cell state, is not.
        functions = [fn if k % len(self.default) == 2 else _clipped(fn, clip) for k, fn in enumerate(functions)]
        lengths = np.full(x.shape[1], len(x)) if lengths is None else lengths
        y = np.zeros((len(x), count, x.shape[1], size), x.dtype)
        last = np.zeros((self.states, count, x.shape[1], size), x.dtype)
        for d in range(count):
            bias = np.zeros(2 * self.gates * size, x.dtype) if b is None else b[d]
            peepholes = initial[2][d] if len(initial) > 2 and initial[2] is not None else None
            states = [
                initial[k][d] if k < len(initial) and initial[k] is not None else np.zeros_like(last[0, d])
                for k in range(self.states)
            ]
            backward = direction == "reverse" or d == 1
            part = functions[d * len(self.default) : (d + 1) * len(self.default)]
            cell = self.cell(r[d], np.split(bias, 2), peepholes, part, given)
            for t in reversed(range(len(x))) if backward else range(len(x)):
                valid = (t < lengths)[:, None]
                states = [
                    np.where(valid, new, old) for new, old in zip(cell(x[t] @ w[d].T, *states), states, strict=True)
                ]
                y[t, d] = np.where(valid, states[0], 0)
            last[:, d] = [np.where((lengths > 0)[:, None], s, 0) for s in states]
        results = [y.transpose(2, 0, 1, 3) if batch_first else y]
        results += [s.transpose(1, 0, 2) if batch_first else s for s in last]
        return tuple(v.astype(x.dtype) for v in results[: len(self.onnx_node.output)])

    states = 1

    @abstractmethod
    def cell(
        self, r: np.ndarray, bias: list[np.ndarray], peepholes: Any, functions: list[Activation], given: dict[str, Any]
    ) -> Callable[..., Iterator[np.ndarray] | list[np.ndarray]]:
        """One step of the layer, with its weights, as a function of the input's share and the states."""


class RNN(_Recurrent):
    def cell(self, r: Any, bias: Any, peepholes: Any, functions: Any, given: Any) -> Any:
        def step(x: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
            return [functions[0](x + h @ r.T + bias[0] + bias[1])]

        return step


class GRU(_Recurrent):
    gates = 3
    default = ("Sigmoid", "Tanh")

    def cell(self, r: Any, bias: Any, peepholes: Any, functions: Any, given: Any) -> Any:
        rz, rr, rn = np.split(r, 3)
        wbz, wbr, wbn, rbz, rbr, rbn = (part for b in bias for part in np.split(b, 3))

        def step(x: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
            xz, xr, xn = np.split(x, 3, axis=-1)
            z = functions[0](xz + h @ rz.T + wbz + rbz)
            reset = functions[0](xr + h @ rr.T + wbr + rbr)
            late = given.get("linear_before_reset", 0)
            inner = reset * (h @ rn.T + rbn) if late else (reset * h) @ rn.T + rbn
            return [(1 - z) * functions[1](xn + inner + wbn) + z * h]

        return step


class LSTM(_Recurrent):
    gates = 4
    states = 2
    default = ("Sigmoid", "Tanh", "Tanh")

    def cell(self, r: Any, bias: Any, peepholes: Any, functions: Any, given: Any) -> Any:
        pi, po, pf = np.zeros((3, 1)) if peepholes is None else np.split(peepholes, 3)
        f, g, h_of = functions

        def step(x: np.ndarray, h: np.ndarray, c: np.ndarray) -> list[np.ndarray]:
            i, o, forget, candidate = np.split(x + h @ r.T + bias[0] + bias[1], 4, axis=-1)
            i = f(i + pi * c)
            forget = 1 - i if given.get("input_forget", 0) else f(forget + pf * c)
            new = forget * c + i * g(candidate)
            return [f(o + po * new) * h_of(new), new]

        return step


class Scan(ReferenceScan):
    """Scan over any axis and in both directions, also over no steps at all."""

    op_domain = ""
    body: Any
    _run_body: Any

    def __init__(self, onnx_node: Any, run_params: Any) -> None:
        OpRun.__init__(self, onnx_node, run_params)
        self.input_names, self.output_names = self.body.input_names, self.body.output_names

    def _run(self, *args: Any, context: Any = None, bindings: Any = None, **attributes: Any) -> tuple:
        count = len(args) - attributes["num_scan_inputs"]
        stacked = len(self.output_names) - count

        def listed(name: str, length: int) -> list[int]:
            return list(attributes.get(name) or [0] * length)

        sequences = []
        for value, axis, back in zip(
            args[count:],
            listed("scan_input_axes", len(args) - count),
            listed("scan_input_directions", len(args) - count),
            strict=True,
        ):
            moved = np.moveaxis(value, axis, 0)
            sequences.append(moved[::-1] if back else moved)
        states, collected = list(args[:count]), [[] for _ in range(stacked)]  # type: ignore[var-annotated]
        steps = len(sequences[0])
        # Without steps, the body's results on zeros say what shape an element would have.
        for t in range(max(steps, 1)):
            elements = [s[t] if steps else np.zeros(s.shape[1:], s.dtype) for s in sequences]
            feeds = {**(context or {}), **dict(zip(self.input_names, [*states, *elements], strict=True))}
            results = self._run_body(feeds, bindings=bindings)
            if steps:
                states = list(results[:count])
            for items, item in zip(collected, results[count:], strict=True):
                items.append(item)
        outputs = []
        for items, axis, back in zip(
            collected,
            listed("scan_output_axes", stacked),
            listed("scan_output_directions", stacked),
            strict=True,
        ):
            outputs.append(np.stack(items[::-1] if back else items, axis=axis) if steps else _nothing(items[0], axis))
        return (*states, *outputs)


class Loop(ReferenceLoop):
    """Loop, also without a condition, and with stacked outputs of any rank and of no iteration."""

    op_domain = ""
    body: Any
    _run_body: Any

    def _run(self, *args: Any, context: Any = None, bindings: Any = None, **_: Any) -> tuple:
        trips, condition, *states = args
        going, names = condition is None or bool(condition), self.body.input_names
        collected: list[list] = []

        def iterate(t: int) -> list:
            feeds = zip(names, [np.array(t, np.int64), np.array(going), *states], strict=True)
            return list(self._run_body({**(context or {}), **dict(feeds)}, bindings=bindings))

        count = len(states)
        while going and (trips is None or len(collected) < trips):
            results = iterate(len(collected))
            going, states = bool(results[0]), results[1 : 1 + count]
            collected.append(results[1 + count :])
        if collected:
            stacked = [np.stack(items) for items in zip(*collected, strict=True)]
        elif len(self.body.output_names) > 1 + count:
            stacked = [_nothing(item, 0) for item in iterate(0)[1 + count :]]
        else:
            stacked = []
        return (*states, *stacked)


class SequenceInsert(Op):
    """Also at the end, where the reference evaluator's own inserts in front."""

    def _run(self, sequence: Any, tensor: Any, position: Any = None) -> tuple:
        place = len(sequence) if position is None else int(np.asarray(position).item())
        place += len(sequence) if place < 0 else 0
        return ([*sequence[:place], tensor, *sequence[place:]],)


class Optional(Op):
    """The value itself, as OptionalGetElement and OptionalHasElement read it, and not a list with it."""

    def _run(self, x: Any = None, type: Any = None) -> tuple:
        return (x,)


def _nothing(element: np.ndarray, axis: int) -> np.ndarray:
    empty = np.expand_dims(element, axis)
    return np.take(empty, np.zeros(0, np.int64), axis=axis)


REPLACEMENTS: tuple[type[OpRun], ...] = (GRU, LSTM, Loop, Optional, RNN, Scan, SequenceInsert)
