"""Rules of matrix products: MatMul, Gemm, Einsum, Det, Trilu."""

from __future__ import annotations

import string
from typing import Any

import numpy as np

from gradgen.rules.lang import op, traced, vjp
from gradgen.rules.library import sum_to, transpose_matrix


@traced("dA", "dB")
def matmul_vjp(dY, A, B):
    """dA = dY·Bᵀ, dB = Aᵀ·dY, each summed over the batch axes along which it was broadcast.

    A product of matrices is one Gemm a side, and so is dB where only A has batch axes.
    """
    if A.rank == 1 or B.rank == 1:
        return _with_vector(dY, A, B)
    if A.rank == B.rank == 2:
        return op.Gemm(dY, B, transB=1), op.Gemm(A, dY, transA=1)
    dA = _matrices(dY, transpose_matrix(B), A)
    if B.rank == 2:
        dB = op.Gemm(op.Flatten(A, axis=-1), op.Flatten(dY, axis=-1), transA=1)
    else:
        dB = _matrices(transpose_matrix(A), dY, B)
    return sum_to(dA, A), sum_to(dB, B)


def _matrices(left: Any, right: Any, like: Any) -> Any:
    """The product whose matrices have the size of those of `like`."""
    product = op.MatMul(left, right)
    if product.shape is not None and like.shape is not None:
        product.shape = (*product.shape[:-2], *like.shape[-2:])
    return product


def _with_vector(dY: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """The cotangents where an operand is a vector, whose axis the product has lost."""
    if A.rank == B.rank == 1:
        return op.Mul(dY, B), op.Mul(dY, A)
    if A.rank == 1:
        dB = op.Mul(op.Unsqueeze(A, [1]), op.Unsqueeze(dY, [-2]))
        if B.rank == 2:
            return op.MatMul(B, dY), dB
        columns = op.MatMul(B, op.Unsqueeze(dY, [-1]))
        axes = [axis for axis in range(B.rank) if axis != B.rank - 2]
        return op.ReduceSum(columns, axes, keepdims=0), dB
    dA = op.Mul(op.Unsqueeze(dY, [-1]), B)
    return dA, op.MatMul(op.Reshape(dY, [-1]), op.Flatten(A, axis=-1))


@traced("dA", "dB", "dC")
def gemm_vjp(dY, A, B, C, *, alpha=1.0, beta=1.0, transA=0, transB=0):
    """dA = α·dY·B′ᵀ, dB = α·A′ᵀ·dY, transposed where A and B are; dC = β·dY summed to C's shape."""
    if transA:
        dA = op.Gemm(B, dY, alpha=alpha, transA=transB, transB=1)
    else:
        dA = op.Gemm(dY, B, alpha=alpha, transB=1 - transB)
    if transB:
        dB = op.Gemm(dY, A, alpha=alpha, transA=1, transB=transA)
    else:
        dB = op.Gemm(A, dY, alpha=alpha, transA=1 - transA)
    dC = None if C is None else sum_to(dY, C) * beta
    return dA, dB, dC


@traced("dInputs")
def einsum_vjp(dOutput, Inputs, *, equation=""):
    """dInput = Einsum of dOutput and the other operands to the input's subscripts.

    A subscript that no other operand has is broadcast back; a repeated one spreads along its diagonal.
    """
    terms, output = _subscripts(equation, [x.rank for x in Inputs])
    return [_einsum_operand(k, dOutput, output, Inputs, terms) for k in range(len(Inputs))]


def _subscripts(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The subscripts of the operands and of the output, with letters for the axes of the ellipsis."""
    left, arrow, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    letters = left.replace("...", "")
    if not arrow:
        once = sorted(c for c in set(letters) - {","} if letters.count(c) == 1)
        output = "".join(["..." if "..." in left else "", *once])
    # The ellipsis stands for the same number of axes wherever it is.
    count = max(rank - len(t.replace("...", "")) for t, rank in zip(terms, ranks, strict=True))
    hidden = "".join([c for c in string.ascii_letters if c not in equation][:count])
    return [t.replace("...", hidden) for t in terms], output.replace("...", hidden)


def _einsum_operand(index: int, dOutput: Any, output: str, operands: list[Any], terms: list[str]) -> Any:
    """The cotangent of one operand."""
    x, term = operands[index], terms[index]
    pairs = [(dOutput, output)] + [(v, t) for k, (v, t) in enumerate(zip(operands, terms, strict=True)) if k != index]
    target = term
    free = [c for c in string.ascii_letters if not any(c in t for t in [output, *terms])]
    for position, letter in enumerate(term):
        if letter in term[:position]:
            # The cotangent lives on the diagonal: an identity matrix ties a letter of its own to the first.
            spare = free.pop(0)
            pairs.append((_identity(x, position), letter + spare))
            target = target[:position] + spare + target[position + 1 :]
    known = {c for _, t in pairs for c in t}
    found = "".join(c for c in target if c in known)
    result = _contract(pairs, found)
    missing = [axis for axis, c in enumerate(target) if c not in known]
    if missing:
        result = op.Unsqueeze(result, missing)
    # A letter may be broadcast, here from 1 to the operand's size or there from the operand's 1.
    return sum_to(op.Expand(result, op.Shape(x)), x)


def _contract(pairs: list[tuple[Any, str]], target: str) -> Any:
    """The product of the operands, summed to the subscripts of `target`; scalars are multiplied in."""
    scalars = [v for v, t in pairs if not t]
    pairs = [(v, t) for v, t in pairs if t]
    result = None
    if len(pairs) == 1 and sorted(pairs[0][1]) == sorted(target):
        value, term = pairs[0]
        result = op.Transpose(value, perm=[term.index(c) for c in target])
    elif pairs:
        result = op.Einsum(*(v for v, _ in pairs), equation=",".join(t for _, t in pairs) + "->" + target)
        result.shape = tuple(_dimension(c, pairs) for c in target)
    for scalar in scalars:
        result = scalar if result is None else op.Mul(result, scalar)
    return result


def _dimension(letter: str, pairs: list[tuple[Any, str]]) -> Any:
    """What is known of the size of a letter: operands of size 1 are broadcast."""
    sizes = {v.shape[t.index(letter)] for v, t in pairs if letter in t} - {1}
    return sizes.pop() if len(sizes) == 1 else (None if sizes else 1)


def _identity(x: Any, axis: int) -> Any:
    """The identity matrix of the size of one of x's axes."""
    size = x.shape[axis]
    if isinstance(size, int):
        return op.CastLike(np.eye(size, dtype=bool), x)
    steps = op.Range(0, op.Squeeze(op.Shape(x, start=axis, end=axis + 1)), 1)
    return op.CastLike(op.Equal(op.Unsqueeze(steps, [1]), steps), x)


@traced("dX")
def det_vjp(dY, X):
    """dX[i, j] = dY·cofactor[i, j], the signed determinants of the minors, which holds where X is singular too."""
    size = X.shape[-1]
    n = np.asarray(size, np.int64) if isinstance(size, int) else op.Squeeze(op.Shape(X, start=-1))
    rows = op.Range(0, n, 1)
    others = op.Range(0, op.Sub(n, 1), 1)
    by_row = op.Unsqueeze(rows, [1])
    kept = op.Add(others, op.Cast(op.GreaterOrEqual(others, by_row), to=others.dtype))
    # minors[i, j] holds the positions, in the flattened matrix, of what is left without row i and column j.
    minors = op.Add(op.Unsqueeze(op.Mul(kept, n), [1, 3]), op.Unsqueeze(kept, [0, 2]))
    flat = op.Reshape(X, op.Concat(op.Shape(X, end=-2), op.Reshape(op.Mul(n, n), [1]), axis=0), allowzero=1)
    cofactors = op.Det(op.Gather(flat, minors, axis=-1))
    signs = op.Sub(1, op.Mul(2, op.Mod(op.Add(by_row, rows), 2)))
    return op.Mul(op.Mul(cofactors, op.CastLike(signs, X)), op.Unsqueeze(dY, [-2, -1]))


@vjp
def trilu_vjp(doutput, k, upper: int = 1):
    """dx = the same triangle of dy."""
    dinput = op.Trilu(doutput, k, upper=upper)
    return dinput
