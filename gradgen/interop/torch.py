"""A model as a function of PyTorch tensors, with autograd."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gradgen.engine.reading import Model
from gradgen.engine.registry import Registry
from gradgen.errors import GradientError
from gradgen.interop.functions import Function, needed

torch = needed("torch", "torch")


def torch_function(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    straight_through: bool = False,
    registry: Registry | None = None,
    threads: int | None = None,
) -> TorchFunction:
    """A model as a differentiable function of PyTorch tensors, run on onnxruntime.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        wrt: names (or globs) of inputs and initializers that have a gradient; initializers become arguments behind the
            inputs. By default the float inputs. All other arguments are constants.
        of: names of the results; by default the model's outputs, of which the float ones are differentiated.
        straight_through, registry: as in `vjp`.
        threads: how many threads an op may use; by default one for each physical core.

    Returns:
        A function: `f(*tensors)` or `f(x=…)` takes tensors (or numpy arrays) in the order or by the names of
        `f.inputs`, and returns a tensor, or a tuple of them where `f.outputs` has several names. Arguments that are
        initializers may be left out. Tensors of any device are taken, computed with on the CPU, and the results are on
        the device of the first. The forward pass runs once for each call, and its residuals are kept for the backward
        pass; with `create_graph=True` that pass is differentiable in turn, to any order.

    Raises:
        ImportError: PyTorch is not installed.
        GradientError: as `vjp`; for arguments that do not fit; for a second derivative of a model that draws random
            numbers, as it would draw again.
    """
    return TorchFunction(Function(model, wrt, of, threads, straight_through=straight_through, registry=registry))


class TorchFunction:
    """A model as a function of tensors; see `torch_function`.

    Attributes:
        inputs: names of the arguments.
        outputs: names of the results.
        parameters: the stored values of the arguments that are initializers, as numpy arrays.
    """

    def __init__(self, function: Function):
        self._function = function
        self.inputs, self.outputs = function.inputs, function.outputs
        self.parameters = function.parameters

    def __call__(self, /, *tensors: Any, **named: Any) -> Any:
        """Run the model; see `torch_function`."""
        arguments = self._function.arguments(tensors, named)
        results = _Call.apply(self, *map(self._tensor, self.inputs, arguments))
        return results[0] if len(results) == 1 else results

    @cached_property
    def second(self) -> TorchFunction:
        """The gradients as a differentiable function of arguments and cotangents."""
        function = self._function
        if function.draws:
            raise GradientError(
                "the model draws random numbers, and its second derivative would draw again: differentiate it without "
                "create_graph, or take the derivatives of a model (gradgen.vjp)"
            )
        return TorchFunction(function.differentiated())

    def _tensor(self, name: str, value: Any) -> Any:
        tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(np.asarray(value))
        dtype = torch.from_numpy(np.zeros((), self._function.dtypes[name])).dtype
        if tensor.dtype != dtype:
            raise GradientError(f"argument '{name}' is of {dtype}, and the tensor of {tensor.dtype}")
        if (rank := self._function.ranks[name]) is not None and tensor.ndim != rank:
            raise GradientError(f"argument '{name}' has rank {rank}, and the tensor has shape {list(tensor.shape)}")
        return tensor


def _array(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().contiguous().numpy()


_Base: Any = torch.autograd.Function


class _Call(_Base):
    """One call of a model: the forward model at once, the backward model when gradients are asked for."""

    @staticmethod
    def forward(ctx: Any, owner: TorchFunction, *tensors: Any) -> tuple[Any, ...]:
        function = owner._function
        feeds = dict(zip(function.inputs, map(_array, tensors), strict=True))
        keep = any(ctx.needs_input_grad)
        found = function.forward(feeds, residuals=keep)
        device = tensors[0].device if tensors else "cpu"
        results = {n: torch.from_numpy(np.asarray(found[n])).to(device) for n in function.outputs}
        ctx.mark_non_differentiable(*(t for n, t in results.items() if n not in function.of))
        if keep:
            ctx.owner = owner
            ctx.residuals = {n: found[n] for n in function.residuals}
            ctx.names = [*function.inputs, *(n for n in results if n in function.backward_reads)]
            ctx.save_for_backward(*tensors, *(t for n, t in results.items() if n in function.backward_reads))
        return tuple(results.values())

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        owner: TorchFunction = ctx.owner
        function = owner._function
        held = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        by_output = dict(zip(function.outputs, cotangents, strict=True))
        seeds = {n: by_output[source] for n, source in function.cotangents.items()}
        if torch.is_grad_enabled():
            arguments = {**{n: held[n] for n in function.inputs}, **seeds}
            found = owner.second(**{n: arguments[n] for n in owner.second.inputs})
            gradients = dict(zip(function.wrt, found if isinstance(found, tuple) else (found,), strict=True))
        else:
            arrays = {n: _array(t) for n, t in {**held, **seeds}.items()}
            results = function.backward({**arrays, **ctx.residuals})
            gradients = {n: torch.from_numpy(np.asarray(a)).to(held[n].device) for n, a in results.items()}
        return (None, *(gradients.get(n) for n in function.inputs))
