"""Arguments that a public call cannot use are refused in words, whatever they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import gradgen
from gradgen.interop import scipy_objective

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
model (float[N] x, float b) => (float s) { y = Mul(x, b)  s = ReduceSum<keepdims = 0>(y) }
"""
FEEDS = {"x": np.ones(3, np.float32), "b": np.float32(2)}


def model() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


REFUSED = {
    "feeds in a list": (lambda: gradgen.verify(model(), feeds=[1]), "feeds is a mapping from input names to arrays, or "
                        "the path of an .npz, not a list"),
    "feeds by number": (lambda: gradgen.verify(model(), feeds={0: 1.0}), "feeds is a mapping .*, and 0 is no name"),
    "feeds with holes": (lambda: gradgen.verify(model(), feeds={"x": [1.0, [2.0]]}), "feeds: the content of 'x' is no"),
    "feeds of nothing": (lambda: gradgen.verify(model(), feeds={"x": None}), "'x' is no array, but a NoneType"),
    "feeds in no file": (lambda: gradgen.verify(model(), feeds="no.npz"), "from 'no.npz': there is no such file"),
    "threads in words": (lambda: gradgen.compile(model(), threads="x"), "threads is a whole number from 1 on, .* 'x'$"),
    "half a thread": (lambda: gradgen.compile(model(), threads=1.5), "threads is a whole number .* not 1.5$"),
    "fewer threads": (lambda: gradgen.compile(model(), threads=-3), "threads is a whole number .* not -3$"),
    "an objective's": (lambda: scipy_objective(model(), fixed=FEEDS, threads=-3), "threads is a whole number"),
    "spin": (lambda: gradgen.compile(model(), spin="no"), "spin is True or False, not 'no'$"),
    "cache": (lambda: gradgen.compile(model(), cache=5), "cache is True, False or a folder, not 5$"),
    "feed": (lambda: gradgen.compile(model(), feed=[3]), "feed: a name or a list of names is asked for, not 3"),
    "no such model": (lambda: gradgen.compile("nope.onnx"), "^there is no file 'nope.onnx'$"),
    "no model": (lambda: gradgen.compile(7), "a model is a path, .* not int$"),
    "portable": (lambda: gradgen.vjp(model(), portable="yes"), "portable is True or False, not 'yes'$"),
    "inline": (lambda: gradgen.vjp(model(), inline=None), "inline is True or False, not None$"),
    "through": (lambda: gradgen.hessian(model(), straight_through="x"), "straight_through is True or False, not 'x'$"),
    "samples": (lambda: gradgen.jacobian(model(), per_sample="x"), "per_sample is True or False, not 'x'$"),
    "closed": (lambda: gradgen.vjp_pair(model(), closed="x"), "closed is True or False, not 'x'$"),
    "lowering": (lambda: gradgen.lower_gradient_ops(model(), portable=3), "portable is True or False, not 3$"),
    "verify": (lambda: gradgen.verify(model(), portable="x"), "portable is True or False, not 'x'$"),
    "saved nowhere": (lambda: gradgen.save(model(), None), "the path to write to is a str or a Path, not NoneType$"),
    "swapped": (lambda: gradgen.save("y.onnx", model()), "not str; save takes the model first, then the path$"),
    "ops": (lambda: gradgen.library(ops=[3]), "ops: a name or a list of names is asked for, not 3"),
    "no op": (lambda: gradgen.library(ops=[]), "ops is empty: name at least one op"),
    "fixed": (lambda: scipy_objective(model(), fixed=[1]), "fixed is a mapping from input names to arrays, not a list$"),
    "start": (lambda: scipy_objective(model(), fixed=FEEDS, start=3), "start is a mapping from the variables' names"),
    "a text": (lambda: gradgen.vjp(TEXT), "^'.{41}' is the text of a model and no path: onnx.parser.parse_model"),
    "a long name": (lambda: gradgen.vjp("x" * 9000), r"^there is no file 'x{40}…' \(a name of 9000 characters\)$"),
}  # fmt: skip


@pytest.mark.parametrize("call, words", REFUSED.values(), ids=list(REFUSED))
def test_what_no_call_can_use_is_refused_in_words(call, words: str) -> None:
    with pytest.raises(gradgen.GradientError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value) and "Error" not in str(caught.value)


def test_what_calls_can_use_is_taken(tmp_path: Path) -> None:
    """Switches and numbers of numpy, the path of an .npz as a str, and a folder for the cache."""
    np.savez(tmp_path / "feeds.npz", **FEEDS)
    for feeds in (FEEDS, {"x": [1.0, 2.0]}, str(tmp_path / "feeds.npz"), tmp_path / "feeds.npz"):
        assert [r.verdict for r in gradgen.verify(model(), feeds=feeds)] == ["ok", "ok"]
    step = gradgen.compile(model(), threads=np.int64(1), spin=np.bool_(True), cache=str(tmp_path / "cache"))
    assert step(**FEEDS)["s"] == 6
    assert gradgen.compile(model(), threads=0, cache=False)(**FEEDS)["s"] == 6
