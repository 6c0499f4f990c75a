"""gradgen writes the gradient of an ONNX graph as another ONNX graph, in standard operators.

Everything is imported when it is first used: `import gradgen` loads neither onnx nor onnxruntime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gradgen.errors import GradientError, GradientWarning

if TYPE_CHECKING:
    from gradgen.api import grad, parameters, value_and_grad, vjp
    from gradgen.authoring import op
    from gradgen.compiled import compile
    from gradgen.engine.registry import Registry
    from gradgen.files import save
    from gradgen.function_library import library
    from gradgen.functions import gradient_of_function, gradient_of_nodes
    from gradgen.registration import register_vjp, vjp_rule
    from gradgen.transforms.forward_mode import hvp, jvp
    from gradgen.transforms.lowering import lower_gradient_ops
    from gradgen.transforms.matrices import hessian, jacobian
    from gradgen.transforms.pair import vjp_pair
    from gradgen.verification import verify

_HOMES = {
    "vjp": "gradgen.api",
    "grad": "gradgen.api",
    "value_and_grad": "gradgen.api",
    "parameters": "gradgen.api",
    "jvp": "gradgen.transforms.forward_mode",
    "hvp": "gradgen.transforms.forward_mode",
    "jacobian": "gradgen.transforms.matrices",
    "hessian": "gradgen.transforms.matrices",
    "compile": "gradgen.compiled",
    "save": "gradgen.files",
    "library": "gradgen.function_library",
    "gradient_of_nodes": "gradgen.functions",
    "gradient_of_function": "gradgen.functions",
    "op": "gradgen.authoring",
    "register_vjp": "gradgen.registration",
    "vjp_rule": "gradgen.registration",
    "Registry": "gradgen.engine.registry",
    "verify": "gradgen.verification",
    "lower_gradient_ops": "gradgen.transforms.lowering",
    "vjp_pair": "gradgen.transforms.pair",
}

__all__ = [
    "GradientError",
    "GradientWarning",
    "Registry",
    "compile",
    "grad",
    "gradient_of_function",
    "gradient_of_nodes",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "library",
    "lower_gradient_ops",
    "op",
    "parameters",
    "register_vjp",
    "save",
    "value_and_grad",
    "verify",
    "vjp",
    "vjp_pair",
    "vjp_rule",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'gradgen' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
