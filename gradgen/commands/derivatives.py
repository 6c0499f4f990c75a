"""The commands that write gradients: `gradgen grad` and `gradgen vjp`, with their check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gradgen.commands.common import (
    STREAM,
    check_output,
    checkpoint_option,
    inputs_option,
    label_of,
    no_inline_option,
    one_line,
    options_of,
    reduce_option,
    report,
    seeds_of,
    seeds_option,
    transform,
    transform_options,
    write_model,
)
from gradgen.commands.records import plain, print_records, right
from gradgen.errors import GradientError

CHECK_HELP = (
    "When the model is written, run both models and compare with finite differences. Exit code 1 where a gradient is "
    "wrong or none could be verified, 2 where the check cannot run."
)


SHARED = (checkpoint_option, click.option("--check", is_flag=True, help=CHECK_HELP), inputs_option, no_inline_option)


@click.command(short_help="Write the gradient of a scalar output.")
@transform_options(
    reduce_option,
    click.option("--value/--no-value", default=False, help="Keep the model's own outputs beside the gradients."),
    *SHARED,
)
def grad(reduce: str | None, value: bool, **request: Any) -> None:
    """Write the gradient of a scalar output of MODEL; those of several outputs are added.

    MODEL is a file, or - for standard input, binary or ONNX text.
    """
    from gradgen import api

    _write(api.value_and_grad if value else api.grad, reduce=reduce, **request)


@click.command(short_help="Write the vector-Jacobian product.")
@transform_options(
    seeds_option,
    *SHARED,
)
def vjp(seeds: str | None, **request: Any) -> None:
    """Write the vector-Jacobian product of MODEL: cotangents `grad_<output>` in, `grad_<name>` out.

    MODEL is a file, or - for standard input, binary or ONNX text.
    """
    from gradgen import api

    if seeds is not None and request["check"]:
        raise click.UsageError("--check takes one cotangent: check the model without --seeds")
    _write(api.vjp, seeds=seeds_of(seeds), **request)


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
    from gradgen.engine.registry import registry_of
    from gradgen.feeds import make_feeds

    with one_line():
        check_output(output, model)
        if feeds is not None and not check:
            raise GradientError("--inputs is what --check runs on: add --check")
        request |= {"inline": not no_inline, "checkpoint": list(checkpoint) or None}
        source, result = transform(call, model, output=output, quiet=True, **request)
        registry = options_of(request["library"]).get("registry")
        primal, point = make_feeds(source, feeds) if check else (None, {})
        if primal is not None:
            primal = runnable(primal, registry_of(registry))
        write_model(result, output)
        if not (as_json and check):
            report(result, output, as_json)
    if check:
        with one_line():
            verified = _check(primal, result, output, point, as_json, registry)
        if not verified:
            raise SystemExit(1)


def _check(primal: Any, result: Any, output: str, point: Any, as_json: bool, registry: Any) -> bool:
    """Compare what was written with finite differences and print it; whether some value is right, none wrong."""
    import onnx
    from rich.console import Console

    from gradgen.differences import check_gradients
    from gradgen.feeds import line_of
    from gradgen.limits import refuse_costly

    streamed = output == STREAM
    with Console(stderr=True).status("comparing with finite differences"):
        try:
            gradient = result if streamed else onnx.load(output)
            refuse_costly(primal, gradient, point)
            indices, seeds = _seeds(primal, gradient, point)
            records = check_gradients(primal, gradient, {**point, **indices}, seeds, registry=registry)
        except Exception as error:  # the engines that run a model raise many kinds, with no common base
            where = "the model" if streamed else f"'{output}'"
            raise GradientError(f"{where} is written, but the check could not run: {line_of(error)}") from error
    if as_json:
        report(result, output, True, check=[plain(r, ("norm", "error")) for r in records])
    else:
        columns = {"norm": ("norm", ".4g"), "error": ("error", ".1e")}
        print_records(records, columns, label_of(output), streamed)
    return right(records)


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
