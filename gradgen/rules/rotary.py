"""Rule of the rotary position embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradgen.rules.index import gathered
from gradgen.rules.lang import op, traced
from gradgen.rules.library import reshape_like, sum_to
from gradgen.rules.ranks import END, of_rank, stated


def _halves(x: Any, size: int, interleaved: int) -> list[Any]:
    """The first and second coordinates of the pairs that are rotated, and what is not (where only `size` are)."""
    if interleaved:
        stop = size or END
        parts = [op.Slice(x, [k], [stop], [-1], [2]) for k in (0, 1)]
        return [*parts, op.Slice(x, [size], [END], [-1])] if size else parts
    if not size:
        return op.Split(x, None, axis=-1, num_outputs=2, _outputs=2)
    rest = op.Sub(op.Shape(x, start=-1), np.asarray([size]))
    return op.Split(x, op.Concat([size // 2, size // 2], rest, axis=0), axis=-1, _outputs=3)


def _paired(first: Any, second: Any) -> Any:
    """The inverse of `_halves` where pairs are interleaved."""
    pairs = op.Concat(op.Unsqueeze(first, [-1]), op.Unsqueeze(second, [-1]), axis=-1)
    size = op.Mul(op.Shape(first, start=-1), np.asarray([2]))
    return op.Reshape(pairs, op.Concat(op.Shape(first, end=-1), size, axis=0), allowzero=1)


@traced("dX", "dcos_cache", "dsin_cache")
@of_rank("dY", "X", ranks=(3, 4), known=lambda given: None if given.get("num_heads") else 4)
def rotary_embedding_vjp(
    dY, X, cos_cache, sin_cache, position_ids, *, interleaved=0, num_heads=None, rotary_embedding_dim=0
):  # fmt: skip
    """Turned back: dx₁ = cos·dy₁ + sin·dy₂, dx₂ = cos·dy₂ − sin·dy₁.

    dcos = Σ dy₁·x₁ + dy₂·x₂, dsin = Σ dy₂·x₁ − dy₁·x₂, over heads and the places that read an entry of the caches.
    """
    for cache in (cos_cache, sin_cache):
        stated(cache, 3 if position_ids is None else 2)
    ct, x, heads = dY, X, 1
    if X.rank == 3:
        size = op.Div(op.Shape(X, start=2), np.asarray([num_heads]))
        shape = op.Concat(op.Shape(X, end=2), [num_heads], size, axis=0)
        ct, x, heads = op.Reshape(dY, shape, allowzero=1), op.Reshape(X, shape, allowzero=1), 2
    caches = (cos_cache, sin_cache)
    read = caches if position_ids is None else [op.Gather(c, position_ids, axis=0) for c in caches]
    cos, sin = (op.Unsqueeze(c, [heads]) for c in read)
    dy1, dy2, *rest = _halves(ct, rotary_embedding_dim or 0, interleaved)
    x1, x2 = _halves(x, rotary_embedding_dim or 0, interleaved)[:2]
    turned = cos * dy1 + sin * dy2, cos * dy2 - sin * dy1
    dX = reshape_like(op.Concat(*([_paired(*turned)] if interleaved else turned), *rest, axis=-1), X)
    products = dy1 * x1 + dy2 * x2, dy2 * x1 - dy1 * x2
    dcaches = [op.ReduceSum(p, [heads], keepdims=0) for p in products]
    if position_ids is None:
        return dX, *(sum_to(d, c) for d, c in zip(dcaches, caches, strict=True))
    return dX, *(gathered(d, c, position_ids, 0) for d, c in zip(dcaches, caches, strict=True))
