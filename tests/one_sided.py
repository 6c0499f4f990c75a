# One-sided difference quotients, element by element: what a gradient may be where the function has a kink or a jump.
from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from gradgen.widening import double, widen

# Falling by four each: two extrapolations leave an error of the third order, and rounding stays below 1e-10.
STEPS = (2.0**-9, 2.0**-11, 2.0**-13)
# A quotient that grows so with each step belongs to a jump (by four) or to an infinite slope (a root's by two).
GROWTH = 1.5


def bounds(
    primal: onnx.ModelProto, feeds: Mapping[str, np.ndarray], name: str, cotangents: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Between which values each element of a gradient lies, in float64.

    An element of an output contributes the interval between its two one-sided derivatives, times its cotangent. Where
    it jumps on one side, or is infinitely steep there, the derivative of the other side counts alone; where it jumps on
    both, those of the pieces that begin beside the point.

    Returns:
        Two arrays of the value's shape, the lower bound and the upper one. NaN where an output has an infinite slope,
        no finite value or another shape on both sides: there is nothing to compare with.
    """
    run = double(primal)
    point = {k: widen(v) if isinstance(v, np.ndarray) else v for k, v in feeds.items()}
    weights = {n: widen(ct) for n, ct in cotangents.items()}
    origin = run(point)
    value = point[name]
    low, high = np.full(value.shape, np.nan), np.full(value.shape, np.nan)

    def beside(index: tuple[int, ...], shift: float) -> dict[str, np.ndarray]:
        moved = value.copy()
        moved[index] += shift
        after = run({**point, name: moved})
        return {n: after[n] if after[n].shape == origin[n].shape else np.full(origin[n].shape, np.nan) for n in weights}

    def slope(index: tuple[int, ...], sign: float, start: float) -> dict[str, np.ndarray]:
        """From the point on where `start` is 0, of the piece beside it where `start` is 1."""
        size = sign * max(abs(float(value[index])), 0.1)
        quotients = []
        for step in STEPS:
            near = beside(index, start * step * size) if start else origin
            far = beside(index, (start + 1) * step * size)
            quotients.append({n: (far[n] - near[n]) / (step * size) for n in weights})
        return {n: _limit(*(quotient[n] for quotient in quotients)) for n in weights}

    for index in np.ndindex(value.shape):
        with np.errstate(invalid="ignore", over="ignore"):
            sides = [slope(index, sign, 0.0) for sign in (1.0, -1.0)]
            if any((np.isnan(sides[0][n]) & np.isnan(sides[1][n]) & (weights[n] != 0)).any() for n in weights):
                pieces = [slope(index, sign, 1.0) for sign in (1.0, -1.0)]
                sides = [{n: _filled(sides, pieces[k], k, n) for n in weights} for k in (0, 1)]
        least, most = 0.0, 0.0
        for n, weight in weights.items():
            ahead, behind = sides[0][n], sides[1][n]
            both = np.stack([np.where(np.isnan(ahead), behind, ahead), np.where(np.isnan(behind), ahead, behind)])
            both = np.where(weight == 0, 0, both * weight)  # what is not asked for may be anything
            least, most = least + float(both.min(0).sum()), most + float(both.max(0).sum())
        low[index], high[index] = least, most
    return low, high


def _filled(sides: list[dict[str, np.ndarray]], piece: dict[str, np.ndarray], k: int, name: str) -> np.ndarray:
    """A side's derivative; of the piece beside the point where neither side has one."""
    neither = np.isnan(sides[0][name]) & np.isnan(sides[1][name])
    return np.where(neither, piece[name], sides[k][name])


def _limit(coarse: np.ndarray, middle: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """The limit of three quotients whose step falls by four; NaN where they grow without end."""
    growing = (np.abs(fine) > GROWTH * np.abs(middle)) & (np.abs(middle) > GROWTH * np.abs(coarse))
    first, second = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
    return np.where(growing & (np.abs(fine) > 1), np.nan, (16 * second - first) / 15)
