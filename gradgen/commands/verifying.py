"""The command that verifies gradients: `gradgen verify`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from gradgen.commands.common import (
    STREAM,
    hinted,
    json_option,
    library_option,
    model_argument,
    names_of,
    of_option,
    one_line,
    read_model,
    through_option,
    wrt_option,
)
from gradgen.errors import GradientError

# What a verdict means, said below the table where it occurs.
MEANINGS = {
    "wrong": "wrong: the gradient differs by more than the differences are uncertain",
    "kink": "kink: there is no derivative at this point (Relu at 0, a tie of Max), so that differences cannot verify one",
    "unresolved": "unresolved: the finite differences are too uncertain here to judge; try other --inputs",
}


@click.command()
@json_option
@click.option(
    "--seed", type=int, default=0, help="Of made-up inputs, cotangents and directions; another one is another point."
)
@click.option(
    "--inputs",
    "feeds",
    type=click.Path(path_type=Path),
    help="An .npz with inputs by name. What is missing "
    "is made up: random floats, integers 0 and 1, free dimensions of 2.",
)
@library_option
@through_option
@wrt_option
@of_option
@model_argument
def verify(model: str, wrt: tuple[str, ...], of: tuple[str, ...], feeds: Path | None, straight_through: bool,
           library: Path | None, seed: int, as_json: bool) -> None:  # fmt: skip
    """Differentiate MODEL and compare its gradients with finite differences; nothing is written.

    MODEL is a file, or - for standard input. Errors are relative, along one random direction for each value: in
    float64, and as onnxruntime computes the gradient in the model's own precision. Random draws are held fixed. Exit
    code 1 where a gradient is wrong or none could be verified, 2 where the model cannot be differentiated or run.
    """
    with one_line():
        records = _records(model, wrt, of, feeds, library, seed=seed, straight_through=straight_through)
    if as_json:
        click.echo(json.dumps([plain(r) for r in records]))
    else:
        _print(records)
    found = [r.verdict for r in records]
    if "ok" not in found or "wrong" in found:
        raise SystemExit(1)


def _records(model: str, wrt: Any, of: Any, feeds: Path | None, library: Path | None, **options: Any) -> Any:
    from rich.console import Console

    from gradgen.engine.registry import Registry
    from gradgen.verification import verify as call

    source = read_model(model)
    if library is not None:
        options["registry"] = Registry.load(library)
    label = "the model" if model == STREAM else Path(model).name
    with Console(stderr=True).status(f"verifying {label}") as status:
        done = 0

        def progress(record: Any, count: int) -> None:
            nonlocal done
            done += 1
            status.update(f"verifying {label}: {done} of {count}, {record.name} is {record.verdict}")

        try:
            return call(source, names_of(source, wrt) or None, list(of) or None, feeds=feeds, each=progress, **options)
        except GradientError as error:
            raise GradientError(hinted({"--wrt": wrt, "--of": of}, str(error))) from error


def plain(record: Any) -> dict[str, Any]:
    """A record for JSON, which knows no NaN and no infinity."""
    errors = {name: float(getattr(record, name)) for name in ("error_float64", "error_float32")}
    known = {k: v if json.dumps(v) not in ("NaN", "Infinity", "-Infinity") else None for k, v in errors.items()}
    return {"name": record.name, "shape": list(record.shape), **known, "verdict": record.verdict,
            "reason": record.reason}  # fmt: skip


def _print(records: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "shape", "float64", "float32", "verdict")
    for r in records:
        errors = ["–" if e != e else f"{e:.1e}" for e in (r.error_float64, r.error_float32)]
        table.add_row(r.name, "×".join(map(str, r.shape)) or "scalar", *errors,
                      r.verdict + (f" ({r.reason})" if r.reason else ""))  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 100).print(table)
    found = [r.verdict for r in records]
    for meaning in [text for verdict, text in MEANINGS.items() if verdict in found]:
        click.echo(meaning)
    if "ok" not in found and "wrong" not in found:
        click.echo("no gradient could be verified at this point")
