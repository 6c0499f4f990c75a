# The compiled rules as functions of one model: each right by itself, at every opset, linked with nothing but onnx.
"""Tests of gradgen.library and of the command `gradgen library`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnxscript import opset21 as op

import gradgen
from gradgen.cli import cli
from gradgen.differences import jacobian_fd
from gradgen.engine.conditions import names
from gradgen.engine.registry import registered
from gradgen.evaluate import Evaluator
from gradgen.function_library import written
from gradgen.generator import compile as compiling
from gradgen.generator.generate import families
from gradgen.generator.table import Problems, read_table
from gradgen.samples import Sample, build

ROOT = Path(__file__).parent.parent
NEWEST = onnx.defs.onnx_opset_version()


def props(function: onnx.FunctionProto) -> dict[str, str]:
    return {p.key: p.value for p in function.metadata_props}


@pytest.mark.parametrize("opset", range(21, NEWEST + 1))
def test_each_function_is_complete_and_valid_at_every_opset(opset):
    model = gradgen.library(opset)
    onnx.checker.check_model(model, full_check=True)
    assert not model.graph.node and model.functions
    assert len({f.name for f in model.functions}) == len(model.functions)
    for function in model.functions:
        assert [(o.domain, o.version) for o in function.opset_import] == [("", opset)], function.name
        assert all(n.domain == "" for n in compiling.all_nodes(function.node)), function.name
        assert function.domain == "gradgen.vjp" and function.doc_string


def samples() -> list[Sample]:
    """Up to three samples of each op whose general rule is in the library, from the tables."""
    found = []
    included = {e.op: e for e in written()[1] if not e.reason}
    for module_name, path in families():
        module = __import__(module_name, fromlist=["x"])
        for item in read_table(path, module_name, compiling.rule_functions(module), Problems()):
            name = f"{item.row.domain}::{item.row.op_type}" if item.row.domain else item.row.op_type
            if name in included and item.row == registered().find(item.row.domain, item.row.op_type, 21):
                for index, spec in enumerate(item.samples[:3]):
                    found.append(Sample(item.row.domain, item.row.op_type, item.row.since, index, spec, item.settings))
    return found


SAMPLES = [s for s in samples() if s.opset == 21 and "@selected" not in s.spec]  # one node each


def test_there_are_samples_of_most_ops():
    assert len({(s.domain, s.op_type) for s in SAMPLES}) > 45


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: f"{s.op_type}-{s.index}")
def test_a_function_by_itself_is_right(sample):
    """The op's node, one function, and its call, in float64 against differences of the op."""
    built = build(sample)
    library = gradgen.library(21, f"{sample.domain or 'ai.onnx'}::{sample.op_type}")
    function = next(f for f in library.functions if not {"gradgen.when", "gradgen.pair"} & set(props(f)))
    node = built.model.graph.node[0]
    row = registered().find(sample.domain, sample.op_type, sample.version)
    inputs = {row.input_name(k): n for k, n in enumerate(node.input) if n}
    outputs = {row.output_name(k): n for k, n in enumerate(node.output) if n}
    if missing := [n for n in function.input if n not in {**inputs, **outputs} and n[1:] not in outputs]:
        pytest.skip(f"the sample's node has no {missing}")
    known = Evaluator(built.model)(built.feeds)
    rng = np.random.default_rng(1)
    cotangents = {n: rng.uniform(0.5, 1.5, known[n].shape) for n in known}
    cotangents = {n: ct.astype(known[n].dtype) for n, ct in cotangents.items()}
    model = onnx.ModelProto()
    model.CopyFrom(built.model)
    model.functions.append(function)
    model.opset_import.append(onnx.helper.make_opsetid("gradgen.vjp", 1))
    call = model.graph.node.add(op_type=function.name, domain="gradgen.vjp")
    both = {**inputs, **outputs}
    for name in function.input:
        call.input.append(both.get(name) or f"ct_{outputs[name[1:]]}")
    taken = {*function.attribute, *(a.name for a in function.attribute_proto)}
    call.attribute.extend(a for a in node.attribute if a.name in taken)
    call.output.extend(f"grad_{inputs.get(n[1:], n)}" for n in function.output)
    for name, ct in cotangents.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(ct.dtype)
        model.graph.input.append(onnx.helper.make_tensor_value_info(f"ct_{name}", kind, ct.shape))
    for name in built.wrt:
        if f"grad_{name}" in call.output:
            kind = onnx.helper.np_dtype_to_tensor_dtype(built.feeds[name].dtype)
            model.graph.output.append(onnx.helper.make_tensor_value_info(f"grad_{name}", kind, built.feeds[name].shape))
    onnx.checker.check_model(model)
    found = Evaluator(model)({**built.feeds, **{f"ct_{n}": ct for n, ct in cotangents.items()}})
    primal = Evaluator(built.primal)
    for name in built.wrt:
        if f"grad_{name}" in found:
            want, _, kinks = jacobian_fd(primal, built.feeds, name, cotangents)
            assert not kinks.any()
            scale = np.abs(want).max(initial=1e-3)
            np.testing.assert_allclose(
                found[f"grad_{name}"], want, rtol=sample.tolerance, atol=sample.tolerance * scale, err_msg=name
            )


def test_attributes_have_the_defaults_of_the_op():
    """A caller need not give what the op's node does not say."""
    function = next(f for f in gradgen.library(21, "LeakyRelu").functions if "gradgen.when" not in props(f))
    assert not function.attribute
    assert {a.name: round(a.f, 6) for a in function.attribute_proto} == {"alpha": 0.01}

    def leaky_vjp(dY, X, alpha: float):
        dX = dY * op.CastLike(alpha, X)
        return dX

    registry = gradgen.Registry()
    gradgen.vjp_rule("", "LeakyRelu", registry=registry)(leaky_vjp)
    (mine,) = gradgen.library(21, "LeakyRelu", registry=registry).functions
    assert not mine.attribute and round(mine.attribute_proto[0].f, 6) == 0.01
    for function in gradgen.library(NEWEST).functions:
        name = props(function)["gradgen.op"]
        if name and "::" not in name:
            known = {n: a.default_value for n, a in onnx.defs.get_schema(name, NEWEST).attributes.items()}
            assert not [a for a in function.attribute if known[a].name], function.name
            assert all(a == known[a.name] for a in function.attribute_proto if known[a.name].name), function.name


def test_conditions_and_pairs_are_said():
    found = {f.name: props(f) for f in gradgen.library().functions}
    rows = registered().rows()
    for row in rows:
        for form in [f for f in row.forms if f.kind == "compiled" and f.rule in found and row.since <= 21]:
            if form.when:
                assert form.when in found[form.rule]["gradgen.when"]
            assert found[form.rule].get("gradgen.forward") == form.fwd
            if "gradgen.when" in found[form.rule]:
                names(found[form.rule]["gradgen.when"])


def test_what_is_left_out_is_said_with_the_reason():
    _, entries = written()
    by_op = {e.op: e for e in entries}
    assert by_op["Mul"].functions == ("mul_vjp",) and not by_op["Mul"].reason
    assert "traced" in by_op["Transpose"].reason
    assert "graphs" in by_op["Loop"].reason
    assert by_op["Floor"].reason == "its derivative is zero"
    rows = {(r.domain, r.op_type) for r in registered().rows() if r.domain or r.since <= 21}
    assert len(entries) == len({e.op for e in entries}) >= len(rows) - 40
    assert [e for e in entries if e.reason] and [e for e in entries if not e.reason]


def test_ops_of_ones_own_are_in_it():
    registry = gradgen.Registry()

    def half(x):
        y = x * op.CastLike(0.5, x)
        return y

    half = gradgen.op("my.ops", "Half", registry=registry)(half)

    def quarter_vjp(dy, x):
        dx = half(half(dy)) + x - x
        return dx

    gradgen.op("my.ops", "Quarter", registry=registry)(quarter)
    gradgen.vjp_rule("my.ops", "Quarter", registry=registry)(quarter_vjp)
    model = gradgen.library(ops=["my.ops::Quarter"], registry=registry)
    (function,) = model.functions
    assert all(n.domain == "" for n in function.node) and len(function.node) > 4
    with pytest.raises(gradgen.GradientError, match="my.ops::Half is not in the library: .*forward body"):
        gradgen.library(ops="my.ops::Half", registry=registry)


def quarter(x):
    y = x * x / (x * 4.0)
    return y


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"opset": 20}, "opset is an int from 21 to"),
        ({"opset": 99}, "which the installed onnx knows, not 99"),
        ({"opset": "21"}, "not '21'"),
        ({"ops": ["Mull"]}, r"no row at opset 21 for 'Mull' \(near matches: .*Mul"),
        (
            {"ops": ["RELU", "biasgelu"]},
            r"'RELU' \(near matches: Relu.*'biasgelu' \(near matches: com.microsoft::BiasGelu",
        ),
        ({"ops": ["Transpose"]}, "Transpose is not in the library: its rule is traced"),
    ],
)
def test_what_cannot_be_written_is_refused(options, reason):
    with pytest.raises(gradgen.GradientError, match=reason):
        gradgen.library(**options)


def test_the_command(tmp_path):
    target = tmp_path / "vjp.onnx"
    done = CliRunner().invoke(cli, ["library", "-o", str(target), "--opset", "22"])
    assert done.exit_code == 0 and re.search(r"vjp.onnx: \d+ functions for \d+ ops", done.output)
    assert {o.version for f in onnx.load(target).functions for o in f.opset_import} == {22}
    done = CliRunner().invoke(cli, ["library", "--json", "--op", "Mul"])
    assert json.loads(done.output) == {
        "output": None, "opset": 21, "functions": 1, "left_out": [],
        "included": [{"op": "Mul", "since": 7, "functions": ["mul_vjp"]}],
    }  # fmt: skip
    said = json.loads(CliRunner().invoke(cli, ["library", "--json"]).output)
    assert {e["op"]: e["reason"] for e in said["left_out"]}["Transpose"].startswith("its rule is traced")
    listed = CliRunner().invoke(cli, ["library", "--list"])
    assert "mul_vjp" in listed.output and "its derivative is zero" in listed.output
    mixed = CliRunner().invoke(cli, ["library", "--op", "Softmax", "--op", "Transpose", "--list"])
    assert mixed.exit_code == 0 and "softmax_vjp" in mixed.output and "traced" in mixed.output
    said = json.loads(CliRunner().invoke(cli, ["library", "--op", "Softmax", "--op", "Transpose", "--json"]).output)
    assert [e["op"] for e in said["included"]] == ["Softmax"] and [e["op"] for e in said["left_out"]] == ["Transpose"]
    strict = CliRunner().invoke(cli, ["library", "--op", "Transpose", "--list", "-o", str(tmp_path / "none.onnx")])
    assert strict.exit_code == 2 and not (tmp_path / "none.onnx").exists()
    for arguments in ([], ["-o", str(tmp_path / "absent" / "x.onnx")], ["--list", "--opset", "3"]):
        done = CliRunner().invoke(cli, ["library", *arguments])
        assert done.exit_code == 2 and done.stderr.startswith("gradgen: "), arguments


def test_linking_needs_nothing_but_onnx(tmp_path):
    """The script of docs/library.md, in a process that never imports gradgen."""
    page = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
    script = re.search(r"<!-- file: link.py -->\n```python\n(.*?)```", page, re.DOTALL)
    assert script is not None and "gradgen" not in re.findall(r"^(?:import|from) (\w+)", script[1], re.MULTILINE)
    (tmp_path / "link.py").write_text(script[1] + "\nimport sys\nassert 'gradgen' not in sys.modules\n", "utf-8")
    gradgen_file = tmp_path / "vjp.onnx"
    onnx.save(gradgen.library(), gradgen_file)
    done = subprocess.run(
        [sys.executable, "link.py"], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": "", "PYTHONPATH": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    x = np.array([0.0, 1.0, 2.0])
    found = [float(v) for v in re.findall(r"-?\d+\.\d+", done.stdout)]
    step = 1e-6
    want = (np.log1p(np.exp(x + step)) - np.log1p(np.exp(x - step))) / (2 * step) * [1.0, 1.0, 2.0]
    np.testing.assert_allclose(found, want, atol=1e-4)
