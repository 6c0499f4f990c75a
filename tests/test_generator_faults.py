# Rules that do not import or cannot be traced: one line for each when the library is written, and exit code 2.
"""Tests of what the generator says of rules that raise, and of operators that do not exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from gradgen.errors import GradientError
from gradgen.generator import generate, main

ROOT = Path(__file__).parent.parent
BROKEN = {
    "undefined": ("a = 1\nb = no_such_name\n", "line 2: NameError: name 'no_such_name' is not defined"),
    "unreadable": ("\n\ndef f(:\n", "line 3: invalid syntax"),
    "absent": ("import no_such_module\n", "line 1: ModuleNotFoundError: No module named 'no_such_module'"),
    "raising": ("def f():\n    raise ValueError('a\\nb')\n\n\nf()\n", "line 2: ValueError: a b"),
}


def test_all_modules_that_do_not_import_are_said_at_once(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    sources = []
    for name, (text, _) in BROKEN.items():
        (tmp_path / f"faulty_{name}.py").write_text(text)
        (tmp_path / f"faulty_{name}.toml").touch()
        sources.append((f"faulty_{name}", tmp_path / f"faulty_{name}.toml"))
    monkeypatch.setattr(generate, "families", lambda: sources)
    result = CliRunner().invoke(main.command, ["--out", str(tmp_path / "out")])
    assert result.exit_code == 2 and result.stdout == "", result.output
    heading, *lines = result.stderr.splitlines()
    assert heading == "gradgen: the rule tables are wrong:"
    assert lines == [
        f"  faulty_{name}.toml: its module does not import: faulty_{name}.py, {said}"
        for name, (_, said) in BROKEN.items()
    ]


RULES = '''from gradgen.rules.lang import op, traced


def helper(x):
    return x * no_such_name


@traced("dX")
def abs_vjp(dY, X):
    return dY * helper(X)


@traced("dinput")
def sinh_vjp(doutput, input):
    raise ValueError("it has\\nno form")


@traced("dinput")
def tanh_vjp(doutput, input):
    """It runs where the rank is 2, as in one of the samples."""
    rows, columns = input.shape
    return doutput * (1.0 - op.Tanh(input) * op.Tanh(input))
'''
TABLE = """
[Abs]
vjp = "abs_vjp"
samples = [{ X = [3] }, { X = [2, 3] }]
[Sinh]
vjp = "sinh_vjp"
samples = [{ input = [3] }]
[Tanh]
vjp = "tanh_vjp"
samples = [{ input = [3] }, { input = [2, 3] }]
"""


def test_traced_rules_that_raise_are_told_by_line_when_the_library_is_written(tmp_path):
    rules, table = tmp_path / "raising.py", tmp_path / "raising.toml"
    rules.write_text(RULES)
    table.write_text(TABLE)
    command = [sys.executable, "-m", "gradgen", "generate", "--rules", rules, "--table", table, "--out"]
    done = subprocess.run([*command, tmp_path / "out"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.splitlines() == [
        "gradgen: the rule tables are wrong:",
        "  raising.toml, [Abs]: 'abs_vjp' cannot be traced: raising.py, line 5: NameError: name 'no_such_name' is not "
        "defined",
        "  raising.toml, [Sinh]: 'sinh_vjp' cannot be traced: raising.py, line 15: ValueError: it has no form",
    ]
    assert not (tmp_path / "out").exists()


REFUSED = """from gradgen.errors import GradientError
from gradgen.rules.lang import forward, op, traced


@traced("dX")
def abs_vjp(dY, X):
    BODY


@traced("dX")
def relu_vjp(dY, Y):
    if len(Y.shape) < 2:
        raise GradientError("not of vectors")
    return dY * op.Sign(Y)


@traced("dinput")
def sinh_vjp__never(doutput, input):
    raise GradientError("no sample comes here")


@traced("dinput")
def sinh_vjp(doutput, input):
    return doutput * op.Cosh(input)


@forward("y")
def same(x):
    BODY


@traced("toutput")
def cosh_jvp(tinput, input):
    BODY


@traced("dinput")
def cosh_vjp(doutput, input):
    return doutput * op.Sinh(input)
"""
ROWS = {
    "vjp": '[Abs]\nvjp = "abs_vjp"\nsamples = [{ X = [3] }, { X = [2] }]\n',
    "forward": '["my.ops::Same"]\nforward = "same"\nsamples = [{ x = [3] }]\n',
    "tangents": '[Cosh]\nvjp = "cosh_vjp"\ntangents = [{ jvp = "cosh_jvp" }]\nsamples = [{ input = [3] }]\n',
}
PASSING = """
[Relu]
vjp = "relu_vjp"
samples = [{ X = [3] }, { X = [2, 3] }]
[Sinh]
forms = [{ vjp = "sinh_vjp__never", when = "rank(input) == 4" }, { vjp = "sinh_vjp" }]
samples = [{ input = [3] }]
"""


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("vjp", 'raise GradientError("never\\nat all")', "line 7: GradientError: never at all"),
        ("vjp", 'raise GradientError("never") from KeyError("k")', "line 7: GradientError: never"),
        ("vjp", "return op.ReduceSum(dY, keepdims=0)", "'abs_vjp' gives float[] for 'X', which is float[3]"),
        ("vjp", "return op.NoSuchOp(dY)", "line 7: GradientError: a rule emits 'NoSuchOp'"),
        ("forward", 'raise GradientError("never")', "line 29: GradientError: never"),
        ("tangents", 'raise GradientError("never")', "line 34: GradientError: never"),
    ],
)
def test_traced_rules_that_refuse_every_sample_are_told_as_those_that_raise(tmp_path, kind, body, said):
    """Beside one that takes one sample of two, and one whose form none reaches, which are not."""
    stem = tmp_path.name  # a name of its own: what a module held once is remembered
    rules, table = tmp_path / f"{stem}.py", tmp_path / f"{stem}.toml"
    rules.write_text(REFUSED.replace("BODY", body))
    table.write_text(ROWS[kind] + PASSING)
    name = generate.load_module(rules).__name__
    with pytest.raises(GradientError) as error:
        generate.collect([(name, table)], with_library=False, closed=False)
    heading, *lines = str(error.value).splitlines()
    assert len(lines) == 1 and "cannot be traced: " in lines[0] and said in lines[0], str(error.value)


@pytest.mark.parametrize(
    ("row", "near"),
    [("Relluu", "Relu"), ("softmax", "Softmax"), ('"ai.onnx.ml::Scalar"', "Scaler"), ("Nothinglikeit", None)],
)
def test_a_mistyped_operator_of_a_table_has_near_matches(tmp_path, row, near):
    rules, table = tmp_path / "near.py", tmp_path / "near.toml"
    rules.write_text(RULES.replace("raise ValueError", "return 2.0 * doutput  #"))
    table.write_text(f'[{row}]\nvjp = "sinh_vjp"\nsamples = [{{ input = [3] }}]\n')
    name = generate.load_module(rules).__name__
    with pytest.raises(GradientError) as error:
        generate.collect([(name, table)], with_library=False, closed=False)
    said = str(error.value)
    assert f"there is no op '{row.strip(chr(34)).rpartition(':')[2]}'" in said
    assert ("near matches" in said) == (near is not None)
    assert near is None or near in said.partition("near matches: ")[2]


def test_the_help_of_the_comparison_with_peers_installs_nothing(monkeypatch, capsys):
    """What makes the environment is replaced by what fails."""
    import runpy
    import venv

    monkeypatch.setattr(venv, "create", None)
    monkeypatch.setattr(sys, "argv", ["compare_peers.py", "--help"])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(ROOT / "tools" / "compare_peers.py"), run_name="__main__")
    assert left.value.code == 0
    assert "--here" in capsys.readouterr().out
