"""What the rules of recurrent ops share: activations with their derivatives, and a layer's directions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgen.errors import GradientError
from gradgen.rules.lang import op, scan
from gradgen.rules.library import expand_like, many_rows, mask, select, sum_rows

_END = 2**31 - 1
_RANKS = {"B": 2, "P": 2, "sequence_lens": 1}  # of the inputs; the others have three dimensions


@dataclass(frozen=True)
class Activation:
    """An activation function of a recurrent op.

    Attributes:
        value: its value, of the input.
        slope: its derivative, of the input and the value.
    """

    value: Callable[[Any], Any]
    slope: Callable[[Any, Any], Any]


def _elu(alpha: float) -> Activation:
    def slope(x: Any, y: Any) -> Any:
        positive = mask(op.Greater(x, 0.0), x)
        return positive + (op.Exp(op.Min(x, 0.0)) - positive) * alpha

    return Activation(lambda x: op.Elu(x, alpha=alpha), slope)


def _leaky(alpha: float) -> Activation:
    def slope(x: Any, y: Any) -> Any:
        positive = mask(op.Greater(x, 0.0), x)
        return positive + (1.0 - positive) * alpha

    return Activation(lambda x: op.LeakyRelu(x, alpha=alpha), slope)


def _scaled_tanh(alpha: float, beta: float) -> Activation:
    def slope(x: Any, y: Any) -> Any:
        t = op.Tanh(x * beta)
        return (1.0 - t * t) * (alpha * beta)

    return Activation(lambda x: op.Tanh(x * beta) * alpha, slope)


# By lower-case name: how an activation is made, and the defaults of the parameters that it takes; None where the
# standard and onnxruntime differ.
ACTIVATIONS: dict[str, tuple[Callable[..., Activation], dict[str, float | None]]] = {
    "relu": (lambda: Activation(op.Relu, lambda x, y: mask(op.Greater(y, 0.0), y)), {}),
    "tanh": (lambda: Activation(op.Tanh, lambda x, y: 1.0 - y * y), {}),
    "sigmoid": (lambda: Activation(op.Sigmoid, lambda x, y: y * (1.0 - y)), {}),
    "softsign": (lambda: Activation(op.Softsign, lambda x, y: op.Reciprocal(op.Abs(x) + 1.0) ** 2.0), {}),
    "softplus": (lambda: Activation(op.Softplus, lambda x, y: op.Sigmoid(x)), {}),
    "affine": (
        lambda alpha, beta: Activation(
            lambda x: x * alpha + beta, lambda x, y: expand_like(op.CastLike(np.asarray(alpha), x), x)
        ),
        {"alpha": None, "beta": None},
    ),
    "scaledtanh": (_scaled_tanh, {"alpha": None, "beta": None}),
    "hardsigmoid": (
        lambda alpha, beta: Activation(
            lambda x: op.HardSigmoid(x, alpha=alpha, beta=beta),
            lambda x, y: mask(op.And(op.Greater(y, 0.0), op.Less(y, 1.0)), y) * alpha,
        ),
        {"alpha": 0.2, "beta": 0.5},
    ),
    "leakyrelu": (_leaky, {"alpha": 0.01}),
    "thresholdedrelu": (
        lambda alpha: Activation(
            lambda x: op.ThresholdedRelu(x, alpha=alpha), lambda x, y: mask(op.Greater(x, alpha), x)
        ),
        {"alpha": None},
    ),
    "elu": (_elu, {"alpha": 1.0}),
}


def activations_of(
    names: Sequence[str], count: int, direction: str, alphas: Sequence[float] | None, betas: Sequence[float] | None
) -> list[Activation]:
    """The activations of a node's directions, `count` each: each takes the next alpha and beta where it has one."""
    wanted = count * (2 if direction == "bidirectional" else 1)
    names = (list(names) * 2)[:wanted]
    left = {"alpha": list(alphas or ()), "beta": list(betas or ())}
    made = []
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise GradientError(f"the activation '{name}' of a recurrent op is not one of the standard's")
        make, defaults = ACTIVATIONS[name.lower()]
        given: dict[str, float] = {}
        for parameter, default in defaults.items():
            value = left[parameter].pop(0) if left[parameter] else default
            if value is None:
                raise GradientError(
                    f"the activation '{name}' has no activation_{parameter}, and runtimes disagree about what it is "
                    "then; write it into the model"
                )
            given[parameter] = value
        made.append(make(**given))
    return made


def gate(activation: Activation, x: Any, clip: float | None) -> tuple[Any, Any]:
    """The value and the derivative of an activation whose input is clipped."""
    if not clip:
        y = activation.value(x)
        return y, activation.slope(x, y)
    bounded = op.Clip(x, op.CastLike(np.float32(-clip), x), op.CastLike(np.float32(clip), x))
    y = activation.value(bounded)
    return y, activation.slope(bounded, y) * mask(op.LessOrEqual(op.Abs(x), float(clip)), x)


def each(x: Any, axis: int, count: int) -> list[Any]:
    """The parts of a value along the axis of directions; `count` of None where there is no value."""
    if x is None:
        return [None] * count
    parts = [x] if count == 1 else op.Split(x, axis=axis, num_outputs=count, _outputs=count)
    return [op.Squeeze(p, [axis]) for p in parts]


def joined(parts: Sequence[Any], axis: int) -> Any:
    """What `each` takes apart."""
    return op.Concat(*[op.Unsqueeze(p, [axis]) for p in parts], axis=axis)


def split(x: Any, count: int, axis: int = -1) -> list[Any]:
    """Equal parts along an axis."""
    return op.Split(x, axis=axis, num_outputs=count, _outputs=count)


def total(parts: Sequence[Any]) -> Any:
    """The sum of what there is, or None."""
    present = [p for p in parts if p is not None]
    result = present[0] if present else None
    for p in present[1:]:
        result = result + p
    return result


def product(rows: Any, columns: Any) -> Any:
    """The sum over steps and batch of the outer products: [..., G] and [..., I] give [G, I]."""
    return op.Gemm(op.Flatten(rows, axis=2), op.Flatten(columns, axis=2), transA=1)


def reduced(x: Any) -> Any:
    """The sum over steps and batch."""
    return sum_rows(op.Flatten(x, axis=2)) if many_rows(x) else op.ReduceSum(x, [0, 1], keepdims=0)


@dataclass
class Direction:
    """One direction of a layer, with what its backward pass reads.

    Attributes:
        W, R, B, P: the parameters; B and P may be None.
        X: the input [steps, batch, input]. Where sequences are shorter, 0.
        before: the hidden state before each step; None in a forward pass.
        initial_h, initial_c: the states before the first step.
        ct: the cotangent of each step's hidden state, or None.
        last_h, last_c: the cotangents of the last states, never None.
        functions: its activations.
        valid: 1 where a step is inside its sequence, else 0, [steps, batch, 1]; None where all are.
        backward: whether the layer runs from the last step to the first.
    """

    W: Any
    R: Any
    B: Any
    P: Any
    X: Any
    before: Any
    initial_h: Any
    initial_c: Any
    ct: Any
    last_h: Any
    last_c: Any
    functions: list[Activation]
    valid: Any
    backward: bool

    def within(self, x: Any) -> Any:
        """x, but 0 at steps beyond the end of a sequence."""
        return x if self.valid is None else x * self.valid

    def kept(self, x: Any) -> Any:
        """What the cotangent of a state is multiplied by: x, but 1 beyond the end, where the state is handed on."""
        return x if self.valid is None else x * self.valid + (1.0 - self.valid)

    def projected(self) -> Any:
        """The part of the gates' inputs that the step's input gives, without bias."""
        return op.MatMul(self.X, op.Transpose(self.W, perm=[1, 0]))

    def forward(self, step: Callable[..., Any], states: list[Any], sequences: list[Any]) -> tuple[list[Any], list[Any]]:
        """Scan in the direction of the layer."""
        return scan(step, states, sequences, reverse=self.backward)

    def reverse(self, step: Callable[..., Any], states: list[Any], sequences: list[Any]) -> tuple[list[Any], list[Any]]:
        """Scan against the direction of the layer. The first of the sequences that the step gets is the cotangent."""
        listed = sequences if self.ct is None else [self.ct, *sequences]

        def body(states: list[Any], elements: list[Any]) -> Any:
            ct, rest = (None, elements) if self.ct is None else (elements[0], elements[1:])
            return step([states[0] if ct is None else states[0] + ct, *states[1:]], rest)

        return scan(body, states, listed, reverse=not self.backward)


def directions(
    cotangents: Sequence[Any],
    inputs: Mapping[str, Any],
    Y: Any,
    functions: list[Activation],
    direction: str,
    layout: int,
) -> list[Direction]:
    """A layer's directions, with layout 1 brought to layout 0.

    Args:
        cotangents: of Y, Y_h and, for LSTM, Y_c.
        inputs: the node's inputs by name; those that an op does not have may be left out.
        Y: the hidden states after all steps, 0 beyond the end of a sequence; None in a forward pass.
        functions: the activations of all directions.
        direction, layout: the attributes.
    """
    count = 2 if direction == "bidirectional" else 1

    ranks = [(Y, 4), (cotangents[0], 4), *((ct, 3) for ct in cotangents[1:])]
    for x, rank in (*ranks, *((x, _RANKS.get(name, 3)) for name, x in inputs.items())):
        if x is not None and x.shape is None:
            x.shape = (None,) * rank

    def laid(x: Any, perm: list[int]) -> Any:
        return x if x is None or not layout else op.Transpose(x, perm=perm)

    X, ct, Y = laid(inputs["X"], [1, 0, 2]), laid(cotangents[0], [1, 2, 0, 3]), laid(Y, [1, 2, 0, 3])
    states = [inputs.get("initial_h"), inputs.get("initial_c"), *cotangents[1:]]
    h, c, last_h, last_c = [laid(x, [1, 0, 2]) for x in (*states, None)[:4]]
    valid, inside, nonempty = _lengths(inputs.get("sequence_lens"), X)
    if inside is not None:
        X, ct = select(inside, X), None if ct is None else select(op.Unsqueeze(inside, [1]), ct)
        last_h, last_c = [None if x is None else x * nonempty for x in (last_h, last_c)]
    sizes = op.Concat(op.Shape(X, start=1, end=2), op.Shape(inputs["R"], start=2), axis=0)
    zeros = op.Expand(op.CastLike(np.zeros((), np.float32), X), sizes)
    split_first = [inputs["W"], inputs["R"], inputs.get("B"), inputs.get("P"), h, c, last_h, last_c]
    made = []
    for d, (*parts, y, dy) in enumerate(
        zip(*(each(x, 0, count) for x in split_first), each(Y, 1, count), each(ct, 1, count), strict=True)
    ):
        W, R, B, P, *rest = parts
        first_h, first_c, end_h, end_c = [zeros if x is None else x for x in rest]
        backward, size = direction == "reverse" or d == 1, len(functions) // count
        h = None if y is None else before(y, first_h, valid, backward)
        mine = functions[d * size : (d + 1) * size]
        made.append(Direction(W, R, B, P, X, h, first_h, first_c, dy, end_h, end_c, mine, valid, backward))
    return made


def _lengths(lengths: Any, X: Any) -> tuple[Any, Any, Any]:
    """Which steps are inside their sequence, as numbers and as booleans, and which sequences have any; None for all."""
    steps = X.shape[0]
    if lengths is None or (lengths.const is not None and isinstance(steps, int) and np.all(lengths.const == steps)):
        return None, None, None
    count = op.Cast(op.Shape(X, start=0, end=1), to=6)
    places = op.Range(np.int32(0), op.Squeeze(count, [0]), np.int32(1))
    inside = op.Unsqueeze(op.Less(op.Unsqueeze(places, [1]), op.Unsqueeze(lengths, [0])), [2])
    nonempty = op.Unsqueeze(op.CastLike(op.Greater(lengths, np.int32(0)), X), [1])
    return op.CastLike(inside, X), inside, nonempty


def before(y: Any, initial: Any, valid: Any, backward: bool) -> Any:
    """The state before each step, from those after each, which are 0 at steps that are not valid."""
    first = op.Unsqueeze(initial, [0])
    if not backward:
        return op.Slice(op.Concat(first, y, axis=0), [0], [-1], [0])
    if valid is None:
        return op.Slice(op.Concat(y, first, axis=0), [1], [_END], [0])
    # Each sequence begins at its own end, and what Y holds behind that is 0.
    later, following = [op.Slice(op.Pad(x, [0, 0, 0, 1, 0, 0]), [1], [_END], [0]) for x in (y, valid)]
    return later + (valid - following) * first


def gathered(found: Sequence[dict[str, Any]], layout: int) -> tuple[Any, ...]:
    """The results of all directions as those of the node: X, W, R, B, initial_h, initial_c, P."""
    dX = total([f["X"] for f in found])
    results = [op.Transpose(dX, perm=[1, 0, 2]) if layout else dX]
    for name in ("W", "R", "B", "initial_h", "initial_c", "P"):
        parts = [f.get(name) for f in found]
        result = None if parts[0] is None else joined(parts, 1 if layout and name.startswith("initial") else 0)
        results.append(result)
    return tuple(results)


def handed_out(found: Sequence[tuple[list[Any], list[Any]]]) -> tuple[Any, ...]:
    """The results of a node that saves: Y, its last states, and what is saved, [directions, steps, batch, …].

    Args:
        found: the last states and what was collected in each direction, hidden states first.
    """
    last, collected = zip(*found, strict=True)
    Y, *saved = zip(*collected, strict=True)
    return (joined(Y, 1), *(joined(parts, 0) for parts in (*zip(*last, strict=True), *saved)))
