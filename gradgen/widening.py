# Models in float64 for the checks: where an engine lacks an op in float64, the op's forward body stands in for it.
"""A model's float64 copy, loaded: contributed ops have float32 kernels only, and bodies in standard operators."""

from __future__ import annotations

import numpy as np
import onnx

from gradgen.engine.protos import all_nodes
from gradgen.engine.registry import Registry, registry_of
from gradgen.evaluate import Evaluator, to_float64
from gradgen.samples import expand_bodies

STANDARD = ("", "ai.onnx")


def double(model: onnx.ModelProto, registry: Registry | None = None) -> Evaluator:
    """A model in float64, as an engine runs it.

    Args:
        model: any model with its weights in memory; it is not changed.
        registry: where the forward bodies of ops come from that no engine has in float64.

    Raises:
        ValueError: no engine loads it; the message names the ops that have neither a kernel nor a body.
    """
    try:
        return Evaluator(to_float64(model), prefer="reference")
    except ValueError:
        if not _contributed(model):
            raise
    bodies = expand_bodies(model, registry_of(registry), lambda node: node.domain not in STANDARD)
    try:
        return Evaluator(to_float64(bodies), prefer="reference")
    except ValueError as error:
        left = ", ".join(_contributed(bodies))
        raise ValueError(f"no engine has {left} in float64" if left else str(error)) from error


def widen(array: np.ndarray) -> np.ndarray:
    """An array of floats in float64, any other as it is."""
    return array.astype(np.float64) if array.dtype.kind == "f" or array.dtype.name == "bfloat16" else array


def narrow_note(what: str, error: Exception) -> str:
    """The note that something is computed in float32, with the first line of what an engine raised in float64."""
    message = str(error).strip() or type(error).__name__
    return f"{what} in float32: {message.splitlines()[0][:160]}"


def _contributed(model: onnx.ModelProto) -> list[str]:
    """The ops of a model that the standard does not define, but those that it defines itself."""
    own = {(f.domain, f.name) for f in model.functions}
    nodes = (n for owner in (model.graph, *model.functions) for n in all_nodes(owner))
    found = {(n.domain, n.op_type) for n in nodes if n.domain not in STANDARD} - own
    return sorted(f"{domain}::{op_type}" for domain, op_type in found)
