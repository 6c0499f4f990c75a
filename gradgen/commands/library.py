"""The command that writes the function library: `gradgen library`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from gradgen.commands.common import (
    STREAM,
    check_output,
    counted,
    json_option,
    library_option,
    one_line,
    options_of,
    write_model,
)
from gradgen.errors import GradientError


@click.command(short_help="Write the rules as functions.")
@click.option("-o", "--output", help="The file to write; - is standard output, and then notes go to standard error.")
@click.option("--opset", type=int, default=21, show_default=True, help="The opset that each function imports.")
@click.option("--op", "ops", multiple=True, help="An op to write, Mul or domain::Op; may be given more than once. "
              "Default: all that have a compiled rule.")  # fmt: skip
@click.option(
    "--list", "listed", is_flag=True, help="Print which ops have a function in the library, and why others do not."
)
@library_option
@json_option
def library(
    output: str | None, opset: int, ops: tuple[str, ...], listed: bool, library: Path | None, as_json: bool
) -> None:
    """Write the compiled rules as functions of one model, for runtimes that link them by themselves.

    Each function is complete by itself: copy it into a model, and call it. --list and --json say which ops are in it.
    """
    from gradgen.function_library import written

    with one_line():
        if output is None and not (listed or as_json):
            raise GradientError("give -o a file to write, or --list to see what would be in it")
        if output is not None:
            check_output(output, STREAM)
        # A list says why an op is left out; a file that was asked for must hold all that it is asked to.
        model, entries = written(opset, ops or None, **options_of(library), strict=output is not None)
        if output is not None:
            write_model(model, output)
    ruled = [e for e in entries if not e.reason]
    streamed = output == STREAM
    if as_json:
        included = [{"op": e.op, "since": e.since, "functions": list(e.functions)} for e in ruled]
        left = [{"op": e.op, "since": e.since, "functions": list(e.functions), "reason": e.reason}
                for e in entries if e.reason]  # fmt: skip
        said = {
            "output": output,
            "opset": opset,
            "functions": len(model.functions),
            "included": included,
            "left_out": left,
        }
        click.echo(json.dumps(said), err=streamed)
        return
    if output is not None:
        label = "standard output" if streamed else output
        click.echo(
            f"{label}: {counted(len(model.functions), 'function')} for {counted(len(ruled), 'op')}", err=streamed
        )
    if listed:
        _print(entries, streamed)


def _print(entries: list, streamed: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("op", "from", "functions", "left out because")
    for entry in entries:
        table.add_row(entry.op, str(entry.since), ", ".join(entry.functions) or "–", entry.reason)
    Console(stderr=streamed, width=None if sys.stdout.isatty() else 140).print(table)
