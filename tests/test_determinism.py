# Determinism: the same model gives the same bytes in every process, whatever Python's hash seed.
"""Compares the gradient models that processes with different hash seeds write."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import onnx

import gradgen

DATA = Path(__file__).parent / "data"
FILES = ["mlp_static", "cnn_dynamic", "transformer_dynamic"]
CASES = ["cond_taken_true", "gru_bi_2layer", "grid_sample_border", "einsum_attn", "index_put_acc"]
PATHS = [*(DATA / f"{name}.onnx" for name in FILES), *(DATA / "torch_cases" / name / "model.onnx" for name in CASES)]
LOOP = """<ir_version: 10, opset_import: ["" : 21]> g (float[3] x, float[3] u, bool b) => (float[3] y, float[3] z)
    <int64 n = {3}, bool c = {1}> { h = Mul(x, u)\n y, k = Loop(n, c, h, x) <body = b (int64 i, bool d, float[3] s,
    float[3] t) => (bool d2, float[3] v, float[3] w) { d2 = Identity(d)\n v = Mul(s, u)\n w = Add(t, v) }>
    z = If(b) <then_branch = p () => (float[3] e) { f = Sin(k)\n e = Mul(f, u) },
    else_branch = q () => (float[3] g) { g = Mul(k, x) }> }"""


def digests() -> dict[str, str]:
    """What the transforms write of each model, as a digest."""
    warnings.simplefilter("ignore")
    models = {f"{path.parent.name}/{path.name}": onnx.load(path) for path in PATHS}
    models["loop"] = onnx.parser.parse_model(LOOP)
    found = {}
    for name, model in models.items():
        results = {
            "vjp": gradgen.vjp(model, "*"),
            "value_and_grad": gradgen.value_and_grad(model, reduce="sum"),
            "called": gradgen.vjp(model, inline=False),
            "jvp": gradgen.jvp(model),
        }
        results["twice"] = gradgen.vjp(results["value_and_grad"], of=results["value_and_grad"].graph.output[-1].name)
        found |= {f"{name} {kind}": hashlib.sha256(m.SerializeToString()).hexdigest() for kind, m in results.items()}
    return found


def run(seed: str) -> dict[str, str]:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_bytes_do_not_depend_on_the_process():
    first, other = run("1"), run("2")
    assert len(first) == 5 * (len(PATHS) + 1)
    assert {name for name in first if first[name] != other[name]} == set()


def test_bytes_do_not_depend_on_what_was_done_before():
    assert digests() == digests()


if __name__ == "__main__":
    print(json.dumps(digests()))
