# Operators for onnx.reference that carry a state along a sequence, where its own compute in float32.
"""Replacements like those of `gradgen.evaluate_ops`, for linear attention and the causal convolution with a state."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

from gradgen.evaluate_ops import Op


def _heads(x: np.ndarray, heads: int) -> np.ndarray:
    """[batch, length, heads·size] as [length, batch, heads, size]."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).transpose(1, 0, 2, 3)


class LinearAttention(Op):
    """The recurrence of the standard, step by step, in the type of the query."""

    def _run(
        self, query: Any, key: Any, value: Any, past_state: Any = None, decay: Any = None, beta: Any = None,
        chunk_size: Any = None, kv_num_heads: int = 1, q_num_heads: int = 1, scale: Any = None, update_rule: Any = None,
    ) -> tuple:  # fmt: skip
        rule = update_rule or "gated_delta"
        q, k, v = _heads(query, q_num_heads), _heads(key, kv_num_heads), _heads(value, kv_num_heads)
        length, batch, _, size = q.shape
        factor = scale or 1 / np.sqrt(size)
        shape = (batch, kv_num_heads, size, v.shape[3])
        state = np.zeros(shape, query.dtype) if past_state is None else past_state.astype(query.dtype)
        # Both have one number a head, or one for each key size (decay) or for all heads (beta).
        fade = None if decay is None else np.exp(_heads(decay, kv_num_heads))[..., None]
        rate = None if beta is None else beta.transpose(1, 0, 2)[..., None]
        output = np.zeros((length, batch, q_num_heads, v.shape[3]), query.dtype)
        for t in range(length):
            if fade is not None and "gated" in rule:
                state = state * fade[t]
            new = v[t]
            if rate is not None and "delta" in rule:
                new = rate[t] * (new - (k[t][..., None, :] @ state)[..., 0, :])
            state = state + k[t][..., :, None] * new[..., None, :]
            read = np.repeat(state, q_num_heads // kv_num_heads, axis=1)
            output[t] = factor * (q[t][..., None, :] @ read)[..., 0, :]
        present = state.astype(query.dtype if past_state is None else past_state.dtype)
        return output.transpose(1, 0, 2, 3).reshape(batch, length, -1), present


class CausalConvWithState(Op):
    """A depthwise convolution of what is past and what comes in, with the activation in the input's type."""

    def _run(self, x: Any, weight: Any, bias: Any = None, past_state: Any = None, activation: Any = None) -> tuple:
        length, taps = x.shape[2], weight.shape[2]
        past = np.zeros((*x.shape[:2], taps - 1), x.dtype) if past_state is None else past_state
        whole = np.concatenate([past, x], axis=2)
        output = np.zeros(x.shape, x.dtype) + (0 if bias is None else bias[:, None])
        for tap in range(taps):
            output = output + whole[:, :, tap : tap + length] * weight[:, 0, tap : tap + 1]
        if activation in ("silu", "swish"):
            output = output / (1 + np.exp(-output))
        return output.astype(x.dtype), whole[:, :, length:]


REPLACEMENTS: tuple[type[OpRun], ...] = (CausalConvWithState, LinearAttention)
