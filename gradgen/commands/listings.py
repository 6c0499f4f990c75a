"""The commands that list what is there, and the generator's."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import click

from gradgen.commands.common import json_option, library_option, model_argument, one_line, options_of, read_model


@click.command(short_help="List the trainable initializers.")
@library_option
@json_option
@model_argument
def parameters(model: str, library: Path | None, as_json: bool) -> None:
    """List the trainable initializers of MODEL, one a line.

    MODEL is a file, or - for standard input.
    """
    from gradgen import api

    with one_line():
        names = api.parameters(read_model(model), **options_of(library))
        click.echo(json.dumps(names) if as_json else "\n".join(names), nl=bool(names) or as_json)


@click.command(short_help="Print which ops have a rule.")
@json_option
@click.argument("ops", nargs=-1)
def coverage(ops: tuple[str, ...], as_json: bool) -> None:
    """Print which ops have a rule, a zero derivative or none; OPS narrows it.

    OPS are op types, or domain::op for one domain alone. An input is differentiated by a rule or through a body in
    standard ops, has a derivative that is known to be zero, none (with the reason), or is never a float.
    """
    from rich.console import Console
    from rich.table import Table

    from gradgen.coverage import coverage_rows

    columns = ("op", "from", "rule", "inputs")
    with one_line():
        rows = coverage_rows(ops)
    if as_json:
        click.echo(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]))
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@click.command(
    short_help="Write a library from rules and tables.",
    context_settings={"ignore_unknown_options": True},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def generate(arguments: tuple[str, ...]) -> None:
    """Write a registry, a function library, tests and a coverage table from rules and tables."""
    # Imported when it is asked for: it needs jinja2, the other commands do not.
    try:
        command: Any = importlib.import_module("gradgen.generator.main").command
    except ModuleNotFoundError as error:
        missing = f'`gradgen generate` needs {error.name}: run `pip install -e ".[generate]"` in a clone of gradgen'
        raise click.ClickException(missing) from None
    command.main(list(arguments), prog_name="gradgen generate")
