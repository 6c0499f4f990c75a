"""The commands that write derivatives beyond the gradient: `gradgen jvp`, `hvp`, `jacobian` and `hessian`."""

from __future__ import annotations

from typing import Any

import click

from gradgen.commands.common import no_inline_option, one_line, reduce_option, transform, transform_options


@click.command(short_help="Write the Jacobian-vector product.")
@transform_options()
def jvp(**request: Any) -> None:
    """Write the Jacobian-vector product of MODEL: directions `tangent_<name>` in, `tangent_<output>` out.

    MODEL is a file, or - for standard input, binary or ONNX text.
    """
    from gradgen.transforms import forward_mode

    _write(forward_mode.jvp, **request)


@click.command(short_help="Write the Hessian-vector product.")
@transform_options(reduce_option)
def hvp(**request: Any) -> None:
    """Write the product of the Hessian of a scalar output of MODEL and a vector: `vector_<name>` in, `hvp_<name>` out.

    MODEL is a file, or - for standard input, binary or ONNX text.
    """
    from gradgen.transforms import forward_mode

    _write(forward_mode.hvp, **request)


@click.command(short_help="Write Jacobians.")
@transform_options(
    click.option(
        "--per-sample", is_flag=True, help="The first axis is that of a batch's samples: the Jacobian of each."
    ),
    click.option(
        "--mode",
        type=click.Choice(["forward", "reverse"]),
        help="One step for each element of --wrt, or of --of. Default: what takes fewer steps.",
    ),
    no_inline_option,
)
def jacobian(**request: Any) -> None:
    """Write the Jacobians `jacobian_<output>_<name>` of MODEL.

    MODEL is a file, or - for standard input, binary or ONNX text.
    """
    from gradgen.transforms import matrices

    _write(matrices.jacobian, **request)


@click.command(short_help="Write the Hessian of a scalar output.")
@transform_options(reduce_option, no_inline_option)
def hessian(**request: Any) -> None:
    """Write the Hessian `hessian_<name>_<other>` of a scalar output of MODEL; those of several outputs are added.

    MODEL is a file, or - for standard input, binary or ONNX text.
    """
    from gradgen.transforms import matrices

    _write(matrices.hessian, **request)


def _write(call: Any, no_inline: bool = False, **request: Any) -> None:
    if no_inline:
        request["inline"] = False
    with one_line():
        transform(call, **request)
