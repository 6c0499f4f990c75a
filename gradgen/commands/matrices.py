"""The commands that write matrices of derivatives: `gradgen jacobian` and `gradgen hessian`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from gradgen.commands.common import (
    json_option,
    library_option,
    model_argument,
    no_inline_option,
    of_option,
    one_line,
    output_option,
    through_option,
    transform,
    wrt_option,
)


def _shared(fn: Any) -> Any:
    for option in (
        json_option, library_option, through_option, no_inline_option, output_option, wrt_option, of_option,
        model_argument,
    ):  # fmt: skip
        fn = option(fn)
    return fn


@click.command()
@_shared
@click.option("--per-sample", is_flag=True, help="The first axis is that of a batch's samples: the Jacobian of each.")
@click.option(
    "--mode",
    type=click.Choice(["forward", "reverse"]),
    help="One step for each element of --wrt, or of --of. Default: what takes fewer steps.",
)
def jacobian(per_sample: bool, mode: str | None, **request: Any) -> None:
    """Write the Jacobians `jacobian_<output>_<name>` of MODEL.

    MODEL is a file, or - for standard input.
    """
    from gradgen.transforms import matrices

    _write(matrices.jacobian, per_sample=per_sample, mode=mode, **request)


@click.command()
@_shared
@click.option(
    "--reduce",
    type=click.Choice(["sum", "element"]),
    help="Of outputs with several elements take the sum, or the element that an input index_<output> chooses.",
)
def hessian(reduce: str | None, **request: Any) -> None:
    """Write the Hessian `hessian_<name>_<name>` of a scalar output of MODEL; those of several outputs are added.

    MODEL is a file, or - for standard input.
    """
    from gradgen.transforms import matrices

    _write(matrices.hessian, reduce=reduce, **request)


def _write(call: Callable[..., Any], model: str, output: str, as_json: bool, no_inline: bool, **request: Any) -> None:
    with one_line():
        transform(call, model, output=output, as_json=as_json, inline=not no_inline, **request)
