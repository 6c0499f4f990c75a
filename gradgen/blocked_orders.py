"""What stands in for a convolution's weights, and the orders in which onnxruntime lays it out, as steps into them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

# Operators with their one argument: pads, a shape, a permutation, or the indices along axis 1.
Step = tuple[str, list[int]]
# How many channels onnxruntime may lay side by side.
BLOCKS = (16, 8, 4, 32)


@dataclass(frozen=True)
class StandIn:
    """A constant that stands in for a weight or a bias.

    Attributes:
        value: the name of what it stands in for.
        code: its numbers, in the order of `value`.
        flipped: whether `value` is the kernel of a transposed convolution, and the constant that of the convolution that
            computes the same: flipped in space, the channels of operand and result exchanged.
        gains_blocked: whether the convolution is no gain unless it is blocked.
    """

    value: str
    code: np.ndarray
    flipped: bool = False
    gains_blocked: bool = False

    @property
    def first(self) -> int:
        """The bits of the constant's first number, which is the first in each order."""
        return int((self.code[0, 0, -1, -1] if self.flipped else self.code.flat[0]).view(np.int32))


def apply(steps: list[Step], array: np.ndarray) -> np.ndarray:
    """What the steps make of an array."""
    for op_type, argument in steps:
        match op_type:
            case "Pad":
                array = np.pad(array, np.reshape(argument, (2, -1)).T)
            case "Reshape":
                array = array.reshape(argument)
            case "Transpose":
                array = array.transpose(argument)
            case "Gather":
                array = array.take(argument, axis=1)
    return array


def orders(stand_in: StandIn, result: tuple[int, ...]) -> Iterator[list[Step]]:
    """The orders, from that of the weights as they are fed, in which they may be found in the shape `result`.

    They begin with the order that a plain convolution reads. Channels are filled up with zeros to whole blocks.
    """
    shape, flipped = stand_in.code.shape, stand_in.flipped
    if len(shape) != len(result):
        return
    if len(shape) == 1:
        yield [("Pad", [0, result[0] - shape[0]])] if result != shape else []
        return
    swapped = flipped and result[1] != 1  # the channels of operand and result are
    have = (shape[1], shape[0]) if swapped else shape[:2]
    outputs, inputs, taps = *result[:2], math.prod(shape[2:])
    lacking = [outputs - have[0], inputs - have[1]]
    if min(lacking) < 0 or result[2:] != shape[2:]:
        return
    end: Step = ("Reshape", list(result))
    if not any(lacking):
        yield [*_plain(outputs, inputs, taps, swapped), end] if flipped else []
    start: list[Step] = [("Pad", [0] * 4 + (lacking[::-1] if swapped else lacking) + [0, 0])] if any(lacking) else []
    for block in BLOCKS:
        if outputs % block == 0:
            yield [*start, *_outputs_in_blocks(outputs, inputs, taps, block, flipped, swapped), end]
            if inputs % block == 0:
                yield [*start, *_both_in_blocks(outputs, inputs, taps, block, flipped), end]


def _plain(outputs: int, inputs: int, taps: int, swapped: bool) -> list[Step]:
    """A flipped kernel as [outputs, inputs, taps]."""
    if not swapped:
        return [("Reshape", [outputs * inputs, taps]), _backwards(taps)]
    swap: list[Step] = [("Reshape", [inputs, outputs, taps]), ("Transpose", [1, 0, 2])]
    return [*swap, ("Reshape", [outputs * inputs, taps]), _backwards(taps)]


def _outputs_in_blocks(outputs: int, inputs: int, taps: int, block: int, flipped: bool, swapped: bool) -> list[Step]:
    """A kernel as [outputs ÷ block, inputs, taps, block]."""
    steps: list[Step] = [("Reshape", [inputs, outputs, taps]), ("Transpose", [1, 0, 2])] if swapped else []
    steps += [("Reshape", [outputs // block, block, inputs * taps]), ("Transpose", [0, 2, 1])]
    return [*steps, ("Reshape", [outputs // block * inputs, taps, block]), _backwards(taps)] if flipped else steps


def _both_in_blocks(outputs: int, inputs: int, taps: int, block: int, flipped: bool) -> list[Step]:
    """A kernel as [outputs ÷ block, inputs ÷ block, taps, block of inputs, block of outputs].

    Transpositions of two axes, each of which keeps to a few blocks of memory, take a fifth of what one of all axes does.
    """
    rows, columns = outputs // block, inputs // block
    last: list[Step] = [("Reshape", [rows * columns, block, taps * block]), ("Transpose", [0, 2, 1])]
    if not flipped:
        return [
            ("Reshape", [outputs * columns, block, taps]), ("Transpose", [0, 2, 1]),
            ("Reshape", [rows, block, columns, taps * block]), ("Transpose", [0, 2, 1, 3]), *last,
        ]  # fmt: skip
    return [
        ("Reshape", [columns, block, outputs * taps]), ("Transpose", [0, 2, 1]),
        ("Reshape", [columns, rows, block * taps * block]), ("Transpose", [1, 0, 2]), *last,
        ("Reshape", [rows * columns, taps, block * block]), _backwards(taps),
    ]  # fmt: skip


def _backwards(taps: int) -> Step:
    return "Gather", list(range(taps - 1, -1, -1))
