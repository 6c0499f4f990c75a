"""Models as differentiable functions of other libraries: JAX, PyTorch, SciPy. Each is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradgen.interop.jax import jax_function
    from gradgen.interop.scipy import scipy_objective
    from gradgen.interop.torch import torch_function

_HOMES = {
    "jax_function": "gradgen.interop.jax",
    "scipy_objective": "gradgen.interop.scipy",
    "torch_function": "gradgen.interop.torch",
}

__all__ = ["jax_function", "scipy_objective", "torch_function"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gradgen.interop' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
