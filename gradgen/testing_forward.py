"""The check of jvp for a sample of a rule table: differences along a random direction, and the dot-product test."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from gradgen.api import vjp
from gradgen.differences import directional
from gradgen.engine.registry import Registry, registered
from gradgen.errors import GradientWarning
from gradgen.evaluate import Evaluator
from gradgen.samples import Sample, build
from gradgen.transforms.forward_mode import jvp

DOT = 1e-9  # both sides are computed in float64, from the same residuals

__all__ = ["check_jvp"]


def check_jvp(sample: Sample, rules: Registry | None = None) -> None:
    """J·v in float64 along a random direction v, weighed with a random u: <u, J·v> against central differences, and
    against <Jᵀ·u, v>, which vjp gives. The tangents have the shapes and types of the outputs.
    """
    rules = rules or registered()
    built = build(sample, rules=rules)
    primal = Evaluator(built.primal)
    base = primal(built.feeds)
    rng = np.random.default_rng(11)
    u = {n: rng.uniform(0.3, 1.5, base[n].shape) * rng.choice([-1, 1], base[n].shape) for n in built.of}
    v = {n: rng.standard_normal(built.feeds[n].shape) for n in built.wrt}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientWarning)
        forward = jvp(built.model, wrt=built.wrt, of=built.of, registry=rules)
        backward = vjp(built.model, wrt=built.wrt, of=built.of, registry=rules)
    tangents = Evaluator(forward)({**built.feeds, **_fed("tangent", v, built.feeds)})
    gradients = Evaluator(backward)({**built.feeds, **_fed("grad", u, base)})
    forth, size = 0.0, 0.0
    for name, weight in u.items():
        tangent = tangents[f"tangent_{name}"]
        label = f"{sample.op_type}: tangent of {name}"
        assert tangent.shape == base[name].shape, f"{label} has shape {tangent.shape}, not {base[name].shape}"
        assert tangent.dtype == base[name].dtype, f"{label} is {tangent.dtype}, not {base[name].dtype}"
        terms = weight * tangent
        forth, size = forth + float(terms.sum()), size + float(np.abs(terms).sum())
    back = sum(float((gradients[f"grad_{n}"] * v[n]).sum()) for n in built.wrt)
    want = directional(primal, built.feeds, v, u, base=base)
    assert not want.kink, f"{sample.op_type}: the sample sits on a kink"
    scale = max(size, abs(want.value), 1e-3)
    limit = max(sample.tolerance, 3 * want.error / scale) * scale
    assert abs(forth - want.value) <= limit, f"{sample.op_type}: <u, Jv> is {forth}, by differences {want.value}"
    assert abs(forth - back) <= DOT * scale, f"{sample.op_type}: <u, Jv> is {forth}, and <Jᵀu, v> is {back}"


def _fed(prefix: str, arrays: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    return {f"{prefix}_{n}": np.asarray(a, like[n].dtype) for n, a in arrays.items()}
