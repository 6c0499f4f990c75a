"""Rules of matrix products: MatMul, Gemm, Einsum, Det, Trilu."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from gradgen.errors import GradientError
from gradgen.rules.lang import op, traced, vjp
from gradgen.rules.library import sum_to, transpose_matrix
from gradgen.rules.ranks import chosen, counted, stated

# So many axes an ellipsis may stand for where inference has lost count of them.
ELLIPSIS = 4


@traced("dA", "dB")
def matmul_vjp(dY, A, B):
    """dA = dY·Bᵀ, dB = Aᵀ·dY, each summed over the batch axes along which it was broadcast.

    A product of matrices is one Gemm a side, and so it is where only A has batch axes: these are rows then, and the
    linker keeps what is read by the next layer alone as a matrix.
    """
    if A.shape is None or B.shape is None:
        return _of_any_rank(dY, A, B)
    if A.rank == 1 or B.rank == 1:
        return _with_vector(dY, A, B)
    if A.rank == B.rank == 2:
        return op.Gemm(dY, B, transB=1), op.Gemm(A, dY, transA=1)
    if B.rank == 2:
        return _as_rows(dY, A, B), op.Gemm(_as_matrix(A), _as_matrix(dY), transA=1)
    batch = _broadcast([A.shape[:-2], B.shape[:-2]])
    dA = sum_to(_product(dY, transpose_matrix(B), (*batch, *A.shape[-2:])), A)
    return dA, sum_to(_product(transpose_matrix(A), dY, (*batch, *B.shape[-2:])), B)


def _of_any_rank(dY: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """The cotangents of operands whose number of axes shows at run time: the batch axes become one."""
    a, b = _matrix_shape(A, left=True), _matrix_shape(B, left=False)
    count = op.Sub(op.Max(op.Shape(a), op.Shape(b)), 2)
    batch = op.Slice(op.Shape(dY), [0], count)
    one = op.ReduceProd(op.Concat([1], batch, axis=0), keepdims=1)
    rows, columns = op.Slice(a, [-2], [-1]), op.Slice(b, [-1], [np.iinfo(np.int64).max])

    def flat(x: Any, shape: Any) -> tuple[Any, Any]:
        matrix = op.Slice(shape, [-2], [np.iinfo(np.int64).max])
        x = op.Reshape(x, shape, allowzero=1)
        wide = op.Expand(x, op.Concat(batch, matrix, axis=0))
        return x, op.Transpose(op.Reshape(wide, op.Concat(one, matrix, axis=0), allowzero=1), perm=[0, 2, 1])

    left, turned_left = flat(A, a)
    right, turned_right = flat(B, b)
    ct = op.Reshape(dY, op.Concat(one, rows, columns, axis=0), allowzero=1)

    def back(product: Any, x: Any, like: Any) -> Any:
        wide = op.Reshape(product, op.Concat(batch, op.Shape(product, start=-2), axis=0), allowzero=1)
        return op.Reshape(sum_to(wide, like), op.Shape(x), allowzero=1)

    return back(op.MatMul(ct, turned_right), A, left), back(op.MatMul(turned_left, ct), B, right)


def _matrix_shape(x: Any, left: bool) -> Any:
    """The shape of x as MatMul sees it: a vector is one row on the left, one column on the right."""
    shape = op.Shape(x)
    missing = op.Expand(np.asarray([1]), op.Max(op.Sub(2, op.Shape(shape)), 0))
    return op.Concat(missing, shape, axis=0) if left else op.Concat(shape, missing, axis=0)


def _as_matrix(x: Any) -> Any:
    """x with all axes but the last as one; any of them may be empty."""
    return x if x.rank == 2 else op.Flatten(x, axis=-1)


def _as_rows(dY: Any, A: Any, B: Any) -> Any:
    """dY·Bᵀ for an A with batch axes: of matrices, where no more than one size of A shows at run time alone."""
    sizes = [d if isinstance(d, int) else -1 for d in A.shape]
    if 0 in sizes or sizes.count(-1) > 1:
        return _product(dY, transpose_matrix(B), A.shape)
    rows = op.Reshape(op.Gemm(_as_matrix(dY), B, transB=1), np.asarray(sizes, np.int64))
    rows.shape = A.shape
    return rows


def _product(left: Any, right: Any, shape: tuple) -> Any:
    product = op.MatMul(left, right)
    product.shape = shape
    return product


def _broadcast(shapes: Sequence[tuple]) -> tuple:
    """What is known of the shape to which all of these are broadcast."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + tuple(s) for s in shapes]
    return tuple(_wider(dims) for dims in zip(*padded, strict=True))


def _wider(dims: Iterable[Any]) -> Any:
    """What is known of the size to which dimensions of these sizes are broadcast."""
    several = set(dims) - {1}
    sizes = [d for d in several if isinstance(d, int)]
    return sizes[0] if sizes else several.pop() if len(several) == 1 else None if several else 1


def _with_vector(dY: Any, A: Any, B: Any) -> tuple[Any, Any]:
    """The cotangents where an operand is a vector, whose axis the product has lost."""
    if A.rank == B.rank == 1:
        return op.Mul(dY, B), op.Mul(dY, A)
    if A.rank == 1:
        dB = op.Mul(op.Unsqueeze(A, [1]), op.Unsqueeze(dY, [-2]))
        if B.rank == 2:
            # Not B·dY: onnxruntime multiplies a transposed matrix by a vector wrongly when it fuses the two.
            return op.MatMul(dY, transpose_matrix(B)), dB
        columns = op.MatMul(B, op.Unsqueeze(dY, [-1]))
        axes = [axis for axis in range(B.rank) if axis != B.rank - 2]
        return op.ReduceSum(columns, axes, keepdims=0), dB
    dA = op.Mul(op.Unsqueeze(dY, [-1]), B)
    return dA, op.MatMul(dY if A.rank == 2 else op.Reshape(dY, [-1]), _as_matrix(A))


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
    names = equation.replace(" ", "").partition("->")[0].split(",")
    letters = [len(t.replace("...", "")) for t in names]
    dotted = [k for k, t in enumerate(names) if "..." in t]
    known = [Inputs[k].rank - letters[k] for k in dotted if Inputs[k].shape is not None]
    if dotted and not known:
        first = dotted[0]

        def trace(rank: int) -> Any:
            behind = rank - letters[first]
            given = [
                counted(x, n + behind) if k in dotted else x
                for k, (x, n) in enumerate(zip(Inputs, letters, strict=True))
            ]
            return tuple(einsum_vjp(dOutput, given, equation=equation))

        return list(chosen(Inputs[first], [letters[first] + k for k in range(ELLIPSIS + 1)], trace))
    for k, (x, n) in enumerate(zip(Inputs, letters, strict=True)):
        stated(x, n + known[0] if k in dotted else n)
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
    spelt = [t.replace("...", hidden) for t in terms]
    if any(len(t) != rank for t, rank in zip(spelt, ranks, strict=True)):
        raise GradientError(
            f"the equation '{equation}' does not fit operands of rank {ranks}: each subscript names one axis, and an ellipsis "
            "stands for the same number of axes in every operand"
        )
    return spelt, output.replace("...", hidden)


def _einsum_operand(index: int, dOutput: Any, output: str, operands: list[Any], terms: list[str]) -> Any:
    """The cotangent of one operand."""
    x, term = operands[index], terms[index]
    factors = [_Factor(v, t, v.shape) for v, t in zip(operands, terms, strict=True)]
    ct = _Factor(dOutput, output, tuple(_size(c, factors) for c in output))
    factors = [ct, *factors[:index], *factors[index + 1 :]]
    target = term
    free = [c for c in string.ascii_letters if not any(c in t for t in [output, *terms])]
    for position, letter in enumerate(term):
        if letter in term[:position]:
            # The cotangent lives on the diagonal: an identity matrix ties a letter of its own to the first.
            spare = free.pop(0)
            factors.append(_Factor(_identity(x, position), letter + spare, (x.shape[position],) * 2))
            target = target[:position] + spare + target[position + 1 :]
    known = {c for f in factors for c in f.term}
    result = _contract(factors, "".join(c for c in target if c in known))
    missing = [axis for axis, c in enumerate(target) if c not in known]
    if missing:
        result = op.Unsqueeze(result, missing)
    # A letter may be broadcast: here from 1 to the operand's size, or there from the operand's 1.
    return sum_to(op.Expand(result, op.Shape(x)), x)


class _Factor(NamedTuple):
    """A factor of a contraction: its subscripts and what is known of their sizes."""

    value: Any
    term: str
    shape: tuple


def _contract(factors: list[_Factor], target: str) -> Any:
    """The product of the factors, summed to the subscripts of `target`; scalars are multiplied in."""
    scalars = [f.value for f in factors if not f.term]
    factors = [f for f in factors if f.term]
    result = None
    if len(factors) == 1 and sorted(factors[0].term) == sorted(target):
        result = op.Transpose(factors[0].value, perm=[factors[0].term.index(c) for c in target])
    elif factors:
        result = op.Einsum(*(f.value for f in factors), equation=",".join(f.term for f in factors) + "->" + target)
        result.shape = tuple(_size(c, factors) for c in target)
    for scalar in scalars:
        result = scalar if result is None else op.Mul(result, scalar)
    return result


def _size(letter: str, factors: list[_Factor]) -> Any:
    """What is known of the size of a letter; factors in which it is 1 are broadcast."""
    return _wider(f.shape[f.term.index(letter)] for f in factors if letter in f.term)


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
    size = None if X.shape is None else X.shape[-1]
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
