"""Generates the registry, the function library, the tests and the coverage table from rules and tables."""

from __future__ import annotations

import importlib
import importlib.util
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import jinja2
import onnx

from gradgen.coverage import first_version, float_types
from gradgen.engine.registry import Registry
from gradgen.engine.rows import Row
from gradgen.errors import GradientError
from gradgen.generator import compile as compiling
from gradgen.generator.results import CHECKS, Results, shown, stem
from gradgen.generator.table import Problems, TableRow, check_closed, check_duplicates, read_table
from gradgen.generator.tracing import check_traced, place
from gradgen.linearity import nonlinear_results
from gradgen.rules.lang import DOMAIN

RULES = Path(__file__).parent.parent / "rules"
TEMPLATES = Path(__file__).parent.parent / "templates"


@dataclass
class Family:
    """A module of rules and its table."""

    name: str
    rows: list[TableRow]
    functions: list[onnx.FunctionProto]


def families() -> list[tuple[str, Path]]:
    """Module name and table of each family that gradgen ships."""
    return [(f"gradgen.rules.{p.stem}", p) for p in sorted(RULES.glob("*.toml"))]


def load_module(path: Path) -> ModuleType:
    """Import somebody's module of rules from its file, under the name that it has in its package.

    Raises:
        GradientError: with the line that fails.
    """
    name, root = path.stem, path.resolve().parent
    while (root / "__init__.py").is_file():
        name, root = f"{root.name}.{name}", root.parent
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise GradientError(f"'{path}' is not a Python module")
    module = importlib.util.module_from_spec(spec)
    if "." in name:
        sys.path.insert(0, str(root))  # for what it imports from its package
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # a module of somebody's own may raise anything
        raise GradientError(f"the rules do not import: {place(error, path)}") from error
    return module


def collect(sources: Sequence[tuple[str, Path]], with_library: bool = True, closed: bool = True) -> list[Family]:
    """Read and check the tables, and compile the rules.

    Raises:
        GradientError: lists everything that is wrong with the tables and the rules, with file, row and reason.
    """
    problems = Problems()
    compiler = compiling.Compiler()
    found: list[Family] = []
    used: dict[str, set[tuple[str, str]]] = {}
    complete = True  # every module has imported

    def compile_all(functions: Any) -> list[onnx.FunctionProto]:
        protos = []
        for function in functions:
            if function.kind not in compiling.COMPILED:
                continue
            try:
                proto = compiler.proto(function)
                compiling.text(proto)
            except GradientError as error:
                problems.add(compiling.where(function), str(error))
                continue
            nodes = compiling.all_nodes(proto.node)
            used[f"{function.module}.{function.name}"] = {(n.domain, n.op_type) for n in nodes if n.domain != DOMAIN}
            protos.append(proto)
        return protos

    if with_library:
        found.append(Family("library", [], compile_all(compiling.library_functions().values())))
    for module_name, path in sources:
        try:
            module = importlib.import_module(module_name)
        except Exception as error:  # a rule may be wrong in any way
            problems.add(path.name, f"its module does not import: {place(error, path)}")
            complete = False
            continue
        functions = compiling.rule_functions(module)
        rows = read_table(path, module_name, functions, problems)
        found.append(Family(path.stem, rows, compile_all(functions.values())))
    every = [row for family in found for row in family.rows]
    check_duplicates(every, problems)
    if closed and complete:  # else rows are missing for another reason
        check_closed(every, used, problems)
    problems.raise_any()
    registry = _registry(found)
    check_traced(every, registry, problems)
    problems.raise_any()
    check_linear(every, registry, problems)
    problems.raise_any()
    return found


def _registry(found: Sequence[Family]) -> Registry:
    """The rows and functions as they were read, before anything is written."""
    functions = [f for family in found for f in family.functions]
    own = any(family.name == "library" for family in found)
    if not own:
        functions += [compiling.Compiler().proto(f) for f in compiling.library_functions().values()]
    rows = [item.row for family in found for item in family.rows]
    return Registry(rows, {f.name: f for f in functions}, None if own else "registered")


def check_linear(rows: Sequence[TableRow], registry: Registry, problems: Problems) -> None:
    """Run each rule that is not declared linear=False on numbers: what it returns must be linear in its cotangents."""
    for item in rows:
        ruled = [f for f in item.row.forms if f.kind != "structural" and f.linear]
        for form in (*ruled, *item.row.tangents):
            if broken := nonlinear_results(replace(item.row, forms=(form,)), registry):
                kind, way = (
                    ("tangents", "") if form in item.row.tangents else ("cotangents", "; declare it with linear=False")
                )
                problems.add(item.where, f"'{form.rule}' is not linear in its {kind}: {', '.join(broken)}{way}")


def environment() -> jinja2.Environment:
    """The templates, which fail on an undefined name."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    env.filters["literal"] = _literal
    env.filters["first"] = first_version
    env.filters["stem"] = stem
    env.filters["cell"] = lambda text: str(text).replace("|", "\\|").replace("\n", " ")
    return env


def render(found: Sequence[Family], results: Mapping[str, Results] | None = None) -> dict[str, str]:
    """The generated files by path; COVERAGE.md shows `results`, by `<family>/<stem>`, where they are given."""
    env = environment()
    # The library functions come with gradgen's own families alone.
    env.globals["own"] = all(family.name != "library" for family in found)
    files = {}
    for family in found:
        if family.functions:
            blocks = [compiling.text(f) for f in family.functions]
            files[f"{family.name}.onnxtxt"] = env.get_template("library.onnxtxt.j2").render(
                family=family, blocks=blocks
            )
        ruled = [r for r in family.rows if r.samples]
        if ruled:
            files[f"tests/test_{family.name}.py"] = env.get_template("test_family.py.j2").render(
                family=family, rows=ruled
            )
    rows = [row for family in found for row in family.rows]
    libraries = sorted(name for name in files if name.endswith(".onnxtxt"))
    files["registry.py"] = env.get_template("registry.py.j2").render(rows=rows, libraries=libraries, fields=fields)
    known = results or {}
    files["COVERAGE.md"] = env.get_template("COVERAGE.md.j2").render(
        families=found,
        checks=CHECKS if results is not None else {},
        shown=lambda family, item, check: shown(known.get(f"{family.name}/{stem(item)}"), item, check),
        types=lambda item: float_types(item.row, [r.row for r in rows]),
    )
    files["__init__.py"] = env.get_template("init.py.j2").render()
    return files


def _literal(content: Any) -> str:
    """The Python expression for plain content: as repr, and `inf` and `nan`, which are no names, as calls of float."""
    if isinstance(content, dict):
        return "{" + ", ".join(f"{k!r}: {_literal(v)}" for k, v in content.items()) + "}"
    if isinstance(content, list):
        return "[" + ", ".join(map(_literal, content)) + "]"
    if isinstance(content, float) and not math.isfinite(content):
        return f"float({str(content)!r})"
    return repr(content)


def fields(row: Row) -> dict[str, Any]:
    """The fields of a row that differ from their defaults, for its constructor."""
    result: dict[str, Any] = {"inputs": row.inputs, "outputs": row.outputs}
    plain = (
        "forms",
        "zero",
        "none",
        "ignores",
        "defaults",
        "module",
        "random",
        "like",
        "selects",
        "linear",
        "tangents",
    )
    for name in (*plain, "forward", "straight_through"):
        value = getattr(row, name)
        if value not in ((), {}, None, ""):
            result[name] = value
    if not row.kernel:
        result["kernel"] = False
    return result


def is_library(folder: Path) -> bool:
    """Whether a folder holds what the generator wrote."""
    path = folder / "registry.py"
    return path.is_file() and "Do not edit" in path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]


def write(files: dict[str, str], out: Path) -> None:
    """Write the files, formatted, in place of what was generated before.

    Raises:
        GradientError: the folder holds something else.
    """
    if out.exists() and not is_library(out) and (not out.is_dir() or any(out.iterdir())):
        raise GradientError(f"'{out}' is not empty and holds no generated library: give --out a new or empty folder")
    with tempfile.TemporaryDirectory() as scratch:
        _formatted(files, Path(scratch))
        for stale in [*out.glob("*.onnxtxt"), *out.glob("tests/test_*.py")]:
            if str(stale.relative_to(out)) not in files:
                stale.unlink()
        for name in files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(scratch) / name, out / name)


def differences(files: dict[str, str], out: Path) -> list[str]:
    """The generated files that are missing, stale or edited."""
    with tempfile.TemporaryDirectory() as scratch:
        _formatted(files, Path(scratch))
        wrong = [
            n for n in files if not (out / n).is_file() or (out / n).read_bytes() != (Path(scratch) / n).read_bytes()
        ]
    stale = [p for p in [*out.glob("*.onnxtxt"), *out.glob("tests/test_*.py")] if str(p.relative_to(out)) not in files]
    return sorted([*wrong, *(str(p.relative_to(out)) for p in stale)])


def _formatted(files: dict[str, str], folder: Path) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content.rstrip("\n") + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=120", "-q", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "No module named ruff" in done.stderr:
        raise GradientError('the generator needs ruff: run `pip install -e ".[generate]"` in a clone of gradgen')
    if done.returncode:
        raise GradientError(f"ruff could not format the generated files: {done.stderr.strip()}")
