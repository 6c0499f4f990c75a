"""The command line: a group whose commands are loaded from gradgen.commands when they are asked for."""

from __future__ import annotations

import importlib
import os
import sys

import click

# Where each command lives; its module imports nothing but click, so that help needs nothing that a command needs.
COMMANDS = {
    "grad": "gradgen.commands.derivatives",
    "vjp": "gradgen.commands.derivatives",
    "jvp": "gradgen.commands.transforms",
    "hvp": "gradgen.commands.transforms",
    "jacobian": "gradgen.commands.transforms",
    "hessian": "gradgen.commands.transforms",
    "verify": "gradgen.commands.verifying",
    "pair": "gradgen.commands.pair",
    "lower": "gradgen.commands.lowering",
    "parameters": "gradgen.commands.listings",
    "coverage": "gradgen.commands.listings",
    "generate": "gradgen.commands.listings",
    "library": "gradgen.commands.library",
}


class Commands(click.Group):
    """A group that imports a command's module when the command is named or the help lists it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with a name, or None."""
        home = COMMANDS.get(cmd_name)
        return None if home is None else getattr(importlib.import_module(home), cmd_name)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="onnx-gradgen", prog_name="gradgen")
def cli() -> None:
    """Derivatives of ONNX models, as ONNX models in standard operators."""


def main() -> None:
    """Run the command line; where standard output cannot be written, say it in one line, with exit code 2."""
    code: str | int | None = 0
    failure: OSError | None = None
    try:
        cli()
    except SystemExit as done:
        code = done.code
    except OSError as error:
        failure = error
    unwritten = _flush()
    if failure is not None or (unwritten is not None and code != 2):  # with code 2 it is said already
        reason = failure or unwritten
        click.echo(f"gradgen: cannot write the output: {reason and reason.strerror}", err=True)
        code = 2
    sys.exit(code)


def _flush() -> OSError | None:
    """Write what standard output still holds; where that fails, drop it, so that the interpreter's exit is silent."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None
