"""The command `gradgen lower`: Gradient nodes in standard operators."""

from __future__ import annotations

import click

from gradgen.commands.common import (
    check_output,
    counted,
    json_option,
    model_argument,
    one_line,
    output_option,
    read_model,
    report,
    write_model,
)


@click.command()
@json_option
@output_option
@model_argument
def lower(model: str, output: str, as_json: bool) -> None:
    """Replace the Gradient nodes (ai.onnx.preview.training) of MODEL by standard operators, so that it runs anywhere.

    MODEL is a file, or - for standard input.
    """
    with one_line():
        from gradgen.engine.reading import read
        from gradgen.transforms.gradient_ops import count_gradients
        from gradgen.transforms.lowering import lower_gradient_ops

        source = read_model(model)
        check_output(output, model)
        count = count_gradients(read(source)[0])
        result = lower_gradient_ops(source)
        write_model(result, output)
        report(result, output, as_json, lowered=count)
        if not as_json:
            click.echo(f"{counted(count, 'Gradient node')} lowered", err=True)
