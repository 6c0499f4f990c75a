# The generator: what it writes, that two runs agree, and that a wrong table fails with file, row and reason.
"""Tests of the generator and of the table's checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import onnx.checker
import onnx.parser
import pytest

from gradgen.errors import GradientError
from gradgen.generator import generate
from gradgen.generator.compile import Compiler, text

ROOT = Path(__file__).parent.parent

RULES = '''
"""Rules for the tests."""
from gradgen.rules.lang import op, traced, vjp


@vjp
def tanh_vjp(doutput, output):
    """dx = dy·(1 − y²)."""
    dinput = doutput - doutput * output * output
    return dinput


@vjp
def leaky_vjp(dY, X, alpha: float = 0.01):
    """dx = dy·(x > 0 ? 1 : alpha)."""
    positive = op.CastLike(op.Greater(X, op.CastLike(op.Constant(value_float=0.0), X)), X)
    dX = dY * (positive + op.Relu(op.Neg(op.Sign(X))) * op.CastLike(op.Constant(value_float=0.01), X))
    return dX


@vjp
def wrong_names_vjp(dY, Z, beta: float = 1.0):
    dQ = dY * Z
    return dQ


@traced("dinput")
def traced_vjp(doutput, input):
    return doutput * input


@traced("toutput")
def tanh_jvp(tinput, output):
    return tinput - tinput * output * output


@traced("toutput")
def square_jvp(tinput, output):
    return tinput * tinput


@vjp
def swish_vjp(dY, X):
    dX = dY * X
    return dX
'''


def collect(tmp_path: Path, table: str, rules: str = RULES, closed: bool = False):
    """Read one table against one module of rules."""
    name = f"rules_{tmp_path.name}".replace("-", "_")
    module, rows = tmp_path / f"{name}.py", tmp_path / "mine.toml"
    module.write_text(rules)
    rows.write_text(table)
    generate.load_module(module)
    return generate.collect([(name, rows)], with_library=False, closed=closed)


def formed(condition: str) -> str:
    """A row with one special form under a condition."""
    forms = f'forms = [{{ vjp = "tanh_vjp", when = "{condition}" }}]'
    return f'[Tanh]\n{forms}\nvjp = "tanh_vjp"\nsamples = [{{ input = [3] }}]'


def pushed(rule: str, condition: str = "rank(input) == 1") -> str:
    """A row with a rule for tangents."""
    row = f'[Tanh]\nvjp = "tanh_vjp"\ntangents = [{{ jvp = "{rule}", when = "{condition}" }}]\n'
    return f"{row}samples = [{{ input = [3] }}]"


def test_a_right_table_passes(tmp_path):
    (family,) = collect(tmp_path, pushed("tanh_jvp"))
    assert family.rows[0].row.tangents[0].reads == ("tinput", "output")
    assert family.rows[0].row.forms[0].reads == ("doutput", "output")
    assert family.rows[0].dispositions == {"input": "rule"}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('[Tanhh]\nvjp = "tanh_vjp"', r"mine.toml, \[Tanhh\]: there is no op 'Tanhh'"),
        ('[Tanh]\nvjp = "tan_vjp"', r"\[Tanh\]: rule 'tan_vjp' is not in"),
        ('[Tanh]\nvjp = "tanh_vjp"\nzero = ["inputs"]', "there is no input 'inputs'"),
        ('[Tanh]\nvjp = "tanh_vjp"\nzero = ["input"]\nsamples = [{ input = [3] }]', "'input' is both rule and zero"),
        ('[Tanh]\nvjp = "tanh_vjp"', "no samples"),
        ('[Tanh]\nvjp = "tanh_vjp"\nsamples = [{ inputs = [3] }]', r"sample 0 names \['inputs'\]"),
        ('[Tanh]\nvjp = "tanh_vjp"\nignores = ["axis"]\nsamples = [{ input = [3] }]', "there is no attribute 'axis'"),
        ("[Mul]\nzero = ['A']", "input 'B' admits floats"),
        ('[Softmax]\nvjp = "traced_vjp"\nsamples = [{ input = [3] }]', "attribute 'axis' is mentioned by no rule"),
        ('[Relu]\nvjp = "wrong_names_vjp"\nsamples = [{ X = [3] }]', r"takes \['Z', 'beta'\]"),
        ('[Relu]\nvjp = "wrong_names_vjp"\nsamples = [{ X = [3] }]', r"returns \['dQ'\]"),
        ('[Tanh]\nvjp = "tanh_vjp"\nsample = [{ input = [3] }]', r"unknown keys \['sample'\]"),
        (formed("rank(input) == 2").replace('\nvjp = "tanh_vjp"', ""), "last form must hold without"),
        (formed("rank(x) == 2"), r"names \['x'\]"),
        (formed("open(input)"), "can be called"),
        (formed("given(x)"), r"names \['x'\]"),
        ("[Elu]\nforms = [{ vjp = 'tanh_vjp', when = 'rank(alpha) == 2' }]\nvjp = 'tanh_vjp'", r"names \['alpha'\]"),
        ('[Tanh]\nvjp = "tanh_vjp"\nsamples = [{ input = [3] }]\n["Tanh@1"]\nzero = ["input"]', "has a row already"),
        (pushed("tanh_vjp"), r"the rule for tangents 'tanh_vjp' is no traced rule"),
        (pushed("traced_vjp"), r"'traced_vjp' takes \['doutput'\], which are no tangent"),
        (pushed("traced_vjp"), r"'traced_vjp' returns \['dinput'\]; results are named t<output>"),
        (pushed("square_jvp"), r"\[Tanh\]: 'square_jvp' is not linear in its tangents: toutput"),
        (pushed("tanh_jvp", "rank(x) == 2"), r"names \['x'\], which are no formal"),
        ("[Tanh\n", "not TOML"),
        ('[Swish]\nvjp = "swish_vjp"\nignores = ["alpha"]\nsamples = [{ X = [3] }]', r'write \["Swish@24"\], or "@opset" = 24'),
    ],
)  # fmt: skip
def test_a_wrong_table_fails_with_file_row_and_reason(tmp_path, table, message):
    with pytest.raises(GradientError, match=message):
        collect(tmp_path, table)


def test_an_op_that_came_after_opset_21_says_its_first_version(tmp_path):
    row = 'vjp = "swish_vjp"\nignores = ["alpha"]\nsamples = [{ X = [3] OPSET}]'
    (family,) = collect(tmp_path, '["Swish@24"]\n' + row.replace(" OPSET", ""))
    assert family.rows[0].row.since == 24
    (family,) = collect(tmp_path, "[Swish]\n" + row.replace(" OPSET", ', "@opset" = 24'))
    assert family.rows[0].row.since == 1


def test_all_problems_are_said_at_once(tmp_path):
    with pytest.raises(GradientError) as error:
        collect(tmp_path, '[Tanhh]\nvjp = "tanh_vjp"\n[Mul]\nzero = ["A"]')
    assert "Tanhh" in str(error.value) and "'B'" in str(error.value)


def test_a_body_that_uses_an_op_without_a_row_fails(tmp_path):
    table = '[LeakyRelu]\nvjp = "leaky_vjp"\nsamples = [{ X = [3] }]'
    with pytest.raises(GradientError, match="leaky_vjp.*uses ai.onnx::Greater, which has no row"):
        collect(tmp_path, table, closed=True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("dinput = doutput\n    return dinput", "return"),
        ("return doutput * output", "return names, not expressions"),
        ("dinput = doutput * output", "returns nothing"),
        ("dinput = op.NoSuchOp(doutput)\n    return dinput", "NoSuchOp"),
        ("dinput = doutput\n    return dinput", "dX = op.Identity"),
    ],
)
def test_a_wrong_body_fails_by_name(tmp_path, body, message):
    rules = f"from gradgen.rules.lang import op, vjp\n\n\n@vjp\ndef tanh_vjp(doutput, output):\n    {body}\n"
    with pytest.raises(GradientError, match=message) as error:
        collect(tmp_path, '[Tanh]\nvjp = "tanh_vjp"\nsamples = [{ input = [3] }]', rules)
    assert "tanh_vjp" in str(error.value)
    assert len(str(error.value).splitlines()) == 2  # a heading, and the one problem


def test_an_attribute_without_an_annotation_is_told_so(tmp_path):
    rules = "from gradgen.rules.lang import op, vjp\n\n\n@vjp\ndef elu_vjp(dY, X, alpha=1.0):\n"
    rules += "    dX = op.Mul(dY, op.Elu(X, alpha=alpha))\n    return dX\n"
    with pytest.raises(GradientError, match=r"elu_vjp: 'alpha' has a default.*annotate it \(float"):
        collect(tmp_path, '[Elu]\nvjp = "elu_vjp"\nsamples = [{ X = [3] }]', rules)


def test_a_rule_that_computes_an_attribute_is_told_so_in_a_line(tmp_path):
    rules = RULES.replace("dQ = dY * Z", "dQ = op.LeakyRelu(dY * Z, alpha=1 - beta)")
    with pytest.raises(GradientError, match="attribute arithmetic needs a traced rule, in line 23: dQ = op.Leaky") as e:
        collect(tmp_path, '[Tanh]\nvjp = "tanh_vjp"\nsamples = [{ input = [3] }]', rules)
    assert rules.splitlines()[22].strip().startswith("dQ") and "globals" not in str(e.value)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("body", ["doutput + op.Sigmoid(output)", "doutput * doutput", "op.Relu(doutput)"])
def test_a_rule_that_is_not_linear_in_its_cotangent_must_say_so(tmp_path, body, declared):
    decorator = "@vjp(linear=False)" if declared else "@vjp"
    rules = f"from gradgen.rules.lang import op, vjp\n\n\n{decorator}\ndef tanh_vjp(doutput, output):\n"
    rules += f"    dinput = {body}\n    return dinput\n"
    table = '[Tanh]\nvjp = "tanh_vjp"\nsamples = [{ input = [3] }]'
    if declared:
        assert not collect(tmp_path, table, rules)[0].rows[0].row.forms[0].linear
        return
    with pytest.raises(GradientError, match=r"\[Tanh\]: 'tanh_vjp' is not linear in its cotangents: dinput"):
        collect(tmp_path, table, rules)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\ndef f(:\n", r"mine.py, line 2: invalid syntax"),
        ("a = 1\n\nb = undefined\n", r"mine.py, line 3: NameError: name 'undefined'"),
        ("import no_such_module\n", r"mine.py, line 1: ModuleNotFoundError"),
    ],
)
def test_a_module_that_does_not_import_is_told_by_line(tmp_path, text, message):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(GradientError, match=message):
        generate.load_module(path)


def test_the_text_form_keeps_defaults_references_and_doc_strings(tmp_path):
    (family,) = collect(tmp_path, '[Tanh]\nvjp = "tanh_vjp"\nsamples = [{ input = [3] }]')
    for function in family.functions:
        again = onnx.parser.parse_function(text(function))
        assert list(again.attribute_proto) == list(function.attribute_proto)
        assert again.doc_string == " ".join(function.doc_string.split())
        assert [n.op_type for n in again.node] == [n.op_type for n in function.node]


def test_the_shipped_library_passes_the_checker_and_is_opset_21():
    from gradgen.engine.registry import builtin, parse_functions

    seen: set[str] = set()
    for path in sorted((ROOT / "generated").glob("*.onnxtxt")):
        for function in parse_functions(path.read_text()):
            context = onnx.checker.C.CheckerContext()
            context.ir_version, context.opset_imports = 10, {"": 21, "gradgen.vjp": 1}
            onnx.checker.check_function(function, context)
            assert {o.domain: o.version for o in function.opset_import}[""] == 21
            assert function.name not in seen
            seen.add(function.name)
    assert {f.rule for r in builtin().rows() for f in r.forms if f.kind == "compiled"} <= seen


def test_compiling_is_deterministic_and_leaves_the_module_as_it_was():
    from gradgen.rules import library

    before = library.op
    one, two = (text(Compiler().proto(library.sum_to)) for _ in range(2))
    assert one == two
    assert library.op is before


def test_the_generated_files_are_up_to_date():
    done = subprocess.run(
        [sys.executable, "tools/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_somebody_elses_library_is_generated(tmp_path):
    (tmp_path / "mine_rules.py").write_text(RULES.replace("wrong_names", "unused"))
    (tmp_path / "mine.toml").write_text('[Tanh]\nvjp = "tanh_vjp"\nsamples = [{ input = [3] }]')
    paths = ["--rules", tmp_path / "mine_rules.py", "--table", tmp_path / "mine.toml", "--out", tmp_path / "lib"]
    command = [sys.executable, "tools/generate.py", *map(str, paths)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"registry.py", "mine.onnxtxt", "COVERAGE.md"} <= {p.name for p in (tmp_path / "lib").iterdir()}


def test_nothing_but_a_generated_library_is_written_over(tmp_path):
    (family,) = collect(tmp_path, '[Tanh]\nvjp = "tanh_vjp"\nsamples = [{ input = [3] }]')
    files, out = generate.render([family]), tmp_path / "out"
    (out / "tests").mkdir(parents=True)
    (out / "tests" / "test_mine.py").write_text("kept")
    with pytest.raises(GradientError, match="is not empty and holds no generated library"):
        generate.write(files, out)
    (out / "registry.py").write_text("mine = {}\n")
    with pytest.raises(GradientError, match="is not empty and holds no generated library"):
        generate.write(files, out)
    assert (out / "tests" / "test_mine.py").read_text() == "kept"
    for _ in range(2):
        generate.write(files, tmp_path / "new")


def test_outside_a_clone_nothing_is_written_unasked(tmp_path, monkeypatch):
    from click.testing import CliRunner

    from gradgen.generator import main

    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.setattr(main, "ROOT", tmp_path)
    (tmp_path / "generated").mkdir()
    for project in (None, '[project]\nname = "another"\n'):
        if project:
            (tmp_path / "pyproject.toml").write_text(project)
        result = CliRunner().invoke(main.command, [])
        assert result.exit_code == 2 and "pass --rules, --table and --out" in result.output
    assert not list((tmp_path / "generated").iterdir())


def test_an_edited_file_is_noticed(tmp_path):
    (family,) = collect(tmp_path, '[Tanh]\nvjp = "tanh_vjp"\nsamples = [{ input = [3] }]')
    files = generate.render([family])
    generate.write(files, tmp_path / "out")
    assert generate.differences(files, tmp_path / "out") == []
    path = tmp_path / "out" / "registry.py"
    path.write_text(path.read_text() + "# edited\n")
    (tmp_path / "out" / "old.onnxtxt").write_text("stale")
    assert generate.differences(files, tmp_path / "out") == ["old.onnxtxt", "registry.py"]
