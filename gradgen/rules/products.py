"""Shapes that onnx's inference gets wrong: of an Einsum that broadcasts, and of what Attention reads with a past."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Dim = int | str | None
Shape = tuple[Dim, ...]
Results = Sequence[Shape | None]


def einsum_shape(equation: str, shapes: Sequence[Shape | None]) -> Shape | None:
    """What is known of the shape of an Einsum's result; None if the operands' ranks do not give it."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    sizes: dict[str, list[Dim]] = {}
    rest: list[Shape] = []
    operands = terms.split(",")
    if len(operands) != len(shapes):
        return None
    for term, shape in zip(operands, shapes, strict=True):
        before, dots, after = term.partition("...")
        if shape is None or len(shape) < len(before + after) or (not dots and len(shape) != len(term)):
            return None
        end = len(shape) - len(after)
        for letter, size in zip(before + after, [*shape[: len(before)], *shape[end:]], strict=True):
            sizes.setdefault(letter, []).append(size)
        if dots:
            rest.append(shape[len(before) : end])
    if not arrow:
        letters = terms.replace("...", "").replace(",", "")
        result = ("..." if rest else "") + "".join(sorted(x for x in set(letters) if letters.count(x) == 1))
    before, dots, after = result.partition("...")
    if not set(before + after) <= set(sizes):
        return None
    rank = max(map(len, rest), default=0)
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in rest]
    middle = [_broadcast(dims) for dims in zip(*padded, strict=True)] if dots else []
    return (*(_broadcast(sizes[x]) for x in before), *middle, *(_broadcast(sizes[x]) for x in after))


def _broadcast(dims: Iterable[Dim]) -> Dim:
    """A size that is not 1 wins; of two names, or of a name and an unknown size, either may be 1.

    A size behind a 1 stays open: onnx's checker finds 1, and another size stated is an error to it.
    """
    every = list(dims)
    wider = set(every) - {1}
    if sizes := [d for d in wider if isinstance(d, int)]:
        return None if every[0] == 1 else sizes[0]
    return None if len(wider) > 1 else next(iter(wider), 1)


def _einsum(attributes: Mapping[str, Any], shapes: Sequence[Shape | None], found: Results) -> Results:
    equation = attributes["equation"]
    shape = einsum_shape(equation.decode() if isinstance(equation, bytes) else equation, shapes)
    return [found[0] if shape is None else shape]


def _attention(attributes: Mapping[str, Any], shapes: Sequence[Shape | None], found: Results) -> Results:
    """With a past, whose length onnx takes for 0 where it is not known: the keys read are those and the past's."""
    key, past = shapes[1], shapes[4] if len(shapes) > 4 else None
    if past is None:
        return list(found)
    lengths = past[2], None if key is None else key[-2 if len(key) == 4 else 1]
    total = sum(n for n in lengths if isinstance(n, int)) if all(isinstance(n, int) for n in lengths) else None
    places = {1: 2, 2: 2, 3: 3}  # in present_key, present_value and the products of queries and keys
    return [
        (*shape[: places[k]], total, *shape[places[k] + 1 :]) if shape is not None and k in places else shape
        for k, shape in enumerate(found)
    ]


CORRECTED: dict[str, Callable[[Mapping[str, Any], Sequence[Shape | None], Results], Results]] = {
    "Einsum": _einsum,
    "Attention": _attention,
}
"""By op: the shapes of the results, from attributes, the shapes of the inputs, and those that onnx's inference finds."""
