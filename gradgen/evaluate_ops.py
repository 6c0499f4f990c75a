# Operators for onnx.reference where its own are wrong, compute in float32, or loop over elements.
"""Replacements handed to `onnx.reference.ReferenceEvaluator(new_ops=...)`, in plain numpy, in the dtype of the input.

The reference evaluator picks a replacement by operator name alone, so a class serves every version of its operator:
where versions differ, it looks at `self.version`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

_erf = np.vectorize(math.erf, otypes=[np.float64])


class Op(OpRun):
    """Base of the replacements."""

    op_domain = ""

    @property
    def version(self) -> int:
        """The opset version that the graph imports."""
        return self.run_params["opsets"][""]

    @property
    def wanted(self) -> int:
        """How many outputs the node names."""
        return len([name for name in self.onnx_node.output if name])


# Elementwise


class Erf(Op):
    def _run(self, x: Any) -> tuple:
        return (_erf(x).astype(x.dtype),)


class Gelu(Op):
    def _run(self, x: Any, approximate: str = "none") -> tuple:
        wide = x.astype(np.float64)
        if approximate == "tanh":
            y = 0.5 * wide * (1 + np.tanh(np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)))
        else:
            y = 0.5 * wide * (1 + _erf(wide / np.sqrt(2)))
        return (y.astype(x.dtype),)


class Mean(Op):
    def _run(self, *inputs: Any) -> tuple:
        return ((sum(inputs) / len(inputs)).astype(inputs[0].dtype),)


class Celu(Op):
    def _run(self, x: Any, alpha: float = 1.0) -> tuple:
        y = np.maximum(0, x) + np.minimum(0, alpha * np.expm1(np.minimum(x, 0) / alpha))
        return (y.astype(x.dtype),)


# Softmax and its losses. Before opset 13 everything from `axis` on is one dimension.


def _log_softmax(x: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    shifted = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))


class Softsign(Op):
    def _run(self, x: Any) -> tuple:
        return (np.asarray(x / (1 + np.abs(x))),)


class _Softmax(Op):
    def _axes(self, x: np.ndarray, axis: int | None) -> int | tuple[int, ...]:
        if self.version >= 13:
            return -1 if axis is None else axis
        return tuple(range((1 if axis is None else axis) % x.ndim, x.ndim))


class Softmax(_Softmax):
    def _run(self, x: Any, axis: int | None = None) -> tuple:
        return (np.exp(_log_softmax(x, self._axes(x, axis))).astype(x.dtype),)


class LogSoftmax(_Softmax):
    def _run(self, x: Any, axis: int | None = None) -> tuple:
        return (_log_softmax(x, self._axes(x, axis)).astype(x.dtype),)


class Hardmax(_Softmax):
    def _run(self, x: Any, axis: int | None = None) -> tuple:
        axes = np.atleast_1d(self._axes(x, axis)) % x.ndim
        moved = np.moveaxis(x, axes, range(-len(axes), 0))
        flat = moved.reshape(*moved.shape[: x.ndim - len(axes)], -1)
        first = np.arange(flat.shape[-1]) == flat.argmax(axis=-1)[..., None]
        return (np.moveaxis(first.reshape(moved.shape), range(-len(axes), 0), axes).astype(x.dtype),)


def _nll(logp: np.ndarray, target: np.ndarray, weight: Any, ignore_index: int | None, reduction: str) -> np.ndarray:
    kept = np.ones(target.shape, bool) if ignore_index is None else target != ignore_index
    label = np.where(kept, target, 0).astype(np.int64)
    factor = kept.astype(logp.dtype) * (1 if weight is None else np.asarray(weight)[label])
    picked = np.take_along_axis(logp, np.expand_dims(label, 1), 1).squeeze(1)
    loss = np.where(kept, -picked * factor, 0)
    if reduction == "mean":
        loss = loss.sum() / factor.sum()
    elif reduction == "sum":
        loss = loss.sum()
    return np.asarray(loss, dtype=logp.dtype)


class NegativeLogLikelihoodLoss(Op):
    def _run(self, x: Any, target: Any, weight: Any = None, ignore_index: Any = None, reduction: str = "mean") -> tuple:
        return (_nll(x, target, weight, ignore_index, reduction),)


class SoftmaxCrossEntropyLoss(Op):
    def _run(self, x: Any, target: Any, weight: Any = None, ignore_index: Any = None, reduction: str = "mean") -> tuple:
        logp = _log_softmax(x, 1)
        loss = _nll(logp, target, weight, ignore_index, reduction)
        return (loss, logp) if len(self.onnx_node.output) == 2 else (loss,)


# Normalization: the standard's bodies stash in float32, these do not


def per_channel(x: np.ndarray, value: np.ndarray) -> np.ndarray:
    """A value for each channel, shaped to broadcast over x [N, C, ...]."""
    return value.reshape(-1, *(1,) * (x.ndim - 2))


class BatchNormalization(Op):
    def _run(self, x: Any, scale: Any, b: Any, mean: Any, var: Any, **attributes: Any) -> tuple:
        epsilon, momentum = attributes.get("epsilon", 1e-5), attributes.get("momentum", 0.9)
        if self.version >= 14:
            training = bool(attributes.get("training_mode"))
        else:  # several outputs mean training mode, from version 7 on
            training = len(self.onnx_node.output) > 1 and not attributes.get("is_test")
        if attributes.get("spatial", 1) == 0:  # up to version 8: statistics for each element of a channel too
            axes: tuple[int, ...] = (0,)
            expand = lambda value: value.reshape(1, *x.shape[1:])  # noqa: E731
        else:
            axes = (0, *range(2, x.ndim))
            expand = lambda value: per_channel(x, value)  # noqa: E731
        used_mean, used_var = (x.mean(axis=axes), x.var(axis=axes)) if training else (mean, var)
        y = expand(scale) * (x - expand(used_mean)) / np.sqrt(expand(used_var) + epsilon) + expand(b)
        if not training:
            return (y.astype(x.dtype),)
        running = [mean * momentum + used_mean * (1 - momentum), var * momentum + used_var * (1 - momentum)]
        outputs = [y, *running] if self.version >= 14 else [y, *running, used_mean, used_var]
        return tuple(value.astype(x.dtype) for value in outputs[: len(self.onnx_node.output)])


class GroupNormalization(Op):
    def _run(self, x: Any, scale: Any, bias: Any, epsilon: float = 1e-5, num_groups: int = 1, **_: Any) -> tuple:
        grouped = x.reshape(x.shape[0], num_groups, -1)
        centred = grouped - grouped.mean(axis=2, keepdims=True)
        y = centred / np.sqrt(np.square(centred).mean(axis=2, keepdims=True) + epsilon)
        if self.version < 21:  # one scale a group, not a channel
            repeats = x.shape[1] // num_groups
            scale, bias = np.repeat(scale, repeats), np.repeat(bias, repeats)
        return ((y.reshape(x.shape) * per_channel(x, scale) + per_channel(x, bias)).astype(x.dtype),)


class MeanVarianceNormalization(Op):
    def _run(self, x: Any, axes: Any = (0, 2, 3)) -> tuple:
        axes = (0, 2, 3) if axes is None else tuple(axes)
        centred = x - x.mean(axis=axes, keepdims=True)
        deviation = np.sqrt(np.square(x).mean(axis=axes, keepdims=True) - x.mean(axis=axes, keepdims=True) ** 2)
        return ((centred / (deviation + 1e-9)).astype(x.dtype),)


class LpNormalization(Op):
    def _run(self, x: Any, axis: int = -1, p: int = 2) -> tuple:
        norm = np.linalg.norm(x, ord=p, axis=axis, keepdims=True)
        return (np.divide(x, norm, out=np.zeros_like(x), where=norm != 0),)


class LRN(Op):
    def _run(self, x: Any, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int = 1) -> tuple:
        before, after = (size - 1) // 2, size // 2
        squares = np.pad(np.square(x), [(0, 0), (before, after)] + [(0, 0)] * (x.ndim - 2))
        total = sum(squares[:, k : k + x.shape[1]] for k in range(size))
        return ((x / (bias + alpha / size * total) ** beta).astype(x.dtype),)


REPLACEMENTS: tuple[type[OpRun], ...] = (
    BatchNormalization,
    Celu,
    Erf,
    Gelu,
    GroupNormalization,
    Hardmax,
    LRN,
    LogSoftmax,
    LpNormalization,
    Mean,
    MeanVarianceNormalization,
    NegativeLogLikelihoodLoss,
    Softmax,
    SoftmaxCrossEntropyLoss,
    Softsign,
)
