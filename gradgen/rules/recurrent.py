"""Rules of RNN, GRU and LSTM.

In the general form the forward node stays as it is. The hidden states are its output Y, so that the gates of all steps
are recomputed at once; LSTM's cell states come out of a light Scan. In the saved form of GRU and LSTM a Scan stands in
for the forward node and hands out the gates: where a step is large, that costs less than to compute them twice. What
each step's cotangents are multiplied by is computed for all steps at once too, so that the backward Scan does no more
than products and sums, and the gradients of the weights are one product over all steps. Everything in between is laid
out as [steps, batch, …], and one direction at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradgen.rules.lang import op, traced
from gradgen.rules.library import zeros_like
from gradgen.rules.recurrent_layer import (
    Activation,
    Direction,
    activations_of,
    before,
    directions,
    each,
    gate,
    gathered,
    handed_out,
    product,
    reduced,
    split,
    total,
)


@traced("dX", "dW", "dR", "dB", "dinitial_h")
def rnn_vjp(dY, dY_h, X, W, R, B, sequence_lens, initial_h, Y, *,
            activations, activation_alpha, activation_beta, clip, direction, layout):  # fmt: skip
    """a_t = x_t·Wᵀ + h_(t−1)·Rᵀ + b, h_t = f(a_t): da_t = dh_t·f′(a_t), dh_(t−1) = da_t·R."""
    functions = activations_of(activations or ["Tanh"], 1, direction, activation_alpha, activation_beta)
    inputs = {"X": X, "W": W, "R": R, "B": B, "sequence_lens": sequence_lens, "initial_h": initial_h}
    layers = directions([dY, dY_h], inputs, Y, functions, direction, layout)
    return gathered([_rnn(layer, clip) for layer in layers], layout)[:5]


def _rnn(layer: Direction, clip: float | None) -> dict[str, Any]:
    inputs = layer.projected() + op.MatMul(layer.before, op.Transpose(layer.R, perm=[1, 0]))
    _, slope = gate(layer.functions[0], _biased(inputs, layer.B), clip)
    handed = [] if layer.valid is None else [1.0 - layer.valid]

    def step(states: list[Any], elements: list[Any]) -> Any:
        gates = states[0] * elements[0]
        return [_handed(op.MatMul(gates, layer.R), states[0], elements[1:])], [gates]

    (dh,), (gates,) = layer.reverse(step, [layer.last_h], [layer.within(slope), *handed])
    return {**_weights(layer, gates, gates, layer.before), "initial_h": dh}


def _biased(x: Any, B: Any) -> Any:
    return x if B is None else x + total(split(B, 2))


def _handed(dh: Any, ct: Any, elements: Sequence[Any]) -> Any:
    """The cotangent of the state before a step: beyond the end of a sequence it is that of the state after it."""
    return dh + ct * elements[0] if elements else dh


def _weights(layer: Direction, dx: Any, dh: Any, before: Any) -> dict[str, Any]:
    """The gradients that follow from those of the gates' inputs: on the side of the step's input, and of the state."""
    biases = [reduced(dx), reduced(dx) if dx is dh else reduced(dh)]
    return {
        "X": op.MatMul(dx, layer.W),
        "W": product(dx, layer.X),
        "R": product(dh, before),
        "B": None if layer.B is None else op.Concat(*biases, axis=0),
    }


@traced("dX", "dW", "dR", "dB", "dinitial_h")
def gru_vjp(dY, dY_h, X, W, R, B, sequence_lens, initial_h, Y, *,
            activations, activation_alpha, activation_beta, clip, direction, layout, linear_before_reset):  # fmt: skip
    """h_t = (1 − z)·n + z·h_(t−1): dn = dh·(1 − z)·n′, dz = dh·(h_(t−1) − n)·z′, dr from dn, dh_(t−1) from all."""
    functions = activations_of(activations or ["Sigmoid", "Tanh"], 2, direction, activation_alpha, activation_beta)
    inputs = {"X": X, "W": W, "R": R, "B": B, "sequence_lens": sequence_lens, "initial_h": initial_h}
    layers = directions([dY, dY_h], inputs, Y, functions, direction, layout)
    cell = _gru_late if linear_before_reset else _gru
    return gathered([cell(layer, clip) for layer in layers], layout)[:5]


def _gru(layer: Direction, clip: float | None, saved: Sequence[Any] | None = None) -> dict[str, Any]:
    """n = g(x·Wnᵀ + (r·h)·Rnᵀ + b)."""
    h = layer.before
    Rz, Rr, Rn = split(layer.R, 3, axis=0)
    Rzr = op.Concat(Rz, Rr, axis=0)
    if saved is None:
        xz, xr, xn = split(_biased(layer.projected(), layer.B), 3)
        hz, hr = split(op.MatMul(h, op.Transpose(Rzr, perm=[1, 0])), 2)
        z, dz = gate(layer.functions[0], xz + hz, clip)
        r, dr = gate(layer.functions[0], xr + hr, clip)
        inner = r * h
        n, dn = gate(layer.functions[1], xn + op.MatMul(inner, op.Transpose(Rn, perm=[1, 0])), clip)
    else:
        z, r, n, inner = saved
        dz, dr, dn = _slopes((layer.functions[0], z), (layer.functions[0], r), (layer.functions[1], n))
    sequences = [layer.within(dn * (1.0 - z)), layer.within(dz * (h - n)), dr * h, r, layer.kept(z)]

    def step(states: list[Any], elements: list[Any]) -> Any:
        of_n, of_z, of_r, r, keep = elements
        dn = states[0] * of_n
        inner = op.MatMul(dn, Rn)
        dzr = op.Concat(states[0] * of_z, inner * of_r, axis=-1)
        dh = states[0] * keep + inner * r + op.MatMul(dzr, Rzr)
        return [dh], [dzr, dn]

    (dh,), (dzr, dn) = layer.reverse(step, [layer.last_h], sequences)
    gates = op.Concat(dzr, dn, axis=-1)
    found = _weights(layer, gates, gates, h)
    found["R"] = op.Concat(product(dzr, h), product(dn, inner), axis=0)
    return {**found, "initial_h": dh}


def _gru_late(layer: Direction, clip: float | None, saved: Sequence[Any] | None = None) -> dict[str, Any]:
    """n = g(x·Wnᵀ + bx + r·(h·Rnᵀ + bh)): the reset gate is applied to the product."""
    h = layer.before
    if saved is None:
        inputs, state = layer.projected(), op.MatMul(h, op.Transpose(layer.R, perm=[1, 0]))
        if layer.B is not None:
            bx, bh = split(layer.B, 2)
            inputs, state = inputs + bx, state + bh
        (xz, xr, xn), (hz, hr, hn) = split(inputs, 3), split(state, 3)
        z, dz = gate(layer.functions[0], xz + hz, clip)
        r, dr = gate(layer.functions[0], xr + hr, clip)
        n, dn = gate(layer.functions[1], xn + r * hn, clip)
    else:
        z, r, n, hn = saved
        dz, dr, dn = _slopes((layer.functions[0], z), (layer.functions[0], r), (layer.functions[1], n))
    of_n = layer.within(dn * (1.0 - z))
    of_zr = op.Concat(layer.within(dz * (h - n)), of_n * hn * dr, axis=-1)
    sequences = [op.Concat(of_zr, of_n * r, axis=-1), layer.kept(z)]

    def step(states: list[Any], elements: list[Any]) -> Any:
        gates = op.Concat(states[0], states[0], states[0], axis=-1) * elements[0]
        return [states[0] * elements[1] + op.MatMul(gates, layer.R)], [gates, states[0]]

    (dh,), (gates, cts) = layer.reverse(step, [layer.last_h], sequences)
    of_x = op.Concat(cts, cts, cts, axis=-1) * op.Concat(of_zr, of_n, axis=-1)
    return {**_weights(layer, of_x, gates, h), "initial_h": dh}


def _usual(
    activations: list[str], cotangents: list[Any], inputs: dict[str, Any], Y: Any, direction: str
) -> list[Direction]:
    """The directions of a layer with the default activations, laid out as [steps, batch, …]."""
    functions = activations_of(activations, len(activations), direction, None, None)
    return directions(cotangents, inputs, Y, functions, direction, 0)


def _slopes(*gates: tuple[Activation, Any]) -> list[Any]:
    """The derivatives of activations by their values alone, as those of Sigmoid and Tanh are."""
    return [activation.slope(None, y) for activation, y in gates]


@traced("Y", "Y_h", "z", "r", "n", "inner")
def gru_fwd(X, W, R, B, initial_h, *, direction, linear_before_reset):
    """The layer with its default activations; saves the gates of each step [directions, steps, batch, hidden], and what
    is multiplied: r·h, or with the reset after the product, h·Rnᵀ + b."""
    inputs = {"X": X, "W": W, "R": R, "B": B, "initial_h": initial_h}
    layers = _usual(["Sigmoid", "Tanh"], [None, None], inputs, None, direction)
    return handed_out([_gru_gates(layer, bool(linear_before_reset)) for layer in layers])


def _gru_gates(layer: Direction, late: bool) -> tuple[list[Any], list[Any]]:
    """The last state, and for each step the state, the gates and what is multiplied for n, by a Scan.

    `late` is whether the reset gate is applied to the product. Else n has a product of its own.
    """
    if late:
        R, Rn = op.Transpose(layer.R, perm=[1, 0]), None
        bx, bh = [None, None] if layer.B is None else split(layer.B, 2)
        inputs = total([layer.projected(), bx])
    else:
        Rz, Rr, Rn = split(layer.R, 3, axis=0)
        R, Rn = op.Transpose(op.Concat(Rz, Rr, axis=0), perm=[1, 0]), op.Transpose(Rn, perm=[1, 0])
        inputs, bh = _biased(layer.projected(), layer.B), None

    def step(states: list[Any], elements: list[Any]) -> Any:
        (h,) = states
        xz, xr, xn = split(elements[0], 3)
        hz, hr, *rest = split(total([op.MatMul(h, R), bh]), 3 if late else 2)
        z, r = op.Sigmoid(xz + hz), op.Sigmoid(xr + hr)
        inner = rest[0] if late else r * h
        n = op.Tanh(xn + (r * inner if late else op.MatMul(inner, Rn)))
        h = n + z * (h - n)
        return [h], [h, z, r, n, inner]

    return layer.forward(step, [layer.initial_h], [inputs])


@traced("dX", "dW", "dR", "dB", "dinitial_h")
def gru_vjp__saved(
    dY, dY_h, X, W, R, B, initial_h, Y, z, r, n, inner, *, direction, linear_before_reset
):  # fmt: skip
    """As the general form, of the gates that the forward pass has saved."""
    inputs = {"X": X, "W": W, "R": R, "B": B, "initial_h": initial_h}
    layers = _usual(["Sigmoid", "Tanh"], [dY, dY_h], inputs, Y, direction)
    cell = _gru_late if linear_before_reset else _gru
    saved = zip(*(each(x, 0, len(layers)) for x in (z, r, n, inner)), strict=True)
    return gathered([cell(layer, None, s) for layer, s in zip(layers, saved, strict=True)], 0)[:5]


@traced("dX", "dW", "dR", "dB", "dinitial_h", "dinitial_c", "dP")
def lstm_vjp(dY, dY_h, dY_c, X, W, R, B, sequence_lens, initial_h, initial_c, P, Y, *, activations, activation_alpha,
             activation_beta, clip, direction, layout, input_forget):  # fmt: skip
    """c_t = f·c_(t−1) + i·g, h_t = o·h(c_t): do = dh·h(c_t)·o′; dc += dh·o·h′(c_t); di, df, dg, dc_(t−1) from dc."""
    functions = activations_of(
        activations or ["Sigmoid", "Tanh", "Tanh"], 3, direction, activation_alpha, activation_beta
    )
    inputs = {"X": X, "W": W, "R": R, "B": B, "sequence_lens": sequence_lens, "initial_h": initial_h}
    inputs |= {"initial_c": initial_c, "P": P}
    layers = directions([dY, dY_h, dY_c], inputs, Y, functions, direction, layout)
    return gathered([_lstm(layer, clip, bool(input_forget)) for layer in layers], layout)


def _lstm(layer: Direction, clip: float | None, coupled: bool, saved: Sequence[Any] | None = None) -> dict[str, Any]:
    pi, po, pf = [None] * 3 if layer.P is None else split(layer.P, 3)
    act, act_g, act_h = layer.functions
    if saved is None:
        inputs = layer.projected() + op.MatMul(layer.before, op.Transpose(layer.R, perm=[1, 0]))
        ai, ao, af, ag = split(_biased(inputs, layer.B), 4)

        def enter(c: Any, ai: Any, af: Any) -> tuple[Any, Any, Any, Any]:
            """The input and forget gates with their derivatives; coupled, the latter's is part of the former's."""
            i, di = gate(act, _peep(ai, pi, c), clip)
            return (i, di, 1.0 - i, None) if coupled else (i, di, *gate(act, _peep(af, pf, c), clip))

        g, dg = gate(act_g, ag, clip)
        c_before, c = _cells(layer, enter, ai, af, g)
        i, di, f, df = enter(c_before, ai, af)
        o, do = gate(act, _peep(ao, po, c), clip)
    else:
        i, o, f, g, c = saved
        c_before = before(c, layer.initial_c, None, layer.backward)
        di, do, df, dg = _slopes((act, i), (act, o), (act, f), (act_g, g))
        df = None if coupled else df
    hc = act_h.value(c)

    of_o = layer.within(do * hc)
    of_c = _peep(layer.within(o * act_h.slope(c, hc)), po, of_o)
    of_i = layer.within(di * (g - c_before if coupled else g))
    of_f = zeros_like(of_i) if df is None else layer.within(df * c_before)
    keep = _peep(_peep(layer.kept(f), pi, of_i), None if coupled else pf, of_f)
    factors = op.Concat(of_i, of_o, of_f, layer.within(dg * i), axis=-1)
    found, gates = _lstm_backward(layer, of_c, factors, keep)
    if layer.P is not None:
        gi, go, gf, _ = split(gates, 4)
        found["P"] = op.Concat(reduced(gi * c_before), reduced(go * c), reduced(gf * c_before), axis=0)
    return found


def _lstm_backward(layer: Direction, of_c: Any, factors: Any, keep: Any) -> tuple[dict[str, Any], Any]:
    """The gradients, and the cotangents of the gates' inputs, from what the cotangents are multiplied by in each step:
    dh for dc, dc and dh for the gates, dc for that of the cell before."""
    handed = [] if layer.valid is None else [1.0 - layer.valid]

    def step(states: list[Any], elements: list[Any]) -> Any:
        dh, dc = states[0], states[1] + states[0] * elements[0]
        gates = op.Concat(dc, dh, dc, dc, axis=-1) * elements[1]
        return [_handed(op.MatMul(gates, layer.R), dh, elements[3:]), dc * elements[2]], [gates]

    (dh, dc), (gates,) = layer.reverse(step, [layer.last_h, layer.last_c], [of_c, factors, keep, *handed])
    return {**_weights(layer, gates, gates, layer.before), "initial_h": dh, "initial_c": dc}, gates


def _peep(x: Any, p: Any, c: Any) -> Any:
    """What is added through a peephole of the cell."""
    return x if p is None else x + p * c


def _cells(layer: Direction, enter: Callable[..., Any], ai: Any, af: Any, g: Any) -> tuple[Any, Any]:
    """The cell states before and after each step, by a Scan in the direction of the layer."""
    if layer.P is None:
        i, _, f, _ = enter(None, ai, af)
        sequences = [layer.kept(f), layer.within(i * g)]
    else:
        sequences = [ai, af, g] + ([] if layer.valid is None else [layer.valid])

    def step(states: list[Any], elements: list[Any]) -> Any:
        (c,) = states
        if layer.P is None:
            new = c * elements[0] + elements[1]
        else:
            i, _, f, _ = enter(c, elements[0], elements[1])
            new = f * c + i * elements[2]
            new = c + elements[3] * (new - c) if layer.valid is not None else new
        return [new], [c, new]

    return tuple(layer.forward(step, [layer.initial_c], sequences)[1])


@traced("Y", "Y_h", "Y_c", "i", "o", "f", "g", "c")
def lstm_fwd(X, W, R, B, initial_h, initial_c, P, *, direction, input_forget):
    """The layer with its default activations; saves the gates and the cell after each step [directions, steps, batch,
    hidden]."""
    inputs = {"X": X, "W": W, "R": R, "B": B, "initial_h": initial_h, "initial_c": initial_c, "P": P}
    layers = _usual(["Sigmoid", "Tanh", "Tanh"], [None] * 3, inputs, None, direction)
    return handed_out([_lstm_gates(layer, bool(input_forget)) for layer in layers])


def _lstm_gates(layer: Direction, coupled: bool) -> tuple[list[Any], list[Any]]:
    """The last states, and for each step the state, the gates and the cell, by a Scan; i and f may be coupled."""
    R = op.Transpose(layer.R, perm=[1, 0])
    pi, po, pf = [None] * 3 if layer.P is None else split(layer.P, 3)

    def step(states: list[Any], elements: list[Any]) -> Any:
        h, c = states
        ai, ao, af, ag = split(op.MatMul(h, R) + elements[0], 4)
        i, g = op.Sigmoid(_peep(ai, pi, c)), op.Tanh(ag)
        f = 1.0 - i if coupled else op.Sigmoid(_peep(af, pf, c))
        c = f * c + i * g
        o = op.Sigmoid(_peep(ao, po, c))
        h = o * op.Tanh(c)
        return [h, c], [h, i, o, f, g, c]

    return layer.forward(step, [layer.initial_h, layer.initial_c], [_biased(layer.projected(), layer.B)])


@traced("dX", "dW", "dR", "dB", "dinitial_h", "dinitial_c", "dP")
def lstm_vjp__saved(
    dY, dY_h, dY_c, X, W, R, B, initial_h, initial_c, P, Y, i, o, f, g, c, *, direction, input_forget
):  # fmt: skip
    """As the general form, of the gates and cells that the forward pass has saved."""
    inputs = {"X": X, "W": W, "R": R, "B": B, "initial_h": initial_h, "initial_c": initial_c, "P": P}
    layers = _usual(["Sigmoid", "Tanh", "Tanh"], [dY, dY_h, dY_c], inputs, Y, direction)
    saved = zip(*(each(x, 0, len(layers)) for x in (i, o, f, g, c)), strict=True)
    found = [_lstm(layer, None, bool(input_forget), s) for layer, s in zip(layers, saved, strict=True)]
    return gathered(found, 0)


@traced("Y", "Y_h", "Y_c", "gates", "g", "kept", "squashed")
def lstm_fwd__plain(X, W, R, B, initial_h, initial_c, *, direction):
    """The layer with its default activations, without peepholes and with a forget gate of its own; saves for each step
    the gates i, o and f side by side, g, f·c_(t−1) and tanh c_t [directions, steps, batch, …].

    None of these is a state, which a Scan would have to copy to hand it out; nor is Y, which is o·tanh c_t.
    """
    inputs = {"X": X, "W": W, "R": R, "B": B, "initial_h": initial_h, "initial_c": initial_c}
    layers = _usual(["Sigmoid", "Tanh", "Tanh"], [None] * 3, inputs, None, direction)
    return handed_out([_lstm_plain_gates(layer, R.shape[2]) for layer in layers])


def _lstm_plain_gates(layer: Direction, hidden: int) -> tuple[list[Any], list[Any]]:
    R = op.Transpose(layer.R, perm=[1, 0])

    def step(states: list[Any], elements: list[Any]) -> Any:
        h, c = states
        entering, ag = op.Split(op.Gemm(h, R, elements[0]), [3 * hidden, hidden], axis=-1, _outputs=2)
        gates, g = op.Sigmoid(entering), op.Tanh(ag)
        i, o, f = split(gates, 3)
        kept = f * c
        c = kept + i * g
        squashed = op.Tanh(c)
        return [o * squashed, c], [gates, g, kept, squashed]

    states = [layer.initial_h, layer.initial_c]
    last, saved = layer.forward(step, states, [_biased(layer.projected(), layer.B)])
    return last, [split(saved[0], 3)[1] * saved[3], *saved]


@traced("dX", "dW", "dR", "dB", "dinitial_h", "dinitial_c")
def lstm_vjp__plain(
    dY, dY_h, dY_c, X, W, R, B, initial_h, initial_c, Y, gates, g, kept, squashed, *, direction
):  # fmt: skip
    """As the general form; with s for i, o and f, s′·x = (1 − s)·(s·x), and the products s·x are what was saved, and Y."""
    inputs = {"X": X, "W": W, "R": R, "B": B, "initial_h": initial_h, "initial_c": initial_c}
    layers = _usual(["Sigmoid", "Tanh", "Tanh"], [dY, dY_h, dY_c], inputs, Y, direction)
    saved = zip(each(Y, 1, len(layers)), *(each(x, 0, len(layers)) for x in (gates, g, kept, squashed)), strict=True)
    return gathered([_lstm_plain(layer, *s) for layer, s in zip(layers, saved, strict=True)], 0)[:6]


def _lstm_plain(layer: Direction, h: Any, gates: Any, g: Any, kept: Any, squashed: Any) -> dict[str, Any]:
    i, o, f = split(gates, 3)
    entering = op.Concat(i * g, h, kept, axis=-1) * (1.0 - gates)
    factors = op.Concat(entering, (1.0 - g * g) * i, axis=-1)
    return _lstm_backward(layer, o * (1.0 - squashed * squashed), factors, f)[0]
