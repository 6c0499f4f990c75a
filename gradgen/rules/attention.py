"""Rules of attention: scaled dot products with masks, caches and groups of query heads, and the pair that saves P."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradgen.engine.values import UnknownTypeError
from gradgen.rules.lang import current_builder, op, same_dim, traced
from gradgen.rules.library import reshape_like, sum_to
from gradgen.rules.ranks import of_rank, stated

BOOL = 9
# Operands in four dimensions have their heads apart; those in three need to be told how many there are.
SAME_RANK = of_rank("dY", "Q", "K", "V", "Y", ranks=(3, 4), known=lambda given: None if given.get("q_num_heads") else 4)


def _split(x: Any, heads: int | None) -> Any:
    """[batch, length, heads·size] as [batch, heads, length, size], which an x of rank 4 has already."""
    if x is None or x.rank == 4:
        return x
    size = op.Div(op.Shape(x, start=2), np.asarray([heads]))
    apart = op.Reshape(x, op.Concat(op.Shape(x, end=2), [heads], size, axis=0), allowzero=1)
    return op.Transpose(apart, perm=[0, 2, 1, 3])


def _join(x: Any, like: Any) -> Any:
    """The inverse of `_split` for a value of the shape of `like`."""
    return x if like.rank == 4 else reshape_like(op.Transpose(x, perm=[0, 2, 1, 3]), like)


def _flip(x: Any) -> Any:
    """The matrices of a 4-D x, transposed."""
    return op.Transpose(x, perm=[0, 1, 3, 2])


def _group(x: Any, key: Any) -> Any:
    """[batch, query heads, length, ·] as [batch, key heads, group·length, ·]: the queries of a key head are rows."""
    x = stated(x, 4)
    if same_dim(x.shape[1], key.shape[1]):
        return x
    heads = op.Shape(key, start=1, end=2)
    rows = op.Div(op.Mul(op.Shape(x, start=1, end=2), op.Shape(x, start=2, end=3)), heads)
    return op.Reshape(x, op.Concat(op.Shape(x, end=1), heads, rows, op.Shape(x, start=3), axis=0), allowzero=1)


def _ungroup(x: Any, query: Any) -> Any:
    """The inverse of `_group`: the first dimensions are those of the query."""
    x = stated(x, 4)
    if same_dim(x.shape[1], query.shape[1]):
        return x
    return op.Reshape(x, op.Concat(op.Shape(query, end=3), op.Shape(x, start=3), axis=0), allowzero=1)


def _cached(past: Any, x: Any) -> Any:
    """The whole cache: what is past, followed by what comes in."""
    return x if past is None else op.Concat(past, x, axis=2)


def _range(x: Any, axis: int) -> Any:
    """0, 1, … along an axis of x."""
    size = op.Squeeze(op.Shape(x, start=axis, end=axis + 1), [0])
    return op.Range(np.int64(0), size, np.int64(1))


def _other_length(mask: Any, key: Any) -> bool:
    """Whether a mask may be as long as the keys are not; before opset 24 its last axis is broadcast like the others."""
    return current_builder().opset >= 24 and not same_dim(mask.shape[-1] if mask.shape else None, key.shape[2])


def _padded(mask: Any, key: Any, fill: Any) -> Any:
    """A mask that ends before the keys do, filled up on its last axis; one that goes on behind them, cut off."""
    if not _other_length(mask, key):
        return mask
    missing = op.Sub(op.Shape(key, start=2, end=3), op.Shape(mask, start=-1))
    return op.Pad(mask, op.Concat([0], missing, axis=0), fill, [-1])


def _allowed(query: Any, key: Any, past: Any, nonpad: Any, causal: int, left: int, right: int) -> Any:
    """Which keys a query may see by its position and by the lengths of the sequences; None for all."""
    column = _range(key, 2)
    position = op.Unsqueeze(_range(query, 2), [1])
    length = None if nonpad is None else op.Reshape(nonpad, [-1, 1, 1, 1])
    if past is not None:
        position = position + op.Shape(past, start=2, end=3)
    elif length is not None:
        position = position + (length - op.Shape(query, start=2, end=3))
    rules = []
    if causal:
        rules.append(op.LessOrEqual(column, position))
    if left >= 0:
        rules.append(op.GreaterOrEqual(column, position - left))
    if right >= 0:
        rules.append(op.LessOrEqual(column, position + right))
    if length is not None:
        rules.append(op.Less(column, length))
    return _all(rules)


def _all(rules: list[Any]) -> Any:
    result = None
    for rule in rules:
        result = rule if result is None else op.And(result, rule)
    return result


def _bias(query, key, mask, past, nonpad, causal, left, right) -> tuple[Any, Any]:
    """What is added to the scores (None for nothing), 0 in rows that see no key; and 1 for the other rows, 0 for these.

    The second is None where every row is known to see a key.
    """
    allowed = _allowed(query, key, past, nonpad, causal, left, right)
    bias = None
    if mask is not None:
        if mask.dtype is None:
            raise UnknownTypeError("the element type of 'attn_mask' is unknown")
        if int(mask.dtype) == BOOL:
            allowed = _all([r for r in (allowed, _padded(mask, key, np.asarray(False))) if r is not None])
        else:
            bias = _padded(op.CastLike(mask, query), key, op.CastLike(np.float32(-np.inf), query))
    if allowed is not None:
        zero, never = (op.CastLike(np.float32(v), query) for v in (0, -np.inf))
        bias = op.Where(allowed, zero if bias is None else bias, never)
    if bias is None or (mask is None and nonpad is None and left < 0 and right < 0):
        return bias, None  # a causal row sees the first key
    sees = op.Greater(op.ReduceMax(bias, [-1], keepdims=1), -np.inf)
    if sees.const is not None and sees.const.all():
        return bias, None
    return op.Where(sees, bias, 0.0), op.CastLike(sees, query)


@dataclass
class _Forward:
    """The forward pass: 4-D keys and values with the cache, scaled grouped query, scores and probabilities.

    `tanh` is that of the soft cap, `scores` come before it, `biased` are the masked ones; P is 0 in rows that see no
    key.
    """

    query: Any
    rows: Any
    key: Any
    value: Any
    factor: Any
    tanh: Any = None
    scores: Any = None
    capped: Any = None
    biased: Any = None
    P: Any = None


def _operands(Q, K, V, past_key, past_value, scale, q_num_heads, kv_num_heads) -> _Forward:
    stated(past_key, 4)
    stated(past_value, 4)
    query, key = _split(Q, q_num_heads), _cached(past_key, _split(K, kv_num_heads))
    value = op.CastLike(_cached(past_value, _split(V, kv_num_heads)), Q)
    if scale is not None:
        factor = scale
    elif isinstance(query.shape[3], int):
        factor = query.shape[3] ** -0.5
    else:
        factor = op.Reciprocal(op.Sqrt(op.CastLike(op.Shape(query, start=3), Q)))
    return _Forward(query, _group(query * factor, key), key, value, factor)


def _forward(Q, K, V, mask, past_key, past_value, nonpad, settings: dict[str, Any]) -> _Forward:
    """Everything up to the probabilities."""
    take = settings.get
    f = _operands(Q, K, V, past_key, past_value, take("scale"), take("q_num_heads"), take("kv_num_heads"))
    f.scores = f.capped = _ungroup(f.rows @ _flip(f.key), f.query)
    if cap := take("softcap"):
        f.tanh = op.Tanh(f.scores / cap)
        f.capped = f.tanh * cap
    windows = take("left_window_size"), take("right_window_size")
    bias, sees = _bias(f.query, f.key, mask, past_key, nonpad, take("is_causal"), *windows)
    f.biased = f.capped if bias is None else f.capped + bias
    wide = op.Cast(f.biased, to=take("softmax_precision")) if take("softmax_precision") else f.biased
    f.P = op.CastLike(op.Softmax(wide, axis=-1), Q)
    if sees is not None:
        f.P = f.P * sees
        # The scores that are shown hold −inf where no key is seen.
        if take("qk_matmul_output_mode") == 2:
            f.biased = op.Where(op.Cast(sees, to=BOOL), f.biased, -np.inf)
    return f


def _backward(dY, dpresent_key, dpresent_value, dqk, Y, f: _Forward, likes: tuple, settings: dict[str, Any]) -> tuple:
    """Cotangents of Q, K, V, attn_mask, past_key and past_value.

    dV = Pᵀ·dO, dS = P·(dO·Vᵀ − Σ dO·O), through the mask and the soft cap; dQ = dS·K·scale, dK = dSᵀ·Q·scale.
    """
    Q, K, V, mask, past_key, past_value = likes
    mode = settings["qk_matmul_output_mode"]
    ct = _split(dY, settings["q_num_heads"])
    dP = slope = dvalue = None
    if ct is not None:
        rows = _group(ct, f.key)
        dvalue = op.CastLike(_flip(_group(f.P, f.key)) @ rows, V)
        dP = _ungroup(rows @ _flip(f.value), f.query)
        slope = op.ReduceSum(ct * _split(Y, settings["q_num_heads"]), [-1], keepdims=1)
    if dqk is not None and mode == 3:
        dP = _plus(dP, dqk)
        slope = op.ReduceSum(dP * f.P, [-1], keepdims=1)
    dS = None if dP is None else f.P * (dP - slope)
    dS = _plus(dS, dqk if mode == 2 else None)
    dmask = None if mask is None or dS is None or int(mask.dtype) == BOOL else _to_mask(dS, mask, f.key)
    dS = _plus(dS, dqk if mode == 1 else None)
    if f.tanh is not None and dS is not None:
        dS = dS * (1.0 - f.tanh * f.tanh)
    dS = _plus(dS, dqk if mode == 0 else None)
    dQ = dkey = None
    if dS is not None:
        rows = _group(dS, f.key)
        dQ = _join(_ungroup(rows @ f.key, f.query) * f.factor, Q)
        dkey = _flip(rows) @ f.rows
    dK, dpast_key = _apart(_plus(dkey, dpresent_key), past_key, K, settings["kv_num_heads"])
    dV, dpast_value = _apart(_plus(dvalue, dpresent_value), past_value, V, settings["kv_num_heads"])
    return dQ, dK, dV, dmask, dpast_key, dpast_value


def _plus(a: Any, b: Any) -> Any:
    """a + b, where None is zero."""
    return b if a is None else a if b is None else a + b


def _to_mask(dS: Any, mask: Any, key: Any) -> Any:
    """The cotangent of a float mask: without what was filled up, zero where it goes on behind the keys, summed over what
    was broadcast."""
    if _other_length(mask, key):
        missing = op.Sub(op.Shape(mask, start=-1), op.Shape(key, start=2, end=3))
        dS = op.Pad(dS, op.Concat(np.zeros(7, np.int64), missing, axis=0))
    return op.CastLike(sum_to(dS, mask), mask)


def _apart(ct: Any, past: Any, like: Any, heads: int | None) -> tuple[Any, Any]:
    """The cotangent of a cache as those of what came in, in the shape of `like`, and of what was past."""
    if ct is None or past is None:
        return None if ct is None else _join(ct, like), None
    length = op.Shape(like, start=-2, end=-1) if like.rank == 4 else op.Shape(like, start=1, end=2)
    first, last = op.Split(ct, op.Concat(op.Shape(past, start=2, end=3), length, axis=0), axis=2, _outputs=2)
    return _join(last, like), first


@traced("Y", "present_key", "present_value", "qk_matmul_output", "P", "tanh")
@SAME_RANK
def attention_fwd(
    Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, *, scale=None, softcap=0.0, is_causal=0,
    q_num_heads=None, kv_num_heads=None, qk_matmul_output_mode=0, softmax_precision=None, left_window_size=-1,
    right_window_size=-1
):  # fmt: skip
    """Y = P·V with P = softmax(softcap(Q·Kᵀ·scale) + mask), 0 in rows that see no key; saves P and the cap's tanh."""
    settings = _settings(
        scale, softcap, is_causal, q_num_heads, kv_num_heads, qk_matmul_output_mode, softmax_precision,
        left_window_size, right_window_size,
    )  # fmt: skip
    f = _forward(Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, settings)
    Y = _ungroup(_group(f.P, f.key) @ f.value, f.query)
    if Q.rank == 3:
        Y = op.Transpose(Y, perm=[0, 2, 1, 3])
        width = op.Mul(op.Shape(Y, start=2, end=3), op.Shape(Y, start=3))
        Y = op.Reshape(Y, op.Concat(op.Shape(Y, end=2), width, axis=0), allowzero=1)
    shown = (f.scores, f.capped, f.biased, f.P)[qk_matmul_output_mode]
    return Y, f.key, op.CastLike(f.value, V), shown, f.P, f.tanh


def _settings(scale, softcap, causal, q_heads, kv_heads, mode, precision, left, right) -> dict[str, Any]:
    """The attributes by name; before opset 25 there are no windows."""
    return {
        "scale": scale,
        "softcap": softcap,
        "is_causal": causal,
        "q_num_heads": q_heads,
        "kv_num_heads": kv_heads,
        "qk_matmul_output_mode": mode,
        "softmax_precision": precision,
        "left_window_size": -1 if left is None else left,
        "right_window_size": -1 if right is None else right,
    }


@traced("dQ", "dK", "dV", "dattn_mask", "dpast_key", "dpast_value")
@SAME_RANK
def attention_vjp__saved(
    dY, dpresent_key, dpresent_value, dqk_matmul_output, Q, K, V, attn_mask, past_key, past_value, Y, P, tanh, *,
    scale=None, q_num_heads=None, kv_num_heads=None, qk_matmul_output_mode=0
):  # fmt: skip
    """With P saved: dV = Pᵀ·dO, dS = P·(dO·Vᵀ − Σ dO·O), dQ = dS·K·scale, dK = dSᵀ·Q·scale, dmask = Σ dS."""
    f = _operands(Q, K, V, past_key, past_value, scale, q_num_heads, kv_num_heads)
    f.P, f.tanh = P, tanh
    settings = _settings(scale, 0.0, 0, q_num_heads, kv_num_heads, qk_matmul_output_mode, None, -1, -1)
    likes = (Q, K, V, attn_mask, past_key, past_value)
    return _backward(dY, dpresent_key, dpresent_value, dqk_matmul_output, Y, f, likes, settings)


@traced("dQ", "dK", "dV", "dattn_mask", "dpast_key", "dpast_value")
@SAME_RANK
def attention_vjp(
    dY, dpresent_key, dpresent_value, dqk_matmul_output, Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, Y,
    *, scale=None, softcap=0.0, is_causal=0, q_num_heads=None, kv_num_heads=None, qk_matmul_output_mode=0,
    softmax_precision=None, left_window_size=-1, right_window_size=-1
):  # fmt: skip
    """As the saved form, with P computed again."""
    settings = _settings(
        scale, softcap, is_causal, q_num_heads, kv_num_heads, qk_matmul_output_mode, softmax_precision,
        left_window_size, right_window_size,
    )  # fmt: skip
    f = _forward(Q, K, V, attn_mask, past_key, past_value, nonpad_kv_seqlen, settings)
    likes = (Q, K, V, attn_mask, past_key, past_value)
    return _backward(dY, dpresent_key, dpresent_value, dqk_matmul_output, Y, f, likes, settings)
