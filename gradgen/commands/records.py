"""Verdicts on gradients as the commands print them: a table with what its verdicts mean, or plain values for JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

# What a verdict means, said below the table where it occurs.
MEANINGS = {
    "wrong": "wrong: the derivative differs by more than the differences are uncertain",
    "kink": "kink: there is no derivative at this point (Relu at 0, a tie of Max), so that differences cannot verify one",
    "unresolved": "unresolved: the finite differences are too uncertain here to judge; try other --inputs",
    "refused": "refused: the model has a gradient, and no jvp",
}
_NO_JSON = ("NaN", "Infinity", "-Infinity")


def plain(record: Any, numbers: Sequence[str]) -> dict[str, Any]:
    """A record for JSON, which knows no NaN and no infinity; `numbers` names its columns."""
    found = {name: float(getattr(record, name)) for name in numbers}
    known = {name: number if json.dumps(number) not in _NO_JSON else None for name, number in found.items()}
    return {"name": record.name, "shape": list(record.shape), **known, "verdict": record.verdict,
            "reason": record.reason}  # fmt: skip


def right(records: Sequence[Any]) -> bool:
    """Whether some derivative of each kind is verified, and none is wrong."""
    found = _by_kind(records)
    return all("ok" in verdicts and "wrong" not in verdicts for verdicts in found.values()) and bool(found)


def _by_kind(records: Sequence[Any]) -> dict[str, set[str]]:
    """The verdicts of the records of gradients, and of those of tangents."""
    found: dict[str, set[str]] = {}
    for record in records:
        found.setdefault(_noun(record), set()).add(record.verdict)
    return found


def _noun(record: Any) -> str:
    return "tangent" if getattr(record, "mode", "vjp") == "jvp" else "gradient"


def print_records(
    records: Sequence[Any], columns: Mapping[str, tuple[str, str]], label: str, err: bool = False
) -> None:
    """Print a table of records, what its verdicts mean, and what holds for the whole run.

    Args:
        records: with name, shape, verdict, reason and note.
        columns: by title, the attribute that the column shows and its format; NaN is a dash.
        label: what the model is called.
        err: whether it goes to standard error.
    """
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "shape", *columns, "verdict")
    for r in records:
        numbers = [(getattr(r, name), spec) for name, spec in columns.values()]
        cells = ["–" if number != number else f"{number:{spec}}" for number, spec in numbers]
        own = r.reason.removesuffix(r.note).removesuffix("; ")
        reason = f" ({own})" if own else ""
        table.add_row(r.name, "×".join(map(str, r.shape)) or "scalar", *cells, r.verdict + reason)
    stream = sys.stderr if err else sys.stdout
    Console(file=stream, width=None if stream.isatty() else 100).print(table)
    found = {r.verdict for r in records}
    for verdict, meaning in MEANINGS.items():
        if verdict in found:
            click.echo(meaning, err=err)
    for note in dict.fromkeys(r.note for r in records if r.note):
        click.echo(f"{label}: {note}", err=err)
    for noun, verdicts in _by_kind(records).items():
        if verdicts.isdisjoint(("ok", "wrong")):
            click.echo(f"no {noun} could be verified at this point", err=err)
