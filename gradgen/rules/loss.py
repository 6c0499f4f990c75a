"""Rules of the classification losses: SoftmaxCrossEntropyLoss and NegativeLogLikelihoodLoss."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.rules.lang import op, traced
from gradgen.rules.library import mask, zeros_like
from gradgen.rules.ranks import stated

CLASSES = np.asarray([1], np.int64)
FLAT = np.asarray([-1], np.int64)
WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@traced("dscores", "dweights")
def softmaxcrossentropyloss_vjp(
    doutput, dlog_prob, labels, weights, output, log_prob, *, reduction="mean", ignore_index=None
):
    """dscores = (p − onehot)·g + dl − p·Σ dl: p = exp(log_prob), dl = dlog_prob, Σ over the classes, and g = doutput
    times the label's weight, for the mean over the sum of these weights.
    """
    p = op.Exp(log_prob)
    dscores = dweights = None
    if doutput is not None:
        index, g, share = _cotangents(doutput, labels, weights, log_prob, reduction, ignore_index)
        dscores = _add_at(p, index, -1.0, axis=1) * g
        dweights = _to_weights(index, share, weights, output, log_prob, reduction)
    elif weights is not None:
        dweights = zeros_like(weights)
    return _through(dscores, dlog_prob, p), dweights


@traced("dscores")
def softmaxcrossentropyloss_vjp__table(
    doutput, dlog_prob, scores, labels, log_prob, *, reduction="mean", ignore_index=None
):
    """dscores as above, from a known number of classes: the one-hot rows are read from a table."""
    p = op.Exp(log_prob)
    dscores = None
    if doutput is not None:
        onehot, g = _one_hot_rows(doutput, scores, labels, reduction, ignore_index)
        dscores = (p - onehot) * g
    return _through(dscores, dlog_prob, p)


@traced("dinput", "dweight")
def negativeloglikelihoodloss_vjp(dloss, input, target, weight, loss, *, reduction="mean", ignore_index=None):
    """dinput is −g at the label and 0 elsewhere: g = dloss times the label's weight, for the mean over their sum."""
    index, g, share = _cotangents(dloss, target, weight, input, reduction, ignore_index)
    dinput = op.ScatterElements(zeros_like(input), index, op.Expand(-g, op.Shape(index)), axis=1)
    return dinput, _to_weights(index, share, weight, loss, input, reduction)


@traced("dinput")
def negativeloglikelihoodloss_vjp__table(dloss, input, target, *, reduction="mean", ignore_index=None):
    """dinput as above, from a known number of classes: the one-hot rows are read from a table."""
    onehot, g = _one_hot_rows(dloss, input, target, reduction, ignore_index)
    return onehot * -g


@traced("toutput", "tlog_prob")
def softmaxcrossentropyloss_jvp(tscores, labels, weights, log_prob, *, reduction="mean", ignore_index=None):
    """tlog_prob = ts − Σ p·ts: p = exp(log_prob), ts = tscores, Σ over the classes; the loss is linear in log_prob."""
    tlog_prob = tscores - op.ReduceSum(op.Exp(log_prob) * tscores, CLASSES)
    return _likelihood(tlog_prob, labels, weights, reduction, ignore_index), tlog_prob


@traced("tloss")
def negativeloglikelihoodloss_jvp(tinput, target, weight, *, reduction="mean", ignore_index=None):
    """The loss of the tangent."""
    return _likelihood(tinput, target, weight, reduction, ignore_index)


def _likelihood(log_prob, labels, weights, reduction, ignore_index):
    """The loss that is linear in log_prob; a mean over nothing is 0, as it is for the gradient."""
    guarded = reduction == "mean" and (weights is not None or ignore_index is not None)
    attributes = {} if ignore_index is None else {"ignore_index": ignore_index}
    loss = op.NegativeLogLikelihoodLoss(
        log_prob,
        labels,
        *([] if weights is None else [weights]),
        reduction="sum" if guarded else reduction,
        **attributes,
    )
    return loss / _total(weights, _kept(labels, weights, log_prob, ignore_index)[2]) if guarded else loss


def _through(dscores, dlog_prob, p):
    """dscores with what comes through the log-probabilities."""
    if dlog_prob is None:
        return dscores
    through = dlog_prob - p * op.ReduceSum(dlog_prob, CLASSES)
    return through if dscores is None else dscores + through


def _one_hot_rows(ct, scores, labels, reduction, ignore_index):
    """(onehot, g): the one-hot rows of the labels [N], 0 where ignored, and the cotangent of each −log p."""
    onehot = op.Gather(op.CastLike(_table(scores.shape[1], ignore_index), scores), stated(labels, 1))
    kept = op.ReduceSum(onehot, CLASSES)
    return onehot, _spread(ct, labels, None, None, kept, kept, scores, reduction)[0]


def _table(classes, ignore_index):
    """The one-hot row of each label, as Gather counts them: one that is negative counts from the end.

    A negative `ignore_index` makes the rows of negative labels zeros, as for the general rules: of all from as many below
    it as there are classes; Gather refuses what is below these. A label beyond the classes is refused by the loss.
    """
    eye = np.eye(classes, dtype=np.float32)
    if ignore_index < 0:
        return np.concatenate([eye, np.zeros((classes - ignore_index, classes), np.float32)])
    return np.concatenate([eye, np.zeros((ignore_index + 1 - classes, classes), np.float32), eye])


def _cotangents(ct, labels, weights, like, reduction, ignore_index):
    """(index, g, share): the labels with a class axis, 0 where ignored; the cotangent of −log p with and without the
    label's weight, 0 where ignored.
    """
    labels = labels if like.shape is None else stated(labels, like.rank - 1)
    index, kept, weight = _kept(labels, weights, like, ignore_index)
    return index, *_spread(ct, labels, index, weights, kept, weight, like, reduction)


def _spread(ct, labels, index, weights, kept, weight, like, reduction):
    """(g, share): the cotangent of each −log p with and without the label's weight, from what `_kept` returns."""
    flat = labels.shape is not None and labels.rank == 1
    if weights is None and kept is not None and reduction == "mean" and flat and like.dtype in WIDE:
        share = op.LpNormalization(kept, axis=0, p=1) * ct  # each label's part of the mean; 0 where all is ignored
        return share, share
    if reduction == "none":
        ct = op.Unsqueeze(ct, CLASSES)
    elif reduction == "mean" and weight is None and labels.size is None and flat and like.dtype in WIDE:
        # The softmax of equal numbers is 1 ÷ the size of the batch; the numbers are those that are scattered.
        ct = ct * op.Softmax(op.Expand(op.CastLike(-1.0, like), op.Shape(index)), axis=0)
    elif reduction == "mean" and weight is None:
        # Times the reciprocal: the size of a batch is no pole, and its transpose needs no guard against one.
        ct = ct * op.Reciprocal(op.CastLike(op.Size(labels), like))
    elif reduction == "mean":
        ct = ct / _total(weights, weight)
    return ct if weight is None else ct * weight, ct if kept is None else ct * kept


def _kept(labels, weights, like, ignore_index):
    """(index, kept, weight): the labels with a class axis, 0 where ignored; 1, or 0 where ignored; the labels' weights."""
    index = op.Unsqueeze(labels, CLASSES)
    kept = weight = None
    if ignore_index is not None:
        # A negative one is out of range, and so the only label below 0.
        keep = op.GreaterOrEqual(index, 0) if ignore_index < 0 else op.Not(op.Equal(index, ignore_index))
        index = op.Max(index, 0) if ignore_index < 0 else index * mask(keep, index)
        kept = weight = mask(keep, like)
    if weights is not None:
        weight = op.Gather(weights, index)
        weight = weight if kept is None else weight * kept
    return index, kept, weight


def _total(weights, weight):
    """What the mean divides by; 1 instead of 0: where all is ignored the gradient is 0, though the mean is NaN."""
    total = op.ReduceSum(weight, keepdims=0)
    return op.Max(total, 1.0) if weights is None else total + mask(op.Equal(total, 0.0), total)


def _to_weights(index, share, weights, loss, log_prob, reduction):
    """dw[c] = −Σ share·(log p + loss) over the positions labelled c for the mean, −Σ share·log p otherwise."""
    if weights is None:
        return None
    value = op.GatherElements(log_prob, index, axis=1)
    value = value + loss if reduction == "mean" else value
    return _add_at(zeros_like(weights), op.Reshape(index, FLAT), op.Reshape(-(share * value), FLAT), axis=0)


def _add_at(data, index, update, axis):
    """data with `update` added at the indices; in float32 where it is narrower, which runtimes cannot scatter-add."""
    wide = op.Cast(data, to=ir.DataType.FLOAT) if data.dtype in NARROW else data
    updates = op.Expand(op.CastLike(update, wide), op.Shape(index))
    return op.CastLike(op.ScatterElements(wide, index, updates, axis=axis, reduction="add"), data)
