"""The command `gradgen lower`: Gradient nodes in standard operators."""

from __future__ import annotations

from pathlib import Path

import click

from gradgen.commands.common import (
    check_output,
    counted,
    json_option,
    library_option,
    model_argument,
    one_line,
    options_of,
    output_option,
    portable_option,
    read_model,
    report,
    write_model,
)


@click.command(short_help="Replace Gradient nodes by standard ones.")
@portable_option
@library_option
@output_option
@json_option
@model_argument
def lower(model: str, output: str, portable: bool, library: Path | None, as_json: bool) -> None:
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
        result = lower_gradient_ops(source, portable=portable, **options_of(library))
        write_model(result, output)
        report(result, output, as_json, lowered=count)
        if not as_json:
            none = "it has no Gradient node: the model is written as it is"
            click.echo(f"{counted(count, 'Gradient node')} lowered" if count else none, err=True)
