"""A model as an objective for scipy.optimize: value and gradient of one flat vector."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper

from gradgen.api import value_and_grad
from gradgen.arguments import check_threads, named_arrays
from gradgen.compiled import compile as compile_model
from gradgen.engine.reading import Model, read
from gradgen.engine.registry import Registry
from gradgen.errors import GradientError
from gradgen.interop.functions import base_of_proto
from gradgen.request import SEEDED, roles_of, value_names
from gradgen.wording import worded


def scipy_objective(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    fixed: Mapping[str, Any] | None = None,
    *,
    start: Mapping[str, Any] | None = None,
    reduce: str | None = None,
    straight_through: bool = False,
    registry: Registry | None = None,
    threads: int | None = None,
) -> Objective:
    """A model as a function of a flat vector, for `scipy.optimize.minimize(f, f.x0, jac=True)`; run on onnxruntime.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        wrt: names (or globs) of inputs and initializers that are the variables; by default the float inputs.
        of: the scalar outputs whose sum is the value, as in `value_and_grad`.
        fixed: the content of the other inputs by name; of other initializers, to override it.
        start: where variables start, by name. Those that are left out start at their stored value, and inputs of a
            known shape at zero.
        reduce: "sum" for the sum of the elements of outputs that have more than one.
        straight_through, registry: as in `vjp`.
        threads: how many threads an op may use; by default one for each physical core.

    Returns:
        A function `f(x)` of a float64 vector that returns the value, a float, and the gradient, a float64 vector. The
        model computes in its own precision: in float32, give the optimiser a tolerance of 1e-6 or so.

    Raises:
        GradientError: as `value_and_grad`; for names that fit no input or initializer, inputs without a content, and
            variables of unknown shape.
    """
    if reduce not in (None, "sum"):
        raise GradientError(f"reduce is None or 'sum' for an objective, which has one value, not {reduce!r}")
    check_threads(threads)
    fixed, start = named_arrays("fixed", fixed), named_arrays("start", start, "the variables' names")
    proto = read(model)[0]
    with worded({"element": "", "cotangent": ""}):  # an objective has one value: neither of these can be asked for
        gradient = value_and_grad(proto, wrt, of, reduce=reduce, straight_through=straight_through, registry=registry)
    return Objective(proto, gradient, fixed, start, threads)


class Objective:
    """Value and gradient of a flat vector; see `scipy_objective`.

    Attributes:
        variables: the names of the variables, in the order in which the vector holds them.
        shapes: their shapes by name.
        x0: the vector at which they start.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        gradient: onnx.ModelProto,
        fixed: dict[str, Any],
        start: dict[str, Any],
        threads: int | None,
    ):
        roles = roles_of(gradient)
        added = {o.name for o in gradient.graph.output} - value_names(proto)
        self._gradients = {r["source"]: n for n, r in roles.items() if r["role"] == "gradient" and n in added}
        order = [roles[o.name]["source"] for o in gradient.graph.output if o.name in self._gradients.values()]
        self.variables = list(dict.fromkeys(order))
        self._values = [n for n, r in roles.items() if r["role"] == SEEDED]
        stored = {t.name: t for t in gradient.graph.initializer}
        inputs = {i.name: i for i in gradient.graph.input if i.name not in stored}
        problems = [f"wrt: '{n}' is computed by the model" for n in self.variables if n not in {*stored, *inputs}]
        for role, names in (("fixed", fixed), ("start", start)):
            problems += [
                f"{role}: there is no input or initializer '{n}'" for n in names if n not in {*stored, *inputs}
            ]
        problems += [f"fixed: '{n}' is in wrt" for n in fixed if n in self.variables]
        problems += [f"start: '{n}' is not in wrt" for n in start if n not in self.variables]
        problems += [
            f"input '{n}' is neither in wrt nor in fixed" for n in inputs if n not in self.variables and n not in fixed
        ]
        if problems:
            raise GradientError("; ".join(problems))
        self._step = compile_model(
            gradient, feed=[n for n in stored if n in {*self.variables, *fixed}], threads=threads, cache=False
        )
        base = str(base_of_proto(gradient) or "")
        point = {
            n: np.asarray(start[n])
            if n in start
            else onnx.numpy_helper.to_array(stored[n], base)
            if n in stored
            else np.zeros(_shape(inputs[n]))
            for n in self.variables
        }
        self._fixed = fixed
        kinds = {i.name: i.type.tensor_type.elem_type for i in inputs.values()}
        kinds.update({n: t.data_type for n, t in stored.items()})
        self._dtypes = {n: onnx.helper.tensor_dtype_to_np_dtype(kinds[n]) for n in self.variables}
        self.shapes = {n: array.shape for n, array in point.items()}
        self.x0 = self.pack(point)

    def __call__(self, x: Any) -> tuple[float, np.ndarray]:
        """The value, and the gradient as a float64 vector."""
        found = self._step(**self._fixed, **self.unpack(x))
        value = sum(float(np.sum(found[n], dtype=np.float64)) for n in self._values)
        return value, self.pack({n: found[self._gradients[n]] for n in self.variables})

    def pack(self, arrays: Mapping[str, Any]) -> np.ndarray:
        """The flat float64 vector of arrays by the variables' names; raises GradientError where a shape differs."""
        parts = []
        for name in self.variables:
            array = np.asarray(arrays[name], np.float64)
            if array.shape != self.shapes[name]:
                raise GradientError(f"'{name}' has shape {list(self.shapes[name])}, and the array {list(array.shape)}")
            parts.append(array.reshape(-1))
        return np.concatenate(parts)

    def unpack(self, x: Any) -> dict[str, np.ndarray]:
        """The arrays by name that a flat vector holds, in the model's types."""
        x = np.asarray(x, np.float64)
        sizes = [math.prod(s) for s in self.shapes.values()]
        if x.shape != (sum(sizes),):
            raise GradientError(f"the vector has {sum(sizes)} elements, and what is given has shape {list(x.shape)}")
        parts = np.split(x, np.cumsum(sizes)[:-1])
        return {
            n: part.reshape(self.shapes[n]).astype(self._dtypes[n])
            for n, part in zip(self.variables, parts, strict=True)
        }


def _shape(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    dims = info.type.tensor_type.shape.dim
    if not info.type.tensor_type.HasField("shape") or not all(d.HasField("dim_value") for d in dims):
        raise GradientError(f"the shape of '{info.name}' is not known: give an array in start")
    return tuple(d.dim_value for d in dims)
