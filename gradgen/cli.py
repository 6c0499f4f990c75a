"""The command line: `gradgen grad`, `gradgen vjp`, `gradgen parameters`, `gradgen coverage`, `gradgen generate`."""

from __future__ import annotations

import difflib
import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import click

from gradgen.errors import GradientError, GradientWarning

KEYWORDS = ("inputs", "initializers")  # what --wrt takes beside names and globs

# What a verdict of the check means, said below the table where it occurs.
MEANINGS = {
    "wrong": "wrong: the gradient differs by more than the differences are uncertain",
    "kink": "kink: there is no derivative at this point (Relu at 0, a tie of Max), so that differences cannot verify one",
    "unresolved": "unresolved: the finite differences are too uncertain here to judge; try other --inputs",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="onnx-gradgen", prog_name="gradgen")
def cli() -> None:
    """Gradients of ONNX models, as ONNX models in standard operators."""


CHECK_HELP = (
    "When the model is written, run both models and compare with finite differences. Exit code 1 where a gradient is "
    "wrong or none could be verified, 2 where the check cannot run."
)


def _shared(fn: Any) -> Any:
    for option in (
        click.option("--check", is_flag=True, help=CHECK_HELP),
        click.option("--inputs", "feeds", type=click.Path(path_type=Path), help="An .npz with inputs for --check, by "
                     "name. What is missing is made up: random floats, integers 0 and 1, free dimensions of 2."),
        click.option("--library", type=click.Path(path_type=Path), help="A folder that `gradgen generate --out` wrote: "
                     "its rules go before gradgen's own. Modules of traced rules must be on the Python path."),
        click.option("--straight-through", is_flag=True, help="Pass gradients through quantisation."),
        click.option("--no-inline", is_flag=True, help="Keep calls into the function library, for reading."),
        click.option("-o", "--output", required=True, help="The file to write."),
        click.option("--wrt", multiple=True, help="What to differentiate with respect to: a name, a glob, `inputs` or "
                     "`initializers`; may be given more than once. Default: the float inputs."),
        click.option("--of", "of", multiple=True, help="What is differentiated: an output or an intermediate value; "
                     "may be given more than once, and the gradients of several are added. Default: every float "
                     "output."),
        click.argument("model", type=click.Path(path_type=Path)),
    ):  # fmt: skip
        fn = option(fn)
    return fn


@cli.command()
@_shared
@click.option("--reduce", type=click.Choice(["sum"]), help="Differentiate the sum of outputs with several elements.")
@click.option("--value/--no-value", default=False, help="Keep the model's own outputs beside the gradients.")
def grad(model: Path, of: tuple[str, ...], wrt: tuple[str, ...], output: str, no_inline: bool, feeds: Path | None,
         check: bool, straight_through: bool, library: Path | None, reduce: str | None, value: bool) -> None:  # fmt: skip
    """Write the gradient of a scalar output of MODEL."""
    from gradgen import api

    options: dict[str, Any] = {"inline": not no_inline, "straight_through": straight_through, "reduce": reduce}
    _write(model, of, wrt, output, check, feeds, library, api.value_and_grad if value else api.grad, options)


@cli.command()
@_shared
def vjp(model: Path, of: tuple[str, ...], wrt: tuple[str, ...], output: str, no_inline: bool, feeds: Path | None,
        check: bool, straight_through: bool, library: Path | None) -> None:  # fmt: skip
    """Write the vector-Jacobian product of MODEL: cotangents `grad_<output>` in, `grad_<name>` out."""
    from gradgen import api

    options: dict[str, Any] = {"inline": not no_inline, "straight_through": straight_through}
    _write(model, of, wrt, output, check, feeds, library, api.vjp, options)


@cli.command()
@click.argument("model", type=click.Path(path_type=Path))
def parameters(model: Path) -> None:
    """List the trainable initializers of MODEL, one a line."""
    from gradgen import api

    with _one_line():
        _refuse_folder(model)
        for name in api.parameters(model):
            click.echo(name)


@cli.command()
@click.argument("ops", nargs=-1)
def coverage(ops: tuple[str, ...]) -> None:
    """Print which ops have a rule, a zero derivative or none; OPS narrows it.

    OPS are op types, or domain::op for one domain alone. An input is differentiated by a rule or through a body in
    standard ops, has a derivative that is known to be zero, none (with the reason), or is never a float.
    """
    from rich.console import Console
    from rich.table import Table

    from gradgen.coverage import coverage_rows

    with _one_line():
        rows = coverage_rows(ops)
    table = Table("op", "from", "rule", "inputs")
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@cli.command(context_settings={"ignore_unknown_options": True}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def generate(arguments: tuple[str, ...]) -> None:
    """Write a registry, a function library, tests and a coverage table from rules and tables."""
    # Imported when it is asked for: it needs jinja2, the other commands do not.
    try:
        command = importlib.import_module("gradgen.generator.main").command
    except ModuleNotFoundError as error:
        missing = f'`gradgen generate` needs {error.name}: run `pip install -e ".[generate]"` in a clone of gradgen'
        raise click.ClickException(missing) from None
    command.main(list(arguments), prog_name="gradgen generate")


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
            click.echo(f"gradgen: {_spelt(str(error))}", err=True)
            raise SystemExit(2) from None


def _spelt(message: str) -> str:
    """A message about the arguments of a call, with the options of the command line."""
    return message.replace('reduce="sum"', "--reduce sum").replace(
        "name initializers in wrt", "pass --wrt initializers"
    )


def _hint(asked: dict[str, tuple[str, ...]], message: str) -> str:
    """What may have been meant by names that the model does not have: keywords, and several names in one."""
    hints = []
    for option, names in asked.items():
        for name in [n for n in names if f"there is no value '{n}'" in message]:
            if "," in name:
                each = " ".join(f"{option} {part.strip()}" for part in name.split(",") if part.strip())
                hints.append(f"for several names repeat the option: {each}")
            elif option == "--wrt" and (near := difflib.get_close_matches(name, KEYWORDS, n=1, cutoff=0.7)):
                hints.append(f"did you mean the keyword --wrt {near[0]}?")
    return "; ".join([message, *hints])


def _write(
    path: Path,
    of: tuple[str, ...],
    wrt: tuple[str, ...],
    output: str,
    check: bool,
    feeds: Path | None,
    library: Path | None,
    call: Any,
    options: dict[str, Any],
) -> None:
    """Differentiate, write, and check if asked."""
    from rich.console import Console

    from gradgen.engine.registry import Registry
    from gradgen.feeds import make_feeds
    from gradgen.files import check_target, save

    progress = Console(stderr=True)
    target = Path(output)
    with _one_line():
        if not output:
            raise GradientError("-o is empty: give the name of the file to write")
        _refuse_folder(path)
        check_target(target)
        if target.exists() and path.exists() and target.samefile(path):
            raise GradientError(f"'{target}' is the model itself: give -o another name")
        if feeds is not None and not check:
            raise GradientError("--inputs is what --check runs on: add --check")
        if library is not None:
            options = {**options, "registry": Registry.load(library)}
        with progress.status(f"differentiating {path.name}"):
            try:
                result = call(path, _names(path, wrt) or None, list(of) or None, **options)
            except GradientError as error:
                raise GradientError(_hint({"--wrt": wrt, "--of": of}, str(error))) from error
        primal, point = make_feeds(path, feeds) if check else (None, {})
        save(result, target)
        click.echo(f"{target}: {counted(len(result.graph.node), 'node')}")
    if check:
        with _one_line():
            right = _check(primal, target, point, progress)
        if not right:
            raise SystemExit(1)


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise GradientError(f"'{path}' is a folder: give a model file")


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it is not one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _names(path: Path, wrt: tuple[str, ...]) -> list[str]:
    """`--wrt` with `inputs` and `initializers` spelt out, where the model has no value of that name."""
    from gradgen import api
    from gradgen.engine.reading import read

    if not set(KEYWORDS) & set(wrt):
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
    """Compare the written model with finite differences and print a table; whether some value is right, none wrong."""
    import onnx
    from rich.console import Console
    from rich.table import Table

    from gradgen.differences import check_gradients
    from gradgen.feeds import line_of

    with progress.status("comparing with finite differences"):
        try:
            gradient = onnx.load(written)
            records = check_gradients(primal, gradient, point, _seeds(primal, gradient, point))
        except Exception as error:  # the engines that run a model raise many kinds, with no common base
            raise GradientError(f"'{written}' is written, but the check could not run: {line_of(error)}") from error
    table = Table("name", "shape", "norm", "error", "verdict")
    for r in records:
        table.add_row(r.name, "×".join(map(str, r.shape)) or "scalar", f"{r.norm:.4g}", f"{r.error:.1e}",
                      r.verdict + (f" ({r.reason})" if r.reason else ""))  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    found = [r.verdict for r in records]
    for meaning in [text for verdict, text in MEANINGS.items() if verdict in found]:
        click.echo(meaning)
    if "ok" not in found and "wrong" not in found:
        click.echo("no gradient could be verified at this point")
    return "ok" in found and "wrong" not in found


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
