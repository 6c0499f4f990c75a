"""The commands that write gradients: `gradgen grad` and `gradgen vjp`, with their check."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gradgen.commands.common import (
    STREAM,
    check_output,
    checkpoint_option,
    json_option,
    library_option,
    model_argument,
    no_inline_option,
    of_option,
    one_line,
    output_option,
    portable_option,
    report,
    through_option,
    transform,
    write_model,
    wrt_option,
)
from gradgen.commands.verifying import MEANINGS
from gradgen.errors import GradientError

CHECK_HELP = (
    "When the model is written, run both models and compare with finite differences. Exit code 1 where a gradient is "
    "wrong or none could be verified, 2 where the check cannot run."
)


def _shared(fn: Any) -> Any:
    for option in (
        json_option,
        click.option("--check", is_flag=True, help=CHECK_HELP),
        click.option("--inputs", "feeds", type=click.Path(path_type=Path), help="An .npz with inputs for --check, by "
                     "name. What is missing is made up: random floats, integers 0 and 1, free dimensions of 2."),
        library_option, checkpoint_option, through_option, portable_option, no_inline_option, output_option, wrt_option,
        of_option, model_argument,
    ):  # fmt: skip
        fn = option(fn)
    return fn


@click.command()
@_shared
@click.option(
    "--reduce",
    type=click.Choice(["sum", "element"]),
    help="Differentiate the sum of outputs with several "
    "elements, or the element that an input index_<output> chooses when the model runs.",
)
@click.option("--value/--no-value", default=False, help="Keep the model's own outputs beside the gradients.")
def grad(reduce: str | None, value: bool, **request: Any) -> None:
    """Write the gradient of a scalar output of MODEL; those of several outputs are added.

    MODEL is a file, or - for standard input.
    """
    from gradgen import api

    _write(api.value_and_grad if value else api.grad, reduce=reduce, **request)


@click.command()
@_shared
@click.option(
    "--seeds",
    metavar="K",
    help="Take several cotangents at once, along a leading axis: how many, or the name of a dimension.",
)
def vjp(seeds: str | None, **request: Any) -> None:
    """Write the vector-Jacobian product of MODEL: cotangents `grad_<output>` in, `grad_<name>` out.

    MODEL is a file, or - for standard input.
    """
    from gradgen import api

    if seeds is not None and request["check"]:
        raise click.UsageError("--check takes one cotangent: check the model without --seeds")
    _write(api.vjp, seeds=int(seeds) if seeds and seeds.lstrip("-").isdigit() else seeds, **request)


def _write(
    call: Callable[..., Any],
    model: str,
    output: str,
    check: bool,
    feeds: Path | None,
    as_json: bool,
    no_inline: bool,
    checkpoint: tuple[str, ...],
    **request: Any,
) -> None:
    """Differentiate, write, and check if asked."""
    from gradgen.engine.custom import runnable
    from gradgen.engine.registry import Registry, registered
    from gradgen.feeds import make_feeds

    with one_line():
        check_output(output, model)
        if feeds is not None and not check:
            raise GradientError("--inputs is what --check runs on: add --check")
        request |= {"inline": not no_inline, "checkpoint": list(checkpoint) or None}
        source, result = transform(call, model, output=output, quiet=True, **request)
        primal, point = make_feeds(source, feeds) if check else (None, {})
        if primal is not None:
            library = request.get("library")
            primal = runnable(primal, registered() if library is None else Registry.load(library))
        write_model(result, output)
        if not (as_json and check):
            report(result, output, as_json)
    if check:
        with one_line():
            right = _check(primal, result, output, point, as_json)
        if not right:
            raise SystemExit(1)


def _check(primal: Any, result: Any, output: str, point: Any, as_json: bool) -> bool:
    """Compare what was written with finite differences and print it; whether some value is right, none wrong."""
    import onnx
    from rich.console import Console

    from gradgen.differences import check_gradients
    from gradgen.feeds import line_of

    streamed = output == STREAM
    with Console(stderr=True).status("comparing with finite differences"):
        try:
            gradient = result if streamed else onnx.load(output)
            indices, seeds = _seeds(primal, gradient, point)
            records = check_gradients(primal, gradient, {**point, **indices}, seeds)
        except Exception as error:  # the engines that run a model raise many kinds, with no common base
            where = "the model" if streamed else f"'{output}'"
            raise GradientError(f"{where} is written, but the check could not run: {line_of(error)}") from error
    found = [r.verdict for r in records]
    if as_json:
        report(result, output, True, check=[_plain(r) for r in records])
    else:
        _print(records, streamed)
        for meaning in [text for verdict, text in MEANINGS.items() if verdict in found]:
            click.echo(meaning, err=streamed)
    if not as_json and "ok" not in found and "wrong" not in found:
        click.echo("no gradient could be verified at this point", err=streamed)
    return "ok" in found and "wrong" not in found


def _plain(record: Any) -> dict[str, Any]:
    """A record of the check, for JSON."""
    numbers = {"norm": float(record.norm), "error": float(record.error)}
    known = {k: v if json.dumps(v) not in ("NaN", "Infinity", "-Infinity") else None for k, v in numbers.items()}
    return {"name": record.name, "shape": list(record.shape), **known, "verdict": record.verdict,
            "reason": record.reason}  # fmt: skip


def _print(records: Any, streamed: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "shape", "norm", "error", "verdict")
    for r in records:
        table.add_row(r.name, "×".join(map(str, r.shape)) or "scalar", f"{r.norm:.4g}", f"{r.error:.1e}",
                      r.verdict + (f" ({r.reason})" if r.reason else ""))  # fmt: skip
    stream = sys.stderr if streamed else sys.stdout
    Console(file=stream, width=None if stream.isatty() else 100).print(table)


def _seeds(primal: Any, gradient: Any, point: Any) -> tuple[Any, Any]:
    """The indices with which a gradient model takes the first element of an output, and the cotangents that it seeds
    itself: ones, or a one at that element; None where it takes cotangents."""
    import numpy as np

    from gradgen.evaluate import Evaluator
    from gradgen.request import SEEDED, roles_of, value_names

    known = value_names(primal)
    added = [i.name for i in gradient.graph.input if i.name not in known]
    roles = {n: r for n, r in roles_of(gradient).items() if n in added or r["role"] == SEEDED}
    if any(roles[n]["role"] == "cotangent" for n in added if n in roles):
        return {}, None
    seeded = [n for n, r in roles.items() if r["role"] == SEEDED]
    chosen = {n: r["source"] for n, r in roles.items() if r["role"] == "index"}
    if not seeded and not chosen:
        return {}, None
    outputs = Evaluator(primal)(point)
    cotangents = {n: np.ones_like(outputs[n]) for n in seeded}
    for name in chosen.values():
        cotangents[name] = np.zeros_like(outputs[name])
        cotangents[name].flat[:1] = 1
    return {name: np.zeros(outputs[source].ndim, np.int64) for name, source in chosen.items()}, cotangents
