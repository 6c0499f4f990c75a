"""Forward bodies of the ops that onnxruntime's optimiser fuses a model into: what they compute, in standard ops."""

from __future__ import annotations

import math

import numpy as np

from gradgen.engine.values import UnknownTypeError
from gradgen.errors import GradientError
from gradgen.rules.lang import forward, op
from gradgen.rules.ranks import END, axes_from, of_rank, regrouped, stated

SQRT_HALF = np.float64(math.sqrt(0.5))
SQRT_2_OVER_PI = np.float64(math.sqrt(2 / math.pi))


def refuse(**given):
    """Refuse inputs and attributes that the body does not cover, by name."""
    for name, value in given.items():
        if value is not None and value not in (0, "NONE"):
            raise GradientError(f"'{name}' is set, which its forward body does not cover")


def gelu(x):
    """x·Φ(x)."""
    return x * 0.5 * (op.Erf(x * SQRT_HALF.item()) + 1.0)


@forward("Y")
def gelu_exact(X):
    """Y = X·Φ(X)."""
    return gelu(X)


@forward("Y")
def fast_gelu(X, bias=None):
    """Y = ½x·(1 + tanh √(2/π)·(x + 0.044715·x³)) of x = X + bias."""
    x = X if bias is None else X + bias
    inner = (x + x * x * x * 0.044715) * SQRT_2_OVER_PI.item()
    return x * 0.5 * (op.Tanh(inner) + 1.0)


@forward("Y")
def quick_gelu(X, *, alpha=1.702):
    """Y = X·σ(alpha·X)."""
    return X * op.Sigmoid(X * alpha)


@forward("C")
def bias_gelu(A, B):
    """C = x·Φ(x) of x = A + B."""
    return gelu(A + B)


@forward("Y")
def bias_add(X, bias, skip):
    """Y = X + bias + skip."""
    return X + bias + skip


@forward("output")
def bias_softmax(data, bias, *, axis=1, is_inner_broadcast=0):
    """output = softmax of data + bias over the axes from `axis` on."""
    x = data + bias
    if axis == -1 or (x.shape is not None and axis % x.rank == x.rank - 1):
        return op.Softmax(x, axis=-1)
    return op.Reshape(op.Softmax(op.Flatten(x, axis=axis), axis=-1), op.Shape(x), allowzero=1)


def swapped(x, transposed, batch):
    """A matrix of FusedMatMul as it is multiplied: first axis moved behind the batch, last two axes exchanged."""
    if not transposed and not batch:
        return x
    if x.shape is None:
        behind = op.Shape(x, start=1)
        if batch:
            groups = op.Shape(x, end=1), op.Slice(behind, [0], [-1]), op.Slice(behind, [-1], [END])
        else:
            groups = op.Shape(x, end=-2), op.Shape(x, start=-2, end=-1), op.Shape(x, start=-1)
        return regrouped(x, groups, [1, 2, 0] if batch and transposed else [1, 0, 2] if batch else [0, 2, 1])
    axes = list(range(x.rank))
    if batch and x.rank > 2:
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if transposed and x.rank > 1:
        axes = [*axes[:-2], axes[-1], axes[-2]]
    return op.Transpose(x, perm=axes)


@forward("Y")
def fused_matmul(A, B, *, alpha=1.0, transA=0, transB=0, transBatchA=0, transBatchB=0):
    """Y = alpha·A·B."""
    return op.MatMul(swapped(A, transA, transBatchA), swapped(B, transB, transBatchB)) * alpha


def activate(x, activation, parameters):
    """The activation of a fused op."""
    if not activation:
        return x
    first, second = [*parameters, None, None][:2]
    if activation == "LeakyRelu":
        return op.LeakyRelu(x, alpha=0.01 if first is None else first)
    if activation == "HardSigmoid":
        return op.HardSigmoid(x, alpha=0.2 if first is None else first, beta=0.5 if second is None else second)
    if activation == "Clip":
        return op.Clip(x, first, second)
    if activation in ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign"):
        return getattr(op, activation)(x)
    raise GradientError(f"its forward body does not know the activation '{activation}'")


@forward("Y")
def fused_gemm(A, B, C=None, *, alpha=1.0, beta=1.0, transA=0, transB=0, activation="", activation_alpha=None,
               activation_beta=None, activation_gamma=None):  # fmt: skip
    """Y = activation(alpha·A·B + beta·C)."""
    y = op.Gemm(A, B, C, alpha=alpha, beta=beta, transA=transA, transB=transB)
    return activate(y, activation, [activation_alpha, activation_beta])


@forward("Y")
def fused_conv(X, W, B=None, Z=None, *, auto_pad="NOTSET", dilations=None, group=1, kernel_shape=None, pads=None,
               strides=None, activation="", activation_params=None):  # fmt: skip
    """Y = activation(Conv(X, W, B) + Z)."""
    y = op.Conv(X, W, B, auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
                strides=strides)  # fmt: skip
    return activate(y if Z is None else y + Z, activation, activation_params or [])


@forward("Y", "Mean", "InvStdDev")
def layer_normalization(X, Scale, B=None, *, axis=-1, epsilon=1e-5, stash_type=1):
    """The standard's LayerNormalization, which models had before the standard."""
    return tuple(op.LayerNormalization(X, Scale, B, axis=axis, epsilon=epsilon, stash_type=stash_type, _outputs=3))


def root_mean_square(x, scale, axis, epsilon):
    """x / √(mean x² + ε)·scale over the axes from `axis` on, and 1/√…"""
    axes = axes_from(axis if axis < 0 or x.shape is None else axis - x.rank, x)
    inverse = op.Reciprocal(op.Sqrt(op.ReduceMean(x * x, axes, keepdims=1) + epsilon))
    return x * inverse * scale, inverse


@forward("Y", "inv_std_var")
def simplified_layer_normalization(X, scale, *, axis=-1, epsilon=1e-5, stash_type=1):
    """Y = X / √(mean X² + ε)·scale."""
    return root_mean_square(X, scale, axis, epsilon)


@forward("output", "mean", "inv_std_var", "input_skip_bias_sum")
def skip_layer_normalization(input, skip, gamma, beta=None, bias=None, *, epsilon=1e-12):
    """LayerNormalization of input + skip + bias."""
    total = input + skip if bias is None else input + skip + bias
    return op.LayerNormalization(total, gamma, beta, axis=-1, epsilon=epsilon), None, None, total


@forward("output", "mean", "inv_std_var", "input_skip_bias_sum")
def skip_simplified_layer_normalization(input, skip, gamma, bias=None, *, epsilon=1e-12):
    """RMS normalization of input + skip + bias."""
    total = input + skip if bias is None else input + skip + bias
    return root_mean_square(total, gamma, -1, epsilon)[0], None, None, total


def size(x, axis):
    """The size of an axis, as a scalar."""
    return op.Squeeze(op.Shape(x, start=axis, end=axis + 1), [0])


def split_heads(x, heads):
    """[batch, sequence, heads·width] → [batch, sequence, heads, width]."""
    return op.Reshape(x, [0, 0, heads, -1])


def to_heads(x, heads):
    """[batch, sequence, heads·width] → [batch, heads, sequence, width]."""
    return op.Transpose(split_heads(x, heads), perm=[0, 2, 1, 3])


def from_heads(x):
    """[batch, heads, sequence, width] → [batch, sequence, heads·width]."""
    return op.Reshape(op.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, -1])


def rotate(x, cos, sin, interleaved):
    """The first channels of every head rotated in pairs, as many as cos and sin, [..., half], have angles for."""
    half = op.Shape(cos, start=-1)
    width = half * 2
    rotated = op.Slice(x, [0], width, [-1])
    if interleaved:
        pairs = op.Reshape(rotated, op.Concat(op.Shape(rotated, end=-1), half, [2], axis=0))
        a, b = (op.Squeeze(part, [-1]) for part in op.Split(pairs, axis=-1, num_outputs=2, _outputs=2))
        turned = [op.Unsqueeze(a * cos - b * sin, [-1]), op.Unsqueeze(a * sin + b * cos, [-1])]
        result = op.Reshape(op.Concat(*turned, axis=-1), op.Shape(rotated))
    else:
        a, b = op.Split(rotated, axis=-1, num_outputs=2, _outputs=2)
        result = op.Concat(a * cos - b * sin, a * sin + b * cos, axis=-1)
    whole = (
        x.shape is not None
        and isinstance(x.shape[-1], int)
        and width.const is not None
        and width.const[0] == x.shape[-1]
    )
    return result if whole else op.Concat(result, op.Slice(x, width, [2**31 - 1], [-1]), axis=-1)


def positions(position_ids, x, axis):
    """The position of every token, [batch or 1, sequence]: one offset counts from there."""
    if position_ids.rank == 2:
        return position_ids
    steps = op.Range(np.asarray(0, np.int64), size(x, axis), np.asarray(1, np.int64))
    return op.Unsqueeze(op.Add(op.Cast(position_ids, to=7), steps), [0])


@forward("output")
@of_rank("input", ranks=(3, 4))
def rotary_embedding(input, position_ids, cos_cache, sin_cache, *, interleaved=0, num_heads=0, rotary_embedding_dim=0,
                     scale=1.0, is_packed_batching=0):  # fmt: skip
    """Pairs of channels rotated by the angles of their positions."""
    refuse(is_packed_batching=is_packed_batching)
    stated(cos_cache, 2)
    stated(sin_cache, 2)
    at = positions(position_ids, input, 2 if input.rank == 4 else 1)
    axis = 1 if input.rank == 4 else 2
    cos, sin = (op.Unsqueeze(op.Gather(cache, at), [axis]) for cache in (cos_cache, sin_cache))
    if input.rank == 4:
        return rotate(input, cos, sin, interleaved)
    width = op.Shape(cos_cache, start=-1) * 2
    x = split_heads(input, num_heads) if num_heads else op.Reshape(input, op.Concat([0, 0, -1], width, axis=0))
    return op.Reshape(rotate(x, cos, sin, interleaved), op.Shape(input))


def attend(q, k, v, scale, bias=None, causal=False, softcap=0.0, window=-1, last=None):
    """softmax(scale·q·kᵀ + bias)·v of [batch, heads, sequence, width]; causal rows see no later column.

    `last` is the last column that a row of each sequence may see, [batch, 1, 1, 1]. A row that sees none gives zeros.
    """
    clipped = bool(softcap) and last is not None
    scores = op.MatMul(q * scale, op.Transpose(k, perm=[0, 1, 3, 2]))
    if softcap:
        scores = op.Tanh(scores * (1.0 / softcap)) * softcap
    scores = scores if bias is None else scores + bias
    if causal:
        zero, one = np.asarray(0, np.int64), np.asarray(1, np.int64)
        row = op.Unsqueeze(op.Range(zero, size(q, 2), one), [1])
        column = op.Unsqueeze(op.Range(zero, size(k, 2), one), [0])
        hidden = op.Greater(column, row)
        if window > 0:
            # With a soft cap another kernel runs: there the window of a row behind the last column ends at that one.
            end = op.Min(row, last) if clipped else row
            hidden = op.Or(hidden, op.LessOrEqual(column, end - window))
        hidden = hidden if last is None else op.Or(hidden, op.Greater(column, last))
        if scores.dtype is None:
            raise UnknownTypeError("the element type of the query is unknown")
        scores = op.Where(hidden, np.finfo(scores.dtype.numpy()).min.item(), scores)
    result = op.MatMul(op.Softmax(scores, axis=-1), v)
    if last is None or window <= 0 or clipped:
        return result
    return op.Where(op.GreaterOrEqual(row - window, last), op.CastLike(np.asarray(0.0), result), result)


def key_mask(mask, q, k, value):
    """What a mask adds to the scores: `value` where a key is hidden, broadcast against [batch, heads, query, key]."""
    if mask is None:
        return None
    if mask.rank == 1:
        # The end of each sequence, and behind these perhaps the starts.
        batch = op.Shape(q, end=1)
        ends = op.Slice(mask, [0], batch)
        starts = op.Slice(
            op.Concat(mask, op.CastLike(op.Expand(np.zeros(1, np.int64), batch), mask), axis=0), batch, batch * 2
        )
        columns = op.Unsqueeze(op.Range(np.asarray(0, np.int64), size(k, 2), np.asarray(1, np.int64)), [0])
        first, behind = (op.Cast(op.Unsqueeze(bound, [1]), to=7) for bound in (starts, ends))
        visible = op.And(op.Less(columns, behind), op.GreaterOrEqual(columns, first))
    else:
        visible = op.Greater(mask, op.CastLike(np.asarray(0, np.int64), mask))
    hidden = op.CastLike(op.Not(visible), q) * value
    axes = {2: [1, 2], 3: [1], 4: []}[max(2, mask.rank)]
    return op.Unsqueeze(hidden, axes) if axes else hidden


def added(a, b):
    """The sum of two biases, either of which may be absent."""
    return a if b is None else (b if a is None else a + b)


@forward("output")
def attention(input, weights, bias=None, mask_index=None, past=None, attention_bias=None, past_sequence_length=None, *,
              num_heads, qkv_hidden_sizes=None, scale=0.0, mask_filter_value=-10000.0, unidirectional=0, do_rotary=0,
              rotary_embedding_dim=0, past_present_share_buffer=0):  # fmt: skip
    """Attention of the three projections of one input."""
    refuse(past=past, do_rotary=do_rotary)
    projected = op.MatMul(input, weights)
    projected = projected if bias is None else projected + bias
    if qkv_hidden_sizes:
        parts = op.Split(projected, qkv_hidden_sizes, axis=-1, _outputs=3)
    else:
        parts = op.Split(projected, axis=-1, num_outputs=3, _outputs=3)
    q, k, v = (to_heads(part, num_heads) for part in parts)
    mask = added(key_mask(mask_index, q, k, mask_filter_value), attention_bias)
    return from_heads(attend(q, k, v, scale or default_scale(q), mask, unidirectional))


def default_scale(q):
    """1/√width."""
    if q.shape is None or not isinstance(q.shape[-1], int):
        return op.Reciprocal(op.Sqrt(op.CastLike(size(q, 3), q)))
    return 1 / math.sqrt(q.shape[-1])


@forward("output")
@of_rank("key", "value", ranks=(3, 4), known=lambda given: 5 if given["value"] is None else None)
def multi_head_attention(query, key=None, value=None, bias=None, key_padding_mask=None, attention_bias=None,
                         past_key=None, past_value=None, past_sequence_length=None, cache_indirection=None, *,
                         num_heads, scale=0.0, mask_filter_value=-10000.0, unidirectional=0):  # fmt: skip
    """Attention of query, key and value; also of the packed forms […, heads, 3 or 2, width]."""
    refuse(past_key=past_key, cache_indirection=cache_indirection)
    if key is None:
        parts = op.Split(stated(query, 5), axis=3, num_outputs=3, _outputs=3)
        query, key, value = (op.Reshape(part, [0, 0, -1]) for part in parts)
    elif value is None:
        key, value = (op.Reshape(part, [0, 0, -1]) for part in op.Split(key, axis=3, num_outputs=2, _outputs=2))
    else:
        stated(query, 3)
    if bias is not None:
        stated(bias, 1)
        query, key, value = biased((query, key, value), bias)
    q, k, v = (x if x.rank == 4 else to_heads(x, num_heads) for x in (query, key, value))
    mask = added(key_mask(key_padding_mask, q, k, mask_filter_value), attention_bias)
    return from_heads(attend(q, k, v, scale or default_scale(q), mask, unidirectional))


def biased(values, bias):
    """Query, key and value with their parts of the bias; those in four dimensions have none."""
    query, *others = values
    if others[0].rank == 4:
        return [query + op.Slice(bias, [0], op.Shape(query, start=-1)), *others]
    parts = op.Split(bias, op.Concat(*(op.Shape(x, start=-1) for x in values), axis=0), axis=0, _outputs=3)
    return [x + b for x, b in zip(values, parts, strict=True)]


@forward("output", "present_key", "present_value")
def group_query_attention(query, key=None, value=None, past_key=None, past_value=None, seqlens_k=None,
                          total_sequence_length=None, cos_cache=None, sin_cache=None, position_ids=None,
                          attention_bias=None, head_sink=None, k_scale=None, v_scale=None, q_norm_weight=None,
                          k_norm_weight=None, query_seqlens=None, *, num_heads, kv_num_heads, scale=0.0, softcap=0.0,
                          local_window_size=-1, do_rotary=0, rotary_interleaved=0, smooth_softmax=0, causal=1,
                          qk_output=0, k_quant_type="NONE", v_quant_type="NONE", kv_cache_bit_width=0,
                          sliding_window_cache=0, q_norm_epsilon=0.0, k_norm_epsilon=0.0,
                          qk_norm_epsilon=0.0):  # fmt: skip
    """Causal attention in which groups of query heads share a key and value head, of prompts that may be ragged."""
    refuse(past_key=past_key, head_sink=head_sink, k_scale=k_scale, v_scale=v_scale, q_norm_weight=q_norm_weight,
           k_norm_weight=k_norm_weight, query_seqlens=query_seqlens, smooth_softmax=max(smooth_softmax, 0),
           causal=1 - causal, qk_output=qk_output, k_quant_type=k_quant_type, v_quant_type=v_quant_type,
           sliding_window_cache=sliding_window_cache)  # fmt: skip
    if key is None:
        heads = op.Split(split_heads(query, num_heads + 2 * kv_num_heads), [num_heads, kv_num_heads, kv_num_heads],
                         axis=2, _outputs=3)  # fmt: skip
        q, k, v = (op.Transpose(x, perm=[0, 2, 1, 3]) for x in heads)
    else:
        q, k, v = to_heads(query, num_heads), to_heads(key, kv_num_heads), to_heads(value, kv_num_heads)
    if do_rotary:
        at = positions(np_zero() if position_ids is None else position_ids, q, 2)
        cos, sin = (op.Unsqueeze(op.Gather(cache, at), [1]) for cache in (cos_cache, sin_cache))
        q, k = rotate(q, cos, sin, rotary_interleaved), rotate(k, cos, sin, rotary_interleaved)
    keys, values = repeat_heads(k, num_heads // kv_num_heads), repeat_heads(v, num_heads // kv_num_heads)
    last = last_columns(seqlens_k, k)
    y = attend(q, keys, values, scale or default_scale(q), attention_bias, True, softcap, local_window_size, last)
    return from_heads(y), k, v


def last_columns(seqlens_k, k):
    """The last key of each sequence, [batch, 1, 1, 1]; None where all are known to be as long as the keys."""
    length = None if k.shape is None else k.shape[2]
    if seqlens_k.const is not None and isinstance(length, int) and (seqlens_k.const >= length - 1).all():
        return None
    return op.Reshape(op.Cast(seqlens_k, to=7), [-1, 1, 1, 1])


def np_zero():
    """The position of the first token."""
    return op.Identity(np.zeros(1, np.int64))


def repeat_heads(x, times):
    """Every head repeated for the query heads that share it."""
    if times == 1:
        return x
    wide = op.Concat(*[op.Unsqueeze(x, [2])] * times, axis=2)
    return op.Reshape(wide, op.Concat([0, -1], op.Shape(x, start=2), axis=0))
