"""Guards of rules: what an op that asks whether a cotangent is zero gives where that is answered: it is not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

Contents = Sequence[np.ndarray | None]
"""Of each input the one number that it holds everywhere, where that is known."""


def answer(op_type: str, contents: Contents, zeros: Sequence[bool], dtype: ir.DataType | None) -> np.ndarray | None:
    """The one number that an op gives everywhere, or None.

    Args:
        op_type: the op, of which an input depends on a cotangent that is not zero.
        contents: what is known of its inputs.
        zeros: which of them are constants of zeros.
        dtype: of its result.
    """
    match op_type:
        case "Equal" if any(zeros):
            return np.asarray(False)
        case "Cast" if contents[0] is not None and dtype is not None:
            return contents[0].astype(dtype.numpy())
        case "Cast" if dtype == ir.DataType.BOOL:
            return np.asarray(True)
        case "And" if any(c is not None and not c for c in contents):
            return np.asarray(False)
        case "Or" if any(c is not None and c for c in contents):
            return np.asarray(True)
        case "Not" if contents[0] is not None:
            return np.asarray(not contents[0])
    return None


def passed(op_type: str, contents: Contents) -> int | None:
    """The position of the operand that an op passes on as it is because of what is known of another one, or None."""
    if op_type == "Add":
        return next((1 - k for k, c in enumerate(contents) if c is not None and not c), None)
    if op_type == "Where" and contents[0] is not None:
        return 1 if contents[0] else 2
    return None
