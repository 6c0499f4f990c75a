"""The commands `gradgen jvp` and `gradgen hvp`: directional derivatives and Hessian-vector products."""

from __future__ import annotations

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
def jvp(no_inline: bool, **request: Any) -> None:
    """Write the Jacobian-vector product of MODEL: directions `tangent_<name>` in, `tangent_<output>` out.

    MODEL is a file, or - for standard input.
    """
    from gradgen.transforms import forward_mode

    with one_line():
        transform(forward_mode.jvp, inline=not no_inline, **request)


@click.command()
@_shared
@click.option(
    "--reduce",
    type=click.Choice(["sum", "element"]),
    help="Of outputs with several elements take the sum, or the element that an input index_<output> chooses.",
)
def hvp(no_inline: bool, reduce: str | None, **request: Any) -> None:
    """Write the product of the Hessian of a scalar output of MODEL and a vector: `vector_<name>` in, `hvp_<name>` out.

    MODEL is a file, or - for standard input.
    """
    from gradgen.transforms import forward_mode

    with one_line():
        transform(forward_mode.hvp, inline=not no_inline, reduce=reduce, **request)
