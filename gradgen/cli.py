"""The command line: `gradgen grad`, `gradgen vjp`, `gradgen parameters`, `gradgen coverage`, `gradgen generate`."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from gradgen.errors import GradientError, GradientWarning


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="onnx-gradgen", prog_name="gradgen")
def cli() -> None:
    """Gradients of ONNX models, as ONNX models in standard operators."""


def _shared(fn: Any) -> Any:
    for option in (
        click.option("--check", is_flag=True, help="Run both models and compare with finite differences."),
        click.option("--inputs", "feeds", type=click.Path(path_type=Path), help="An .npz with inputs for --check."),
        click.option("--straight-through", is_flag=True, help="Pass gradients through quantisation."),
        click.option("--no-inline", is_flag=True, help="Keep calls into the function library, for reading."),
        click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The file to write."),
        click.option("--wrt", multiple=True, help="What to differentiate with respect to: a name, a glob, `inputs` or "
                     "`initializers`; may be given more than once. Default: the float inputs."),
        click.option("--of", "of", multiple=True, help="What is differentiated: an output or an intermediate value."),
        click.argument("model", type=click.Path(path_type=Path)),
    ):  # fmt: skip
        fn = option(fn)
    return fn


@cli.command()
@_shared
@click.option("--reduce", type=click.Choice(["sum"]), help="Differentiate the sum of outputs with several elements.")
@click.option("--value/--no-value", default=False, help="Keep the model's own outputs beside the gradients.")
def grad(model: Path, of: tuple[str, ...], wrt: tuple[str, ...], output: Path, no_inline: bool, feeds: Path | None,
         check: bool, straight_through: bool, reduce: str | None, value: bool) -> None:  # fmt: skip
    """Write the gradient of a scalar output of MODEL."""
    from gradgen import api

    options: dict[str, Any] = {"inline": not no_inline, "straight_through": straight_through}
    call = api.value_and_grad if value else api.grad
    _write(model, of, wrt, output, check, feeds, lambda m, w, o: call(m, w, o, reduce=reduce, **options))


@cli.command()
@_shared
def vjp(model: Path, of: tuple[str, ...], wrt: tuple[str, ...], output: Path, no_inline: bool, feeds: Path | None,
        check: bool, straight_through: bool) -> None:  # fmt: skip
    """Write the vector-Jacobian product of MODEL: cotangents `grad_<output>` in, `grad_<name>` out."""
    from gradgen import api

    options: dict[str, Any] = {"inline": not no_inline, "straight_through": straight_through}
    _write(model, of, wrt, output, check, feeds, lambda m, w, o: api.vjp(m, w, o, **options))


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
def parameters(model: Path) -> None:
    """List the trainable initializers of MODEL, one a line."""
    from gradgen import api

    with _one_line():
        for name in api.parameters(model):
            click.echo(name)


@cli.command()
@click.argument("ops", nargs=-1)
def coverage(ops: tuple[str, ...]) -> None:
    """Print which ops have a rule, a zero derivative or none; OPS narrows it."""
    from rich.console import Console
    from rich.table import Table

    from gradgen.engine.registry import registered

    with _one_line():
        rows = [r for r in registered().rows() if not ops or r.op_type in ops]
        if missing := sorted(set(ops) - {r.op_type for r in rows}):
            raise GradientError(f"no row for {', '.join(missing)}")
    table = Table("op", "from", "rule", "inputs")
    for row in sorted(rows, key=lambda r: (r.domain, r.op_type, r.since)):
        inputs = [n.rstrip("*") for n in row.inputs]
        said = [f"{n}: {_disposition(row, i, n)}" for i, n in enumerate(inputs)]
        name = f"{row.domain}::{row.op_type}" if row.domain else row.op_type
        table.add_row(name, str(row.since), ", ".join(dict.fromkeys(f.rule for f in row.forms)) or "–", "; ".join(said))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@cli.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def generate(arguments: tuple[str, ...]) -> None:
    """Write a registry, a function library, tests and a coverage table from rules and tables."""
    # Imported when it is asked for: it needs jinja2, the other commands do not.
    try:
        command = importlib.import_module("gradgen.generator.main").command
    except ModuleNotFoundError as error:
        missing = f"`gradgen generate` needs {error.name}: pip install 'onnx-gradgen[generate]'"
        raise click.ClickException(missing) from None
    command.main(list(arguments), prog_name="gradgen generate")


def _disposition(row: Any, index: int, name: str) -> str:
    kind = row.disposition(index)
    if kind != "none":
        return kind
    return f"none ({row.none[name]})" if name in row.none else "not float"


class _one_line:  # noqa: N801  (a context manager reads as a verb)
    """Turns what gradgen raises into one line on standard error and exit code 2, and warnings into lines."""

    def __enter__(self) -> None:
        self._catch = warnings.catch_warnings(record=True)
        self._caught = self._catch.__enter__()
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GradientWarning)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._catch.__exit__(None, None, None)
        for warning in self._caught or ():
            click.echo(f"gradgen: note: {warning.message}", err=True)
        if isinstance(error, GradientError | OSError):
            click.echo(f"gradgen: {error}", err=True)
            raise SystemExit(2) from None


def _write(
    path: Path, of: tuple[str, ...], wrt: tuple[str, ...], output: Path, check: bool, feeds: Path | None, call: Any
) -> None:
    """Differentiate, write, and check if asked."""
    from rich.console import Console

    from gradgen.feeds import make_feeds
    from gradgen.files import check_target, save

    progress = Console(stderr=True)
    with _one_line():
        check_target(output)
        if output.exists() and path.exists() and output.samefile(path):
            raise GradientError(f"'{output}' is the model itself: give -o another name")
        if feeds is not None and not check:
            raise GradientError("--inputs is what --check runs on: add --check")
        with progress.status(f"differentiating {path.name}"):
            result = call(path, _names(path, wrt) or None, list(of) or None)
        primal, point = make_feeds(path, feeds) if check else (None, {})
        save(result, output)
        click.echo(f"{output}: {len(result.graph.node)} nodes")
    if check:
        with _one_line():
            right = _check(primal, output, point, progress)
        if not right:
            raise SystemExit(1)


def _names(path: Path, wrt: tuple[str, ...]) -> list[str]:
    """`--wrt` with `inputs` and `initializers` spelt out, where the model has no value of that name."""
    from gradgen import api
    from gradgen.engine.reading import read

    if not {"inputs", "initializers"} & set(wrt):
        return list(wrt)
    graph = read(path)[0].graph
    taken = {v.name for v in [*graph.input, *graph.initializer]} | {o for n in graph.node for o in n.output}
    stored = {t.name for t in graph.initializer}
    floats = {1, 10, 11, 16}
    names: list[str] = []
    for name in wrt:
        if name == "inputs" and name not in taken:
            names += [i.name for i in graph.input if i.name not in stored and i.type.tensor_type.elem_type in floats]
        elif name == "initializers" and name not in taken:
            found = api.parameters(path)
            if not found:
                raise GradientError(f"'{path}' has no float initializer to differentiate with respect to")
            names += found
        else:
            names.append(name)
    return names


def _check(primal: Any, written: Path, point: Any, progress: Any) -> bool:
    """Compare the written model with finite differences and print a table; whether nothing is wrong."""
    import onnx
    from rich.console import Console
    from rich.table import Table

    from gradgen.differences import check_gradients

    with progress.status("comparing with finite differences"):
        try:
            gradient = onnx.load(written)
            records = check_gradients(primal, gradient, point, _seeds(primal, gradient, point))
        except Exception as error:  # the engines that run a model raise many kinds, with no common base
            raise GradientError(f"the check could not run: {' '.join(str(error).split())[:300]}") from error
    table = Table("name", "shape", "norm", "error", "verdict")
    for r in records:
        table.add_row(r.name, "×".join(map(str, r.shape)) or "scalar", f"{r.norm:.4g}", f"{r.error:.1e}",
                      r.verdict + (f" ({r.reason})" if r.reason else ""))  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    return all(r.verdict != "wrong" for r in records)


def _seeds(primal: Any, gradient: Any, point: Any) -> Any:
    """Ones for the outputs that a gradient model seeds itself; None where it takes cotangents."""
    import json

    import numpy as np

    from gradgen.api import NAMES_KEY
    from gradgen.evaluate import Evaluator

    roles = json.loads(next(p.value for p in gradient.metadata_props if p.key == NAMES_KEY))
    seeded = [n for n, r in roles.items() if r["role"].startswith("seeded")]
    if not seeded:
        return None
    outputs = Evaluator(primal)(point)
    return {n: np.ones_like(outputs[n]) for n in seeded}


def main() -> None:
    """Run the command line."""
    cli()
