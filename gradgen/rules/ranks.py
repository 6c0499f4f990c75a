"""What rules do with a value whose number of dimensions shows at run time alone.

Where the rank is known, each of these is a constant or nothing at all.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgen.rules.lang import op, subgraph

END = np.iinfo(np.int64).max


def rank_of(x: Any) -> Any:
    """The rank of x, an int64 scalar."""
    return op.Size(op.Shape(x))


def axes_from(first: int, x: Any) -> Any:
    """The axes of x from `first` on: a list where they are known or `first` counts from the end, else int64 [k]."""
    if first < 0 or x.shape is not None:
        return list(range(first, 0 if first < 0 else x.rank))
    return op.Range(np.int64(first), rank_of(x), np.int64(1))


def ones_behind(axis: int, x: Any) -> Any:
    """As many ones as x has dimensions behind an axis, int64 [k]."""
    if axis < 0 or x.shape is not None:
        return np.ones(-axis - 1 if axis < 0 else x.rank - axis - 1, np.int64)
    return op.Expand(np.ones(1, np.int64), op.Reshape(op.Sub(rank_of(x), np.int64(axis + 1)), [1]))


def at_least(rank: int, x: Any) -> Any:
    """x with axes of one element in front, where it has fewer than `rank`."""
    if x.shape is not None:
        return op.Unsqueeze(x, list(range(rank - x.rank))) if x.rank < rank else x
    missing = op.Reshape(op.Max(op.Sub(np.int64(rank), rank_of(x)), np.int64(0)), [1])
    return op.Reshape(x, op.Concat(op.Expand(np.ones(1, np.int64), missing), op.Shape(x), axis=0), allowzero=1)


def leading(x: Any, count: int) -> Any:
    """x with its dimensions from `count` on as one, which is 1 where there are none."""
    behind = op.ReduceProd(op.Shape(x, start=count), keepdims=1)
    folded = op.Reshape(x, op.Concat(op.Shape(x, end=count), behind, axis=0), allowzero=1)
    folded.dtype, folded.shape = folded.dtype or x.dtype, folded.shape or (None,) * (count + 1)
    return folded


def stated(x: Any, rank: int) -> Any:
    """x, of which the standard says how many dimensions it has, also where inference has lost count of them."""
    if x is not None and x.shape is None:
        x.shape = (None,) * rank
    return x


def of_rank(*names: str, ranks: Sequence[int], known: Callable[[dict[str, Any]], int | None] = lambda _: None) -> Any:
    """Decorates a traced rule that reads the one rank that some of its parameters share.

    Those of unknown rank take that of the others, or the one that `known` finds in the parameters by name. Where none is
    known, the rule is traced for each of `ranks`, those that are in use, and the gradient chooses at run time.
    """

    def decorate(fn: Callable[..., Any]) -> Callable[..., Any]:
        positional = list(inspect.signature(fn).parameters)

        @functools.wraps(fn)
        def rule(*values: Any, **attributes: Any) -> Any:
            places = [k for k, v in enumerate(values) if positional[k] in names and v is not None]
            found = [len(values[k].shape) for k in places if values[k].shape is not None]
            rank = known({**dict(zip(positional, values, strict=False)), **attributes}) or next(iter(found), None)
            if rank is not None:
                for k in places:
                    stated(values[k], rank)
                return fn(*values, **attributes)

            def trace(rank: int) -> Any:
                given = [counted(v, rank) if k in places else v for k, v in enumerate(values)]
                return fn(*given, **attributes)

            return chosen(values[places[0]], sorted(ranks), trace)

        return rule

    return decorate


def in_branch(rule: Any, defaults: Any, dY: Any, X: Any, W: Any, **attributes: Any) -> Any:
    """The rule of a convolution in a branch for one rank, with the defaults of attributes that depend on it."""
    given = {name: value for name, value in attributes.items() if value is not None}
    return rule(dY, X, W, **{**attributes, **defaults(given, {"X": X, "W": W})})


def windowed(given: dict[str, Any]) -> int | None:
    """The rank that the attributes of windows state: they have an element, pads two, for each axis of space."""
    sizes = [len(given[n]) for n in ("strides", "dilations", "kernel_shape", "output_padding") if given.get(n)]
    sizes += [len(given["pads"]) // 2] if given.get("pads") else []
    return sizes[0] + 2 if sizes else None


def chosen(x: Any, ranks: Sequence[int], trace: Callable[[int], Any]) -> Any:
    """What `trace(rank)` gives for the rank that x has at run time, one of `ranks`, two or more: nested If nodes.

    Where x has another, the run fails. Each branch gives the same results, a tuple or one, of which some may be None.

    Raises:
        UnknownTypeError: not even the element type of x is known.
    """
    if x.dtype is None:
        return x.rank  # nothing at all is known of x: the values of a branch need a type, so this refuses the rule
    layouts: list[_Layout] = []

    def traced(rank: int) -> list[Any]:
        results = trace(rank)
        layouts.append(_Layout.of(results))
        return layouts[-1].values(results)

    branches = {rank: subgraph([], functools.partial(traced, rank)) for rank in reversed(ranks)}
    layout, size = layouts[0], rank_of(x)
    assert all(other == layout for other in layouts), f"for ranks {list(reversed(ranks))} the results are {layouts}"

    def choose(rank: int, otherwise: Any) -> Any:
        here = op.Equal(size, np.int64(rank))
        return op.If(here, then_branch=branches[rank], else_branch=otherwise, _outputs=len(layout.present))

    otherwise = branches[ranks[-1]]
    for rank in reversed(ranks[1:-1]):
        otherwise = subgraph([], functools.partial(choose, rank, otherwise))
    return layout.results(choose(ranks[0], otherwise))


@dataclass(frozen=True)
class _Layout:
    """Which of the results of a rule are there: an If gives those alone.

    Attributes:
        count: how many results the rule returns in a tuple; None where it returns one as it is.
        present: the positions of those that are not None.
    """

    count: int | None
    present: tuple[int, ...]

    @classmethod
    def of(cls, results: Any) -> _Layout:
        """That of what a rule has returned."""
        if not isinstance(results, tuple | list):
            return cls(None, () if results is None else (0,))
        return cls(len(results), tuple(k for k, r in enumerate(results) if r is not None))

    def values(self, results: Any) -> list[Any]:
        """The results that are there."""
        return [results] if self.count is None else [results[k] for k in self.present]

    def results(self, values: Any) -> Any:
        """What the rule returns, from the values of those that are there: a list, or where it is one, that one."""
        found = dict(zip(self.present, values if isinstance(values, list) else [values], strict=True))
        return found[0] if self.count is None else tuple(found.get(k) for k in range(self.count))


def counted(x: Any, rank: int) -> Any:
    """x in a branch where it has this rank."""
    shape = op.Reshape(op.Shape(x), np.asarray([rank]))
    same = op.Reshape(x, shape, allowzero=1)
    same.dtype, same.shape = x.dtype, (None,) * rank
    return same


def regrouped(x: Any, groups: Sequence[Any], order: Sequence[int]) -> Any:
    """x with its axes exchanged in groups: `groups` are the parts of its shape, int64 [k], of any number of axes each."""
    flat = op.Concat(*(op.ReduceProd(sizes, keepdims=1) for sizes in groups), axis=0)
    turned = op.Transpose(op.Reshape(x, flat, allowzero=1), perm=list(order))
    return op.Reshape(turned, op.Concat(*(groups[k] for k in order), axis=0), allowzero=1)
