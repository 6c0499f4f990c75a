"""The command that verifies gradients and tangents: `gradgen verify`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from gradgen.commands.common import (
    hinted,
    inputs_option,
    json_option,
    label_of,
    library_option,
    model_argument,
    names_of,
    of_option,
    one_line,
    options_of,
    portable_option,
    read_model,
    through_option,
    wrt_option,
)
from gradgen.commands.records import plain, print_records, right
from gradgen.errors import GradientError

COLUMNS = ("error_float64", "error_float32")


@click.command(short_help="Compare gradients with finite differences.")
@of_option
@wrt_option
@click.option(
    "--mode", type=click.Choice(["vjp", "jvp", "both"]), default="vjp", show_default=True, help="What is verified: the "
    "gradients of vjp, the tangents of jvp, or both."
)  # fmt: skip
@inputs_option
@click.option(
    "--seed", type=int, default=0, show_default=True, help="Of made-up inputs, cotangents and directions; another one is "
    "another point."
)  # fmt: skip
@portable_option
@through_option
@library_option
@json_option
@model_argument
def verify(model: str, wrt: tuple[str, ...], of: tuple[str, ...], feeds: Path | None, library: Path | None,
           as_json: bool, **options: Any) -> None:  # fmt: skip
    """Differentiate MODEL and compare its gradients with finite differences; nothing is written.

    MODEL is a file, or - for standard input, binary or ONNX text. Errors are relative, along one random direction for
    each value: in float64, and as onnxruntime computes the derivative in the model's own precision. Random draws are
    held fixed. Exit code 1 where a gradient or a tangent is wrong, or none could be verified; 2 where the model cannot
    be differentiated or run.
    """
    with one_line():
        records = _records(model, wrt, of, feeds, library, **options)
    if as_json:
        click.echo(json.dumps([{**plain(r, COLUMNS), "mode": r.mode} for r in records]))
    else:
        columns = {name.removeprefix("error_"): (name, ".1e") for name in COLUMNS}
        print_records(records, ({} if options["mode"] == "vjp" else {"mode": ("mode", "")}) | columns, label_of(model))
    if not right(records):
        raise SystemExit(1)


def _records(model: str, wrt: Any, of: Any, feeds: Path | None, library: Path | None, **options: Any) -> Any:
    from rich.console import Console

    from gradgen.verification import verify as call

    source = read_model(model)
    options |= options_of(library)
    label = label_of(model)
    with Console(stderr=True).status(f"verifying {label}") as status:
        done = 0

        def progress(record: Any, count: int) -> None:
            nonlocal done
            done += 1
            status.update(f"verifying {label}: {done} of {count}, {record.mode} of {record.name} is {record.verdict}")

        try:
            return call(
                source,
                names_of(source, wrt, **options) or None,
                list(of) or None,
                feeds=feeds,
                each=progress,
                **options,
            )
        except GradientError as error:
            raise GradientError(hinted({"--wrt": wrt, "--of": of}, str(error))) from error
