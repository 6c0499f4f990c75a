"""The command that writes a vector-Jacobian product as two models: `gradgen pair`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from gradgen.commands.common import (
    STREAM,
    check_output,
    checkpoint_option,
    described,
    json_option,
    library_option,
    model_argument,
    of_option,
    one_line,
    portable_option,
    report,
    seeds_of,
    seeds_option,
    through_option,
    transform,
    write_model,
    wrt_option,
)
from gradgen.errors import GradientError


@click.command(short_help="Write a forward and a backward model.")
@of_option
@wrt_option
@click.option("--closed", is_flag=True, help="Let the backward model read residuals and cotangents alone, and none of the "
              "model's own inputs and outputs.")  # fmt: skip
@seeds_option
@checkpoint_option
@portable_option
@through_option
@library_option
@click.option("-o", "--output", required=True, help="The file for the forward model; - is standard output.")
@click.option("--backward", required=True, help="The file for the backward model; - is standard output.")
@json_option
@model_argument
def pair(model: str, output: str, backward: str, seeds: str | None, checkpoint: tuple[str, ...], as_json: bool,
         **request: Any) -> None:  # fmt: skip
    """Write the vector-Jacobian product of MODEL as two models: forward now, backward later.

    The forward model gives `residual_<i>` beside the outputs; the backward model takes these and the cotangents
    `grad_<output>`, and gives `grad_<name>`. MODEL is a file, or - for standard input, binary or ONNX text.
    """
    from gradgen.transforms.pair import vjp_pair

    targets = (output, backward)
    streamed = STREAM in targets
    with one_line():
        if output == backward or (not streamed and Path(output).resolve() == Path(backward).resolve()):
            raise GradientError(f"-o and --backward are both '{output}': give each model a file of its own")
        check_output(backward, model)
        request |= {"seeds": seeds_of(seeds), "checkpoint": list(checkpoint) or None}
        _, halves = transform(vjp_pair, model, output=output, quiet=True, **request)
        for half, target in zip(halves, targets, strict=True):
            write_model(half, target)
        if as_json:
            said = [described(half, target) for half, target in zip(halves, targets, strict=True)]
            click.echo(json.dumps(dict(zip(("forward", "backward"), said, strict=True))), err=streamed)
            return
        for half, target in zip(halves, targets, strict=True):
            report(half, target, False, err=streamed)
