"""A model as a function of JAX arrays, with a custom_vjp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from gradgen.engine.reading import Model
from gradgen.engine.registry import Registry
from gradgen.errors import GradientError
from gradgen.interop.functions import Function, Shape, needed

jax = needed("jax", "jax")
Shapes = Callable[[Mapping[str, Shape]], Mapping[str, Shape]]


def jax_function(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    order: int = 1,
    shapes: Shapes | None = None,
    straight_through: bool = False,
    registry: Registry | None = None,
    threads: int | None = None,
) -> JaxFunction:
    """A model as a differentiable function of JAX arrays, run on onnxruntime.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        wrt: names (or globs) of inputs and initializers that have a gradient; initializers become arguments behind the
            inputs. By default the float inputs. All other arguments are constants.
        of: names of the results; by default the model's outputs, of which the float ones are differentiated.
        order: how often the function is differentiated in reverse. The first derivative of order 1 keeps residuals; that
            of a higher order runs the forward pass again, so that it can be differentiated in turn.
        shapes: gives the shapes of results by name from those of the arguments by name, where shape inference with the
            arguments' shapes does not find them.
        straight_through, registry: as in `vjp`.
        threads: how many threads an op may use; by default one for each physical core.

    Returns:
        A function: `f(*arrays)` or `f(x=…)` takes arrays in the order or by the names of `f.inputs`, and returns an
        array, or a tuple of them where `f.outputs` has several names. Arguments that are initializers may be left out.
        It works under jit, grad, vjp and vmap (one call for each element), through `jax.pure_callback`: JAX may leave
        out or repeat a call, so the results of a model that draws random numbers are not its only ones. Integers have
        JAX's width; float64 needs `jax_enable_x64`.

    Raises:
        ImportError: JAX is not installed.
        GradientError: as `vjp`; for arguments that do not fit; for results whose shapes are not found.
    """
    if isinstance(order, bool) or not isinstance(order, int) or order < 1:
        raise GradientError(f"order is a whole number from 1 on, not {order!r}")
    function = Function(model, wrt, of, threads, straight_through=straight_through, registry=registry)
    return JaxFunction(function, order, shapes)


class JaxFunction:
    """A model as a function of JAX arrays; see `jax_function`.

    Attributes:
        inputs: names of the arguments.
        outputs: names of the results.
        parameters: the stored values of the arguments that are initializers, as numpy arrays.
    """

    def __init__(self, function: Function, order: int, shapes: Shapes | None):
        self._function, self._order, self._given_shapes = function, order, shapes
        self.inputs, self.outputs = function.inputs, function.outputs
        self.parameters = function.parameters
        self._infer = lru_cache(maxsize=None)(lambda given: function.shapes(dict(given)))
        self._call = jax.custom_vjp(self._run)
        self._call.defvjp(self._forward, self._backward)

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Run the model; see `jax_function`."""
        arguments = self._function.arguments(arrays, named)
        results = self._call(*map(self._array, self.inputs, arguments))
        return results[0] if len(results) == 1 else results

    @cached_property
    def _gradient(self) -> JaxFunction:
        """The gradients as a function of arguments and cotangents, which runs the forward pass again."""
        function = self._function
        if function.draws:
            raise GradientError(
                "the model draws random numbers, and this derivative would draw again: use order 1, and a model whose "
                "residuals have shapes that inference finds"
            )
        by_gradient = {g: n for g, n in function.gradients.items()}

        def shapes(given: Mapping[str, Shape]) -> Mapping[str, Shape]:
            return {g: given[n] for g, n in by_gradient.items()}

        return JaxFunction(function.differentiated(), max(1, self._order - 1), shapes)

    def _array(self, name: str, value: Any) -> Any:
        function = self._function
        array = jax.numpy.asarray(value)
        wanted = function.dtypes[name]
        dtype = _dtype(wanted, f"argument '{name}'")
        if not jax.numpy.can_cast(array.dtype, dtype, "same_kind"):
            raise GradientError(f"argument '{name}' is of {wanted}, and the array of {array.dtype}")
        if (rank := function.ranks[name]) is not None and array.ndim != rank:
            raise GradientError(f"argument '{name}' has rank {rank}, and the array has shape {list(array.shape)}")
        return array.astype(dtype)

    def _types(self, arrays: Sequence[Any]) -> dict[str, tuple[Shape | None, Any]]:
        """The shapes and types of results and residuals."""
        given = {n: tuple(a.shape) for n, a in zip(self.inputs, arrays, strict=True)}
        found = dict(self._infer(tuple(given.items())))
        if self._given_shapes is not None:
            found.update({n: (tuple(s), self._function.dtypes[n]) for n, s in self._given_shapes(given).items()})
        if missing := [n for n in self.outputs if found[n][0] is None]:
            raise GradientError(
                f"the shape of {', '.join(map(repr, missing))} cannot be inferred from those of the arguments, and JAX has "
                "to know it: pass shapes=, a function from the arguments' shapes to those of the results"
            )
        return found

    def _run(self, *arrays: Any) -> tuple[Any, ...]:
        types = self._types(arrays)
        return self._host(lambda feeds: self._function.forward(feeds, False), self.outputs, types, self.inputs, arrays)

    def _forward(self, *arrays: Any) -> tuple[tuple[Any, ...], Any]:
        function, types = self._function, self._types(arrays)
        if self._order > 1 or any(types[n][0] is None for n in function.residuals):
            return self._call(*arrays), (arrays, None)
        names = [*self.outputs, *function.residuals]
        found = self._host(lambda feeds: function.forward(feeds, True), names, types, self.inputs, arrays)
        held = {**dict(zip(self.inputs, arrays, strict=True)), **dict(zip(names, found, strict=True))}
        kept = {n: held[n] for n in function.backward_reads}
        return found[: len(self.outputs)], (arrays, kept)

    def _backward(self, saved: Any, cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        function = self._function
        arrays, kept = saved
        by_output = dict(zip(self.outputs, cotangents, strict=True))
        seeds = {n: by_output[source] for n, source in function.cotangents.items()}
        arguments = dict(zip(self.inputs, arrays, strict=True))
        if kept is None:
            gradient = self._gradient
            found = gradient(**{n: {**arguments, **seeds}[n] for n in gradient.inputs})
            gradients = dict(zip(function.wrt, found if isinstance(found, tuple) else (found,), strict=True))
        else:
            held = {**kept, **seeds}
            types = {n: (arguments[n].shape, function.dtypes[n]) for n in function.wrt}
            values = self._host(function.backward, function.wrt, types, list(held), list(held.values()))
            gradients = dict(zip(function.wrt, values, strict=True))
        return tuple(gradients.get(n) for n in self.inputs)

    def _host(
        self,
        run: Callable[[dict[str, np.ndarray]], Mapping[str, Any]],
        names: Sequence[str],
        types: Mapping[str, tuple[Shape | None, Any]],
        operands: Sequence[str],
        arrays: Sequence[Any],
    ) -> tuple[Any, ...]:
        """Call a session from JAX; arrays have the model's types there."""
        function = self._function
        structs = tuple(jax.ShapeDtypeStruct(types[n][0], _dtype(types[n][1], f"'{n}'")) for n in names)

        def call(*values: Any) -> tuple[np.ndarray, ...]:
            feeds = {n: np.asarray(v, function.feed_dtype(n)) for n, v in zip(operands, values, strict=True)}
            found = run(feeds)
            return tuple(np.asarray(found[n], s.dtype) for n, s in zip(names, structs, strict=True))

        return tuple(jax.pure_callback(call, structs, *arrays, vmap_method="sequential"))


def _dtype(dtype: Any, what: str) -> Any:
    """JAX's type for a numpy type; raises GradientError where it would lose precision."""
    found = np.dtype(jax.dtypes.canonicalize_dtype(dtype))
    if np.issubdtype(dtype, np.floating) and found != dtype:
        raise GradientError(
            f"{what} is of {dtype}, and JAX computes in {found}: set jax.config.update('jax_enable_x64', True)"
        )
    return found
