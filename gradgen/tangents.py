# Compares the tangents of a jvp model with finite differences of its primal.
"""The check of forward-mode derivatives, value by value as that of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from gradgen.comparison import Arrays, GradientCheck, Run, Side
from gradgen.differences import compare
from gradgen.engine.registry import Registry
from gradgen.request import roles_of


def check_tangents(
    primal: onnx.ModelProto,
    tangents: onnx.ModelProto,
    feeds: Arrays,
    *,
    rtol: float = 1e-5,
    seed: int = 0,
    each: Callable[[GradientCheck], None] | None = None,
    registry: Registry | None = None,
) -> list[GradientCheck]:
    """Compare the model that `jvp` made with finite differences of its primal, as one value after the other moves.

    Each value moves in one random direction, in which the tangents of the outputs are contracted with random cotangents:
    directions and cotangents are those of `check_gradients` with the same seed.

    Args:
        primal: the model that was differentiated, with all that it was differentiated of among its outputs.
        tangents: the model of its tangents, with the metadata that say which they are.
        feeds, rtol, seed, each, registry: as for `check_gradients`.

    Returns:
        One record for each value that has a tangent, in their order.

    Raises:
        ValueError: a name is unknown, or no output has a tangent.
    """
    given = _added(tangents, tangents.graph.input, primal.graph.input, "tangent in")
    results = _added(tangents, tangents.graph.output, primal.graph.output, "tangent out")

    def at_rest(_: Arrays, values: Arrays) -> Arrays:
        return {name: np.zeros_like(values[source]) for source, name in given.items()}

    def side(run: Run, name: str, direction: np.ndarray) -> Side:
        found, own = run.moved({given[name]: direction})
        weights = {results[n]: np.asarray(w, np.float64) for n, w in run.cotangents.items()}
        for source, name in results.items():
            if np.shape(found[name]) != run.base[source].shape:
                problem = f"the tangent of '{source}' has shape {list(np.shape(found[name]))}"
                return Side(np.zeros(0), np.zeros(0), None, problem)
        return Side(_flat(found, weights), _flat(weights, weights), None if own is None else _flat(own, weights))

    return compare(
        primal, tangents, feeds, list(given), None, set(results), at_rest, side, rtol=rtol, seed=seed, each=each,
        registry=registry, noun="tangent",
    )  # fmt: skip


def _added(model: onnx.ModelProto, values: Any, own: Any, role: str) -> dict[str, str]:
    """The names of what a model has beside its primal in a role, by their sources."""
    roles, known = roles_of(model), {v.name for v in own}
    found = [v.name for v in values if v.name not in known and roles.get(v.name, {}).get("role") == role]
    return {roles[name]["source"]: name for name in found}


def _flat(arrays: Arrays, names: Arrays) -> np.ndarray:
    """The arrays of these names one after the other, in float64."""
    return np.concatenate([np.asarray(arrays[n], np.float64).reshape(-1) for n in names])
