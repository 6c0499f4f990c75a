# Rules of installed packages: the example package, precedence, duplicates, broken packages, threads, the import's time.
"""Tests of the entry point group `gradgen.rules` and of libraries for domains of one's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gradgen
from gradgen.generator import generate

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "examples" / "plugin_package"

HEAD = """
import numpy as np, onnx, onnx.parser, onnxruntime
import gradgen

def grad_at(text, x, **options):
    result = gradgen.vjp(onnx.parser.parse_model(text), **options)
    onnx.checker.check_model(result, full_check=True)
    session = onnxruntime.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["grad_x"], {"x": np.array(x, np.float32), "grad_y": np.ones(len(x), np.float32)})[0]

def model(domain, op):
    return (f'<ir_version: 10, opset_import: ["" : 21, "{domain}" : 1]> '
            f'g (float[3] x) => (float[3] y) {{ y = {domain}.{op} (x) }}')
"""


def python(code: str, *folders: Path, **environment: str) -> subprocess.CompletedProcess:
    """Run a script in a fresh process that finds packages in some folders."""
    path = os.pathsep.join(map(str, [*folders, ROOT]))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HEAD) + textwrap.dedent(code)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path, **environment}, check=False,
    )  # fmt: skip


def printed(done: subprocess.CompletedProcess) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The example package, built and installed into a folder of its own."""
    source, target = tmp_path_factory.mktemp("source") / "package", tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*command, "--target", str(target), str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target


def test_an_installed_package_is_found_by_itself(installed):
    code = """
    x = np.array([-1.5, 0.25, 2.0])
    def by_differences(f):
        return (f(x + 1e-6) - f(x - 1e-6)) / 2e-6
    for op, f in (("SmoothAbs", lambda v: np.sqrt(v * v + 0.01) - 0.1), ("LogCosh", lambda v: np.log(np.cosh(v)))):
        np.testing.assert_allclose(grad_at(model("smooth.ops", op), x), by_differences(f), rtol=1e-4)
    mean = ('<ir_version: 10, opset_import: ["" : 21, "smooth.ops" : 1]> '
            'g (float[3] x) => (float[1] y) { y = smooth.ops.LogMeanExp (x) }')
    result = gradgen.vjp(onnx.parser.parse_model(mean))
    session = onnxruntime.InferenceSession(result.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(["grad_x"], {"x": x.astype(np.float32), "grad_y": np.ones(1, np.float32)})[0]
    np.testing.assert_allclose(found, np.exp(x) / np.exp(x).sum(), rtol=1e-5)
    import smooth_ops
    print(smooth_ops.__file__)
    """
    assert str(installed) in printed(python(code, installed))


def test_without_the_package_the_op_is_unknown():
    done = python("print(grad_at(model('smooth.ops', 'LogCosh'), [1, 2, 3]))")
    assert done.returncode and "smooth.ops::LogCosh" in done.stderr


def test_the_commands_find_it_too(installed, tmp_path):
    path = os.pathsep.join(map(str, [installed, ROOT]))
    done = subprocess.run(
        [sys.executable, "-m", "gradgen", "coverage", "smooth.ops::LogCosh"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path}, check=True,
    )  # fmt: skip
    assert "log_cosh_vjp" in done.stdout


def test_the_packages_own_tests_pass_from_where_it_is_installed(installed):
    path = os.pathsep.join(map(str, [installed, ROOT]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(PACKAGE),
         "--import-mode=importlib", str(PACKAGE / "smooth_ops" / "library" / "tests"), "-k", "first_order or float32 or jvp"],
        capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_the_example_library_is_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "generate.py"), "--check", "--rules", "smooth_ops/rules.py", "--table",
         "smooth_ops/rules.toml", "--out", "smooth_ops/library"],
        cwd=PACKAGE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def package(folder: Path, name: str, code: str, entry: str = "") -> None:
    """A package of one module, as pip would leave it, with an entry point of the group."""
    module = name.replace("-", "_")
    (folder / f"{module}.py").write_text(textwrap.dedent(code), encoding="utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[gradgen.rules]\nmine = {module}{entry}\n", encoding="utf-8")


CUBE = """
import gradgen
from onnxscript import opset21 as op

@gradgen.op("cube.ops", "Cube")
def cube(x):
    y = x * x * x
    return y
"""
FACTOR_RULE = """
@gradgen.vjp_rule("cube.ops", "Cube"{options})
def cube_vjp(dy, x):
    dx = dy * (x - x) + dy * {factor}.0
    return dx
"""


def test_a_module_with_decorators_is_a_plugin(tmp_path):
    package(tmp_path, "cube-rules", CUBE)
    assert printed(python("print(grad_at(model('cube.ops', 'Cube'), [1, 2, 3]))", tmp_path)) == "[ 3. 12. 27.]"
    before = "import cube_rules\nprint(grad_at(model('cube.ops', 'Cube'), [1, 2, 3]))"
    assert printed(python(before, tmp_path)) == "[ 3. 12. 27.]", "also where the program imports it first"


@pytest.mark.parametrize("entry", [":RULES", ":make"])
def test_a_registry_or_a_function_is_a_plugin(tmp_path, entry):
    code = CUBE.replace('"Cube")', '"Cube", registry=RULES)').replace(
        "@gradgen", "RULES = gradgen.Registry()\n@gradgen"
    )
    package(tmp_path, "cube-rules", code + "\ndef make():\n    return RULES\n", entry)
    assert printed(python("print(grad_at(model('cube.ops', 'Cube'), [1, 2, 3]))", tmp_path)) == "[ 3. 12. 27.]"


def test_precedence(tmp_path):
    """The call's registry goes before what is registered, that before plugins, plugins before what is built in."""
    package(tmp_path, "cube-rules", CUBE + FACTOR_RULE.format(options="", factor=2) + textwrap.dedent("""
    @gradgen.vjp_rule("", "Exp")
    def exp_vjp(doutput, input):
        dinput = doutput * 7.0 + input - input
        return dinput
    """))  # fmt: skip
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(HEAD) + textwrap.dedent("""
    from onnxscript import opset21 as op
    cube = model("cube.ops", "Cube")
    exp = '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { y = Exp (x) }'
    print(grad_at(exp, [1, 2, 3]))
    print(grad_at(cube, [1, 2, 3]))
    """) + FACTOR_RULE.format(options="", factor=3) + "print(grad_at(cube, [1, 2, 3]))\n"
    + "mine = gradgen.Registry()\n" + FACTOR_RULE.format(options=", registry=mine", factor=4)
    + "print(grad_at(cube, [1, 2, 3], registry=mine))\nprint(grad_at(cube, [1, 2, 3]))\n")  # fmt: skip
    path = os.pathsep.join(map(str, [tmp_path, ROOT]))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert printed(done).splitlines() == ["[7. 7. 7.]", "[2. 2. 2.]", "[3. 3. 3.]", "[4. 4. 4.]", "[3. 3. 3.]"]


CATCH = """
try:
    print(grad_at(model('cube.ops', 'Cube'), [1, 2, 3]))
except gradgen.GradientError as error:
    print(error)
"""


def test_two_packages_with_a_row_for_one_op_are_both_named(tmp_path):
    package(tmp_path, "cube-rules", CUBE)
    package(tmp_path, "other-cubes", CUBE)
    said = printed(python(CATCH, tmp_path))
    assert "the packages 'cube-rules' and 'other-cubes' both have a row for cube.ops::Cube, version 1" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("code", "entry", "reason"),
    [
        ("raise RuntimeError('no\\nway')", "", "RuntimeError: no way"),
        ("import absent_package", "", "No module named 'absent_package'"),
        ("RULES = 3", ":RULES", "it gives a int"),
        ("RULES = 'nowhere'", ":RULES", "'nowhere' holds no generated library"),
        ("", ":RULES", "has no attribute 'RULES'"),
        (CUBE.replace("return y", "return x"), "", None),
    ],
)
def test_a_broken_package_is_named_in_one_line(tmp_path, code, entry, reason):
    package(tmp_path, "broken-rules", code, entry)
    assert printed(python("print('imported')", tmp_path)) == "imported"
    said = printed(python(CATCH, tmp_path))
    if reason is not None:
        assert "the package 'broken-rules' does not load as a plugin" in said and reason in said
        assert len(said.splitlines()) == 1
    off = printed(python(CATCH, tmp_path, GRADGEN_PLUGINS="off"))
    assert "cube.ops::Cube (opset 1), node 'y': no rule for the op" in off


def test_threads_that_ask_at_once_get_the_same_rules(tmp_path):
    package(tmp_path, "cube-rules", "import time\ntime.sleep(0.1)\n" + CUBE + FACTOR_RULE.format(options="", factor=2))
    code = """
    import threading
    from concurrent.futures import ThreadPoolExecutor
    from gradgen.engine.registry import plugins
    barrier = threading.Barrier(8)
    def work(k):
        barrier.wait()
        return tuple(grad_at(model('cube.ops', 'Cube'), [1, 2, 3])), id(plugins())
    with ThreadPoolExecutor(8) as pool:
        print(len(set(pool.map(work, range(8)))))
    """
    assert printed(python(code, tmp_path)) == "1"


def test_threads_may_register_while_others_differentiate():
    """Rows are added, and looked up and listed, at the same time."""
    code = """
    import sys, threading
    from concurrent.futures import ThreadPoolExecutor
    from gradgen.rules.lang import traced
    sys.setswitchinterval(1e-5)
    registry = gradgen.Registry()
    gradgen.register_vjp("cube.ops", "Cube", traced("dx")(lambda dy, x: dy * 5), outputs=["y"], registry=registry)
    text = model("cube.ops", "Cube") + '<domain: "cube.ops", opset_import: ["" : 21]> Cube (x) => (y) { y = Abs (x) }'
    def register(k):
        for i in range(40):
            gradgen.register_vjp("my.ops", f"Op{k}x{i}", traced("dx")(lambda dy, x: dy), outputs=["y"], linear=False,
                                 registry=registry)
    def work(k):
        return [(tuple(grad_at(text, [1, 2, 3], registry=registry)), len(registry.rows()) > 0) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        adding = [pool.submit(register, k) for k in range(3)]
        found = [f for k in range(3) for f in pool.submit(work, k).result()]
        [a.result() for a in adding]
    print(set(found) == {((5, 5, 5), True)}, len(registry.own_rows()))
    """
    assert printed(python(code)) == "True 121"


def test_importing_gradgen_scans_nothing(tmp_path):
    package(tmp_path, "broken-rules", "raise RuntimeError")
    code = """
    import subprocess, sys, time
    best = min(
        float(subprocess.run([sys.executable, "-c",
            "import time; t = time.perf_counter(); import gradgen, sys; print(time.perf_counter() - t);"
            "assert 'onnx' not in sys.modules and 'importlib.metadata' not in sys.modules"],
            capture_output=True, text=True, check=True).stdout) for _ in range(3))
    print(best < 0.05, best)
    """
    assert printed(python(code, tmp_path)).startswith("True")


def test_a_library_for_a_domain_of_ones_own(tmp_path):
    """Two edits, one command: what the README of the example says, in an empty folder."""
    for name in ("rules.py", "rules.toml"):
        shutil.copy(PACKAGE / "smooth_ops" / name, tmp_path / name.replace("rules", "mine"))
    command = ["--rules", "mine.py", "--table", "mine.toml", "--out", "mylib"]
    subprocess.run([sys.executable, str(ROOT / "tools" / "generate.py"), *command], cwd=tmp_path, check=True)
    assert {p.name for p in (tmp_path / "mylib").rglob("*") if p.is_file()} == {
        "registry.py", "__init__.py", "COVERAGE.md", "mine.onnxtxt", "test_mine.py",
    }  # fmt: skip
    code = f"""
    rules = gradgen.Registry.load({str(tmp_path / "mylib")!r})
    print(grad_at(model("smooth.ops", "LogCosh"), [0, 0, 0], registry=rules))
    """
    assert printed(python(code, tmp_path)) == "[0. 0. 0.]"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (
            "return dx\n\n\n@forward\ndef log_mean",
            "return dy\n\n\n@forward\ndef log_mean",
            "return names, not expressions",
        ),
        ("def log_cosh_vjp(dy, x):", "def log_cosh_vjp(dy, z):", r"takes \['z'\]"),
        ('@traced("dx")', '@traced("dz")', r"returns \['dz'\]"),
        ("dx = dy * op.Tanh(x)", "dx = dy * op.Tanh(x) + x", "not linear in its cotangents"),
    ],
)
def test_a_library_with_a_wrong_rule_is_refused(tmp_path, before, after, reason):
    text = (PACKAGE / "smooth_ops" / "rules.py").read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "wrong.py").write_text(text.replace(before, after), encoding="utf-8")
    shutil.copy(PACKAGE / "smooth_ops" / "rules.toml", tmp_path / "wrong.toml")
    name = generate.load_module(tmp_path / "wrong.py").__name__
    try:
        with pytest.raises(gradgen.GradientError, match=reason):
            generate.collect([(name, tmp_path / "wrong.toml")], with_library=False, closed=False)
    finally:
        del sys.modules[name]


def test_a_librarys_rule_never_stands_in_for_gradgens_own_of_the_same_name(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent('''
        """An op whose rule has the name of one of gradgen's own."""
        from gradgen.rules.lang import forward, op, vjp

        @forward
        def mul(A, B):
            C = A * B
            return C

        @vjp
        def mul_vjp(dC, A, B):
            """Wrong on purpose."""
            dA = dC * 5.0
            dB = dC * 5.0
            return dA, dB
    '''), encoding="utf-8")  # fmt: skip
    (tmp_path / "mine.toml").write_text(
        '["my.ops::Mul"]\nforward = "mul"\nvjp = "mul_vjp"\nkernel = false\nsamples = [{ A = [3], B = [3] }]\n', "utf-8"
    )
    name = generate.load_module(tmp_path / "mine.py").__name__
    found = generate.collect([(name, tmp_path / "mine.toml")], with_library=False, closed=False)
    generate.write(generate.render(found), tmp_path / "mylib")
    del sys.modules[name]
    code = f"""
    rules = gradgen.Registry.load({str(tmp_path / "mylib")!r})
    text = '''<ir_version: 10, opset_import: ["" : 21, "my.ops" : 1]>
    g (float[3] x) => (float[3] y) {{ c = Sin(x)  m = Mul(x, c)  y = my.ops.Mul (m, c) }}'''
    x = np.array([1, 2, 3])
    want = 5 * (np.sin(x) + x * np.cos(x)) + 5 * np.cos(x)
    np.testing.assert_allclose(grad_at(text, x, registry=rules), want, rtol=1e-5)
    """
    printed(python(code, tmp_path))
