"""Where checkpointing cuts the forward pass by itself: at narrow places, so that little memory is kept in all."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import accumulate

import onnx_ir as ir

from gradgen.engine.subgraphs import operands
from gradgen.transforms.partition import size_of


def is_cheap(value: ir.Value) -> bool:
    """Whether a value holds sizes or indices: integers along one axis at most."""
    return value.dtype is not None and value.dtype.is_integer() and value.shape is not None and len(value.shape) <= 1


def choose(
    forward: Sequence[ir.Node], backward: Sequence[ir.Node], given: AbstractSet[ir.Value]
) -> tuple[list[int], set[ir.Value]]:
    """Positions after which the forward pass is cut, and the values that are kept there: all that cross a cut.

    Several numbers of segments around the square root of the number of nodes are tried. The one for which the kept
    values and the largest segment together take least wins; no cut at all is one of them.

    Args:
        forward, backward: the nodes of the two passes, in order.
        given: values that are kept anyway.
    """
    last: dict[ir.Value, int] = {}
    for i, node in enumerate(forward):
        for value in operands(node):
            last[value] = i
    read = {v for node in backward for v in operands(node)}
    own = [0.0] * len(forward)
    change = [0.0] * (len(forward) + 1)
    for i, node in enumerate(forward):
        for value in node.outputs:
            if value in given or not value.name:
                continue
            if value in read:
                own[i] += size_of(value)
            if last.get(value, i) > i:
                change[i] += size_of(value)
                change[last[value]] -= size_of(value)
    width, before = list(accumulate(change)), list(accumulate(own, initial=0.0))
    root = max(len(forward), 1) ** 0.5
    best, least = list[int](), before[-1]
    for count in sorted({max(2, round(root * factor)) for factor in (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)}):
        cuts = _cuts(count, width, before)
        ends = [before[0], *(before[c + 1] for c in cuts), before[-1]]
        needed = sum(width[c] for c in cuts) + max(b - a for a, b in zip(ends, ends[1:], strict=False))
        if needed < least:
            best, least = cuts, needed
    crossing = {
        v for i, node in enumerate(forward) for v in node.outputs
        if v.name and v not in given and any(i <= c < last.get(v, i) for c in best)
    }  # fmt: skip
    return best, crossing


def _cuts(count: int, width: Sequence[float], before: Sequence[float]) -> list[int]:
    """The narrowest place around each of the ends of `count` segments of about equal size; the nearest of several."""
    share = before[-1] / count
    cuts: list[int] = []
    place = 0
    for i in range(1, count):
        candidates = []
        while place < len(width) - 1 and before[place + 1] < (i + 0.5) * share:
            if before[place + 1] >= (i - 0.5) * share:
                candidates.append(place)
            place += 1
        if candidates:
            cuts.append(min(candidates, key=lambda p: (width[p], abs(before[p + 1] - i * share))))
    return cuts
