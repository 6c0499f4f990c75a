"""Shapes that onnx's inference gets wrong or loses, and ranks of results that follow from the inputs'."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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


class Operand(NamedTuple):
    """What is known of an input: its shape, and its content where that is constant."""

    shape: Shape | None
    content: Any = None


Operands = Sequence[Operand | None]
"""The inputs of a node; None for an absent one."""


def _einsum(attributes: Mapping[str, Any], inputs: Operands, found: Results) -> Results:
    equation = attributes["equation"]
    shapes = [None if x is None else x.shape for x in inputs]
    shape = einsum_shape(equation.decode() if isinstance(equation, bytes) else equation, shapes)
    return [found[0] if shape is None else shape]


def _attention(attributes: Mapping[str, Any], inputs: Operands, found: Results) -> Results:
    """With a past, whose length onnx takes for 0 where it is not known: the keys read are those and the past's.

    The products of queries and keys have four dimensions, where onnx has none for operands of unknown rank.
    """
    if len(found) > 3 and any(x is not None and x.shape is None for x in inputs[:3]):
        found = [*found[:3], (None,) * 4]
    key, past = inputs[1], inputs[4] if len(inputs) > 4 else None
    if past is None:
        return list(found)
    lengths = [
        None if past.shape is None else past.shape[2],
        None if key is None or key.shape is None else key.shape[-2 if len(key.shape) == 4 else 1],
    ]
    total = sum(n for n in lengths if isinstance(n, int)) if all(isinstance(n, int) for n in lengths) else None
    places = {1: 2, 2: 2, 3: 3}  # in present_key, present_value and the products of queries and keys
    return [
        (*shape[: places[k]], total, *shape[places[k] + 1 :]) if shape is not None and k in places else shape
        for k, shape in enumerate(found)
    ]


def _dft(attributes: Mapping[str, Any], inputs: Operands, found: Results) -> Results:
    """With a length that is not known, of which onnx takes the input's size where it knows the axis."""
    length, axis = (inputs[k] if len(inputs) > k else None for k in (1, 2))
    if length is None or length.content is not None or found[0] is None or axis is None or axis.content is None:
        return list(found)
    place = int(axis.content.item()) % len(found[0])
    return [(*found[0][:place], None, *found[0][place + 1 :])]


def _split(attributes: Mapping[str, Any], inputs: Operands, found: Results) -> Results:
    """With sizes that are not known, where onnx loses the rank."""
    whole = inputs[0].shape if inputs[0] is not None else None
    if whole is None:
        return list(found)
    axis = attributes.get("axis", 0) % len(whole)
    part = (*whole[:axis], None, *whole[axis + 1 :])
    return [part if shape is None else shape for shape in found]


CORRECTED: dict[str, Callable[[Mapping[str, Any], Operands, Results], Results]] = {
    "Einsum": _einsum,
    "Attention": _attention,
    "DFT": _dft,
}
"""By op: the shapes of the results, from attributes, inputs, and the shapes that onnx's inference finds."""

LOST = {**CORRECTED, "Split": _split}
"""The same for nodes of rules. A model's own Split may feed what wants scalars, and is taken as long as no shape is stated:
onnxruntime's Range, in the standard's body of AffineGrid."""


Ranks = Callable[[Results], int | None]


def _same(*positions: int) -> Ranks:
    """As many dimensions as whichever of these inputs has a known number of them."""

    def rank(shapes: Results) -> int | None:
        return next((len(shape) for k in positions if k < len(shapes) and (shape := shapes[k]) is not None), None)

    return rank


def _always(count: int) -> Ranks:
    return lambda _: count


def _entries(position: int) -> Ranks:
    """As many dimensions as an input has elements."""

    def rank(shapes: Results) -> int | None:
        size = (shapes[position] or (None,))[0] if position < len(shapes) else None
        return size if isinstance(size, int) else None

    return rank


RANKS: dict[str, tuple[Ranks, ...]] = {
    "AffineGrid": (_entries(1),),
    "Attention": (_same(0, 1, 2), _always(4), _always(4), _always(4)),
    "Conv": (_same(0, 1),),
    "ConvTranspose": (_same(0, 1),),
    "DeformConv": (_same(0, 1, 2, 4),),
    "GridSample": (_same(0, 1),),
    "STFT": (_always(4),),
    "TensorScatter": (_same(0, 1),),
}
"""By op: the ranks of the results, from the shapes of the inputs, where inference loses them: with a kernel of unknown
size, say, or where the first input's rank is lost and another's is not."""


def ranks_of(op_type: str, shapes: Results) -> tuple[int | None, ...]:
    """The ranks of an op's results as far as they follow from its inputs; none for ops of which that is not told."""
    return tuple(rank(shapes) for rank in RANKS.get(op_type, ()))
