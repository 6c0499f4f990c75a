"""Reads tests/data/torch_cases: models exported from PyTorch with their inputs, cotangents and float64 gradients."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "data" / "torch_cases"
Arrays = dict[str, np.ndarray]


@dataclass(eq=False)
class TorchCase:
    """One model. `refused` and `second_refused` say why gradgen refuses its gradient or its second order, if it may."""

    name: str
    tags: list[str] = field(default_factory=list)
    convention: str = ""
    refused: str = ""
    second_refused: str = ""

    @property
    def path(self) -> Path:
        return FOLDER / self.name / "model.onnx"

    @property
    def has_kink(self) -> bool:
        """Whether the point lies on a tie or an edge, where no difference quotient gives the gradient."""
        return bool({"tie", "edge"} & set(self.tags))

    @cached_property
    def _groups(self) -> dict[str, Arrays]:
        groups: dict[str, Arrays] = {"input": {}, "output": {}, "cotangent": {}, "gradient": {}}
        with np.load(FOLDER / self.name / "arrays.npz") as archive:
            for key in archive.files:
                kind, name = key.split(":", 1)
                groups[kind][name] = archive[key]
        return groups

    @property
    def inputs(self) -> Arrays:
        return self._groups["input"]

    @property
    def outputs(self) -> Arrays:
        """The primal's outputs, from PyTorch in float64."""
        return self._groups["output"]

    @property
    def cotangents(self) -> Arrays:
        """By the name of the output, in the output's type."""
        return self._groups["cotangent"]

    @property
    def gradients(self) -> Arrays:
        """What is expected, by the name of the graph input or initializer, in float64."""
        return self._groups["gradient"]


def load_cases() -> list[TorchCase]:
    index = json.loads((FOLDER / "cases.json").read_text())
    return [TorchCase(name, **entry) for name, entry in index.items()]


def differences(got: Mapping[str, np.ndarray], want: Mapping[str, np.ndarray], rtol: float = 2e-3) -> list[str]:
    """What is wrong with `got`, a line for each array; empty where all is well.

    Finite elements may differ by rtol of themselves plus 2e-4 of the array's largest, plus 1e-5; the others must be
    the same infinity or NaN.
    """
    problems = []
    for name, right in want.items():
        if name not in got:
            problems.append(f"{name}: missing")
            continue
        value = np.asarray(got[name], np.float64)
        if value.shape != right.shape:
            problems.append(f"{name}: shape {value.shape}, expected {right.shape}")
            continue
        finite = np.isfinite(right)
        if not np.array_equal(value[~finite], right[~finite], equal_nan=True):
            problems.append(f"{name}: the non-finite elements differ")
        if not finite.any():
            continue
        error, scale = np.abs(value[finite] - right[finite]), np.abs(right[finite]).max()
        # Not "error > limit": a NaN among `value` must count as a problem.
        if not (error <= rtol * np.abs(right[finite]) + 1e-5 + 2e-4 * scale).all():
            problems.append(f"{name}: off by {error.max():.3g} at scale {scale:.3g}")
    return problems
