"""Forward bodies of ai.onnx.ml: what its differentiable ops compute, in standard ops."""

from __future__ import annotations

import math

import numpy as np

from gradgen.errors import GradientError
from gradgen.rules.lang import forward, op
from gradgen.rules.ranks import at_least

FLOAT = 1
SQRT_HALF_PI_INVERSE = np.float32(2.0 / (math.pi * 0.147))


def single(x):
    """x as float32, in which the ops of ai.onnx.ml compute."""
    return op.Cast(x, to=FLOAT)


def rows(x, columns):
    """x as float32 in two dimensions: a vector is one row."""
    x = single(x)
    if x.shape is None:
        return op.Reshape(x, [-1, columns])
    return op.Unsqueeze(x, [0]) if x.rank == 1 else x


def constant(values, shape=(-1,)):
    """A float32 constant of an attribute."""
    return np.asarray(values, np.float32).reshape(shape)


@forward("Y")
def scaler(X, *, scale=None, offset=None):
    """Y = (X − offset)·scale."""
    y = single(X)
    y = y if offset is None else y - constant(offset)
    return y if scale is None else y * constant(scale)


@forward("Y")
def normalizer(X, *, norm="MAX"):
    """Y = X / max X, X / Σ|X| or X / √ΣX² along axis 1 (0 of a vector), and X where that is 0."""
    x = single(X)
    axes = [-1 if x.shape is None else min(1, x.rank - 1)]
    if norm == "MAX":
        size = op.ReduceMax(x, axes, keepdims=1)
    elif norm == "L1":
        size = op.ReduceSum(op.Abs(x), axes, keepdims=1)
    else:
        size = op.ReduceL2(x, axes, keepdims=1)
    return x / op.Where(op.Equal(size, 0.0), constant(1.0, ()), size)


@forward("Y")
def imputer(
    X, *, imputed_value_floats=None, imputed_value_int64s=None, replaced_value_float=0.0, replaced_value_int64=0
):
    """Y = X, but the imputed values where X is the value to replace (which may be NaN)."""
    floats = X.dtype is not None and X.dtype.is_floating_point()
    imputed, old = (
        (imputed_value_floats, replaced_value_float) if floats else (imputed_value_int64s, replaced_value_int64)
    )
    missing = op.IsNaN(X) if floats and math.isnan(old) else op.Equal(X, op.CastLike(np.asarray(old), X))
    return op.Where(missing, op.CastLike(np.asarray(imputed), X), X)


@forward("Y")
def feature_vectorizer(X, *, inputdimensions=None):
    """Y = the columns of all inputs side by side, each cut or filled with zeros to its number of columns."""
    parts = []
    for part, width in zip(X, inputdimensions or [None] * len(X), strict=True):
        part = single(part)
        if width != 1:
            part = at_least(2, part)
        part = op.Flatten(part, axis=1)
        columns = part.shape[1] if part.shape else None
        if width is not None and columns != width:
            part = op.Pad(part, op.Concat([0, 0, 0], op.Sub([width], op.Shape(part, start=1)), axis=0))
        parts.append(part)
    return op.Concat(*parts, axis=1)


@forward("Z")
def array_feature_extractor(X, Y):
    """Z = the elements of the last axis of X that Y counts; a vector is one row."""
    x = at_least(2, X)
    return op.Gather(x, op.Reshape(Y, [-1]), axis=-1)


def transform(scores, post):
    """The post_transform of a matrix of scores."""
    if post == "LOGISTIC":
        return op.Sigmoid(scores)
    if post == "SOFTMAX":
        return op.Softmax(scores, axis=-1)
    if post == "SOFTMAX_ZERO":
        zero = op.LessOrEqual(op.Abs(scores), np.float32(1e-7))
        weights = op.Exp(scores - op.ReduceMax(scores, [-1], keepdims=1))
        weights = op.Where(zero, scores * weights, weights)
        return weights / op.ReduceSum(weights, [-1], keepdims=1)
    if post == "PROBIT":
        return probit(scores)
    return scores


def probit(p):
    """√2·erf⁻¹(2p − 1), by the approximation that onnxruntime uses."""
    x = p * 2.0 - 1.0
    logarithm = op.Log((1.0 - x) * (1.0 + x))
    v = logarithm * 0.5 + SQRT_HALF_PI_INVERSE
    root = op.Sqrt(op.Sqrt(v * v - logarithm * np.float32(1 / 0.147)) - v)
    return op.Sign(x) * root * np.float32(math.sqrt(2))


@forward("Y")
def linear_regressor(X, *, coefficients=None, intercepts=None, targets=1, post_transform="NONE"):
    """Y = X·coefficientsᵀ + intercepts."""
    weights = constant(coefficients, (targets, -1)).T.copy()
    y = op.MatMul(rows(X, len(weights)), weights)
    return transform(y if intercepts is None else y + constant(intercepts), post_transform)


def two_classes(score, post):
    """The scores of both classes where a linear classifier has one score."""
    if post == "PROBIT":
        raise GradientError("post_transform PROBIT of a classifier with one score has no defined result")
    if post == "LOGISTIC":
        return op.Concat(op.Sigmoid(-score), op.Sigmoid(score), axis=1)
    return op.Concat(1.0 - score, score, axis=1)


@forward("Z")
def linear_classifier(X, *, coefficients, intercepts=None, classlabels_ints=None, classlabels_strings=None,
                      post_transform="NONE"):  # fmt: skip
    """Z = post_transform(X·coefficientsᵀ + intercepts); one score stands for two classes."""
    classes = len(classlabels_ints or classlabels_strings or ())
    count = len(intercepts) if intercepts else classes
    weights = constant(coefficients, (count, -1)).T.copy()
    scores = op.MatMul(rows(X, len(weights)), weights)
    scores = scores if intercepts is None else scores + constant(intercepts)
    return two_classes(scores, post_transform) if count == 1 and classes == 2 else transform(scores, post_transform)


def kernel(x, vectors, kernel_type, parameters):
    """The kernel of every row of x and every support vector."""
    gamma, offset, degree = [np.float32(p) for p in parameters or (0.0, 0.0, 0.0)]
    if kernel_type == "RBF":
        difference = op.Unsqueeze(x, [1]) - vectors
        return op.Exp(op.ReduceSum(difference * difference, [-1], keepdims=0) * -gamma)
    products = op.MatMul(x, vectors.T.copy())
    if kernel_type == "LINEAR":
        return products
    products = products * gamma + offset
    return op.Pow(products, degree) if kernel_type == "POLY" else op.Tanh(products)


@forward("Y")
def svm_regressor(X, *, coefficients=None, support_vectors=None, n_supports=0, rho=None, kernel_type="LINEAR",
                  kernel_params=None, one_class=0):  # fmt: skip
    """Y = Σ coefficient·K(X, support vector) + ρ; without support vectors X·coefficients + ρ."""
    x = rows(X, len(support_vectors) // n_supports if n_supports else len(coefficients))
    if n_supports:
        x = kernel(x, constant(support_vectors, (n_supports, -1)), kernel_type, kernel_params)
    y = op.MatMul(x, constant(coefficients, (-1, 1))) + constant(rho[:1])
    return op.Where(op.Greater(y, 0.0), constant(1.0, ()), constant(-1.0, ())) if one_class else y


@forward("Z")
def svm_classifier(X, *, coefficients=None, support_vectors=None, vectors_per_class=None, rho=None,
                   kernel_type="LINEAR", kernel_params=None, prob_a=None, prob_b=None, classlabels_ints=None,
                   classlabels_strings=None, post_transform="NONE"):  # fmt: skip
    """Z = the decision value of every pair of classes; without support vectors, the score of every class."""
    if prob_a:
        raise GradientError("its probabilities are found by iteration (prob_a); only its scores have a derivative")
    if not vectors_per_class:
        classes = len(classlabels_ints or classlabels_strings or ())
        x = rows(X, len(coefficients) // classes)
        return transform(
            op.MatMul(x, constant(coefficients, (classes, -1)).T.copy()) + constant(rho[:1]), post_transform
        )
    total, classes = sum(vectors_per_class), len(vectors_per_class)
    x = rows(X, len(support_vectors) // total)
    values = kernel(x, constant(support_vectors, (total, -1)), kernel_type, kernel_params)
    scores = op.MatMul(values, pairs(coefficients, vectors_per_class)) + constant(rho)
    if classes > 2:
        return transform(scores, post_transform)
    return op.Concat(-scores, scores, axis=1) if post_transform == "NONE" else two_classes(scores, post_transform)


def pairs(coefficients, vectors_per_class):
    """The weight of every support vector in the decision between every two classes."""
    classes, total = len(vectors_per_class), sum(vectors_per_class)
    starts = np.cumsum([0, *vectors_per_class])
    given = constant(coefficients, (classes - 1, total))
    chosen = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    weights = np.zeros((total, len(chosen)), np.float32)
    for column, (i, j) in enumerate(chosen):
        weights[starts[i] : starts[i + 1], column] = given[j - 1, starts[i] : starts[i + 1]]
        weights[starts[j] : starts[j + 1], column] = given[i, starts[j] : starts[j + 1]]
    return weights
