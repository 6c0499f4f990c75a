"""Rule of the causal depthwise convolution that carries a state."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgen.rules.conv import conv_vjp
from gradgen.rules.lang import op, traced


def _before(weight: Any) -> Any:
    """How many places of the past the kernel reads, as a tensor of one element."""
    return op.Sub(op.Shape(weight, start=2), np.asarray([1]))


def _whole(input: Any, weight: Any, past_state: Any) -> Any:
    """What the kernel passes over: the past, zeros where there is none, and what comes in."""
    if past_state is not None:
        return op.Concat(past_state, input, axis=2)
    return op.Pad(input, op.Concat([0, 0], _before(weight), [0, 0, 0], axis=0), op.CastLike(0.0, input))


def _reads(x: Any, weight: Any) -> Any:
    """What each tap reads: x [batch, channels, length + taps − 1] as [batch, channels, taps, length]."""
    length = op.Sub(op.Shape(x, start=2), _before(weight))
    counts = [op.Range(np.int64(0), op.Squeeze(n, [0]), np.int64(1)) for n in (op.Shape(weight, start=2), length)]
    return op.Gather(x, op.Add(op.Unsqueeze(counts[0], [1]), counts[1]), axis=2)


def _convolve(x: Any, weight: Any, bias: Any) -> Any:
    """The convolution; Conv wants to know the number of channels."""
    if isinstance(weight.shape[0], int):
        return op.Conv(x, weight, bias, group=weight.shape[0])
    z = op.ReduceSum(_reads(x, weight) * op.Transpose(weight, perm=[0, 2, 1]), [2], keepdims=0)
    return z if bias is None else z + op.Unsqueeze(bias, [1])


def _reverse(dz: Any, x: Any, weight: Any) -> tuple[Any, Any]:
    """The cotangents of x, Σⱼ wⱼ·dz[t−j], and of the weights, Σ dz·x[t+j]."""
    channels, taps = weight.shape[0], weight.shape[2]
    if isinstance(channels, int) and isinstance(taps, int):
        windows = {"kernel_shape": [taps], "strides": [1], "pads": [0, 0], "dilations": [1]}
        return conv_vjp(dz, x, weight, group=channels, **windows)[:2]
    dweight = op.ReduceSum(_reads(x, weight) * op.Unsqueeze(dz, [2]), [0, 3], keepdims=0)
    pads = op.Concat([0, 0], _before(weight), [0, 0], _before(weight), axis=0)
    flipped = op.Slice(op.Transpose(weight, perm=[0, 2, 1]), [-1], [np.iinfo(np.int64).min], [1], [-1])
    dx = op.ReduceSum(_reads(op.Pad(dz, pads, op.CastLike(0.0, dz)), weight) * flipped, [2], keepdims=0)
    return dx, op.Unsqueeze(dweight, [1])


@traced("output", "present_state")
def causal_conv_with_state_fwd(input, weight, bias, past_state, *, activation="none"):
    """The convolution of the past and what comes in, behind it SiLU where it is asked for; the last places are kept."""
    x = _whole(input, weight, past_state)
    z = _convolve(x, weight, bias)
    state = op.Slice(x, op.Shape(input, start=2), [np.iinfo(np.int64).max], [2])
    return z if activation == "none" else z * op.Sigmoid(z), state


@traced("dinput", "dweight", "dbias", "dpast_state")
def causal_conv_with_state_vjp(doutput, dpresent_state, input, weight, bias, past_state, *, activation="none"):
    """dx = Σⱼ wⱼ·dz[t−j] over what is past and comes in, dw = Σ dz·x[t+j], db = Σ dz; the state's cotangent is added.

    dz is dy, behind SiLU dy·σ·(1 + z·(1 − σ)) with σ = sigmoid(z).
    """
    x = _whole(input, weight, past_state)
    whole = dweight = dbias = None
    if doutput is not None:
        dz = doutput
        if activation != "none":
            z = _convolve(x, weight, bias)
            gate = op.Sigmoid(z)
            dz = dz * gate * (1.0 + z * (1.0 - gate))
        whole, dweight = _reverse(dz, x, weight)
        dbias = None if bias is None else op.ReduceSum(dz, [0, 2], keepdims=0)
    if dpresent_state is not None:
        state = op.Pad(
            dpresent_state, op.Concat([0, 0], op.Shape(input, start=2), [0, 0, 0], axis=0), op.CastLike(0.0, input)
        )
        whole = state if whole is None else whole + state
    dpast, dinput = op.Split(whole, op.Concat(_before(weight), op.Shape(input, start=2), axis=0), axis=2, _outputs=2)
    return dinput, dweight, dbias, None if past_state is None else dpast
