"""What the commands share: options, reading and writing models, and errors in one line."""

from __future__ import annotations

import difflib
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from gradgen.errors import GradientError, GradientWarning
from gradgen.wording import worded

KEYWORDS = ("inputs", "initializers")  # what --wrt takes beside names and globs
# What messages advise, in the words of the command line.
WORDS = {
    "sum": "--reduce sum",
    "element": ", or --reduce element for that of an element which an input chooses",
    "stored": "pass --wrt initializers",
    "initializers": "did you mean the keyword --wrt initializers?",
    "inputs": "did you mean the keyword --wrt inputs?",
}
STREAM = "-"  # standard input or output in place of a file

model_argument = click.argument("model", type=str)
output_option = click.option(
    "-o",
    "--output",
    required=True,
    help="The file to write; - is standard output, and then notes go to standard error.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for a program to read.")
wrt_option = click.option(
    "--wrt", multiple=True, help="What to differentiate with respect to: a name, a glob, `inputs` or `initializers`; may "
    "be given more than once. Default: the float inputs."
)  # fmt: skip
of_option = click.option(
    "--of", "of", multiple=True, help="What is differentiated: an output or an intermediate value; may be given more "
    "than once. Default: every float output."
)  # fmt: skip
library_option = click.option(
    "--library", type=click.Path(path_type=Path), help="A folder that `gradgen generate --out` wrote: its rules go "
    "before gradgen's own. Modules of traced rules must be on the Python path."
)  # fmt: skip
checkpoint_option = click.option(
    "--checkpoint", multiple=True, help="A value that is kept for the backward pass: what lies between them is computed "
    "anew there. May be given more than once. `auto`, which goes without names, chooses."
)  # fmt: skip
seeds_option = click.option(
    "--seeds",
    metavar="K",
    help="Take several cotangents at once, along a leading axis: how many, or the name of a dimension.",
)
through_option = click.option("--straight-through", is_flag=True, help="Pass gradients through quantisation.")
portable_option = click.option(
    "--portable",
    is_flag=True,
    help="Emit forms that engines beside onnxruntime have too, where they lack the usual ones.",
)
no_inline_option = click.option("--no-inline", is_flag=True, help="Keep calls into the function library, for reading.")
reduce_option = click.option(
    "--reduce",
    type=click.Choice(["sum", "element"]),
    help="Of outputs with several elements take the sum, or the element that an input index_<output> chooses when the "
    "model runs.",
)
inputs_option = click.option(
    "--inputs",
    "feeds",
    type=click.Path(path_type=Path),
    help="An .npz with inputs by name, for the check. What is missing is made up: random floats, integers 0 and 1, free "
    "dimensions of 2.",
)


def transform_options(*more: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Decorator: the argument and the options of every command that writes a transform of a model; `more` are its own.

    Help lists what is asked for first, then how it is written, what is particular to the command, and `--json`.
    """
    options = (
        of_option, wrt_option, *more, portable_option, through_option, library_option, output_option,
        json_option, model_argument,
    )  # fmt: skip

    def decorate(fn: Any) -> Any:
        for option in reversed(options):
            fn = option(fn)
        return fn

    return decorate


class one_line:  # noqa: N801  (a context manager reads as a verb)
    """Turns what gradgen raises into one line on standard error and exit code 2, and warnings into lines.

    Inside, messages advise in the words of the command line.
    """

    def __enter__(self) -> None:
        self._words = worded(WORDS)
        self._words.__enter__()
        self._catch = warnings.catch_warnings(record=True)
        self._caught = self._catch.__enter__()
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", GradientWarning)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._catch.__exit__(None, None, None)
        self._words.__exit__(None, None, None)
        for warning in self._caught or ():
            click.echo(f"gradgen: note: {warning.message}", err=True)
        if isinstance(error, GradientError | OSError):
            click.echo(f"gradgen: {error}", err=True)
            raise SystemExit(2) from None


def seeds_of(asked: str | None) -> int | str | None:
    """The argument `seeds` of a call: a number, or the name of a dimension."""
    try:
        return None if asked is None else int(asked)
    except ValueError:  # a name, or what is neither: the call says so
        return asked


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it is not one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def read_model(model: str) -> Any:
    """What a command was given as its model: the path of a file, or for `-` the ModelProto on standard input.

    Standard input has no name that would tell its form: it is binary, or ONNX text, which begins with `<` or a
    comment, as no binary model does.

    Raises:
        GradientError: for a folder, and for an input that is no model.
    """
    if not model:
        raise GradientError("the name of the model is empty: give a model file, or - for standard input")
    if model != STREAM:
        if Path(model).is_dir():
            raise GradientError(f"'{model}' is a folder: give a model file")
        return Path(model)
    import onnx
    import onnx.parser
    from google.protobuf.message import DecodeError

    from gradgen.engine.reading import in_words

    content = sys.stdin.buffer.read()
    try:
        if content.lstrip().startswith((b"<", b"#")):
            found = onnx.parser.parse_model(content.decode())
        else:
            found = onnx.load_model_from_string(content)
    except (DecodeError, onnx.parser.ParseError, UnicodeDecodeError) as error:
        raise GradientError(f"standard input is not an ONNX model, binary or text: {in_words(error)}") from error
    if not found.HasField("graph"):
        raise GradientError("standard input is not an ONNX model: it has no graph")
    return found


def label_of(model: str) -> str:
    """What a model is called in what a command prints: its file's name."""
    return "the model" if model == STREAM else Path(model).name


def check_output(output: str, model: str) -> None:
    """Refuse an output that cannot be written, or that is the model itself; raises GradientError."""
    from gradgen.files import check_target

    if not output:
        raise GradientError("-o is empty: give the name of the file to write")
    if output == STREAM:
        return
    target = Path(output)
    check_target(target)
    if model != STREAM and target.exists() and Path(model).exists() and target.samefile(model):
        raise GradientError(f"'{target}' is the model itself: give -o another name")


def write_model(result: Any, output: str) -> None:
    """Write a ModelProto to a file, or to standard output for `-`.

    Raises:
        GradientError: the file cannot be written; weights in an external file, which a stream cannot refer to.
    """
    from gradgen.engine.external import all_external
    from gradgen.files import save

    if output != STREAM:
        save(result, Path(output))
        return
    if all_external(result):
        raise GradientError("the weights lie in an external file: write to a file with -o, not to standard output")
    sys.stdout.buffer.write(result.SerializeToString())


def report(result: Any, output: str, as_json: bool, err: bool = False, **more: Any) -> None:
    """Say what was written: a line, or JSON with the model's signature; on standard error if a model is on output."""
    if as_json:
        text = json.dumps({**described(result, output), **more})
    else:
        nodes = counted(len(result.graph.node), "node")
        text = f"{'standard output' if output == STREAM else Path(output)}: {nodes}"
    click.echo(text, err=err or output == STREAM)


def described(result: Any, output: str) -> dict[str, Any]:
    """What JSON says of a model that was written: the file, the number of nodes, and the signature."""
    graph = result.graph
    signature = {"inputs": _signature(graph.input), "outputs": _signature(graph.output)}
    return {"output": output, "nodes": len(graph.node), **signature}


def _signature(values: Any) -> list[dict[str, Any]]:
    import onnx

    found = []
    for value in values:
        kind = value.type.tensor_type
        known = value.type.HasField("tensor_type") and kind.HasField("shape")
        shape = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim]
        dtype = onnx.TensorProto.DataType.Name(kind.elem_type).lower() if value.type.HasField("tensor_type") else None
        found.append({"name": value.name, "dtype": dtype, "shape": shape if known else None})
    return found


def options_of(library: Path | None) -> dict[str, Any]:
    """The keyword argument `registry` of a call, where `--library` names rules; raises GradientError."""
    from gradgen.engine.registry import Registry

    return {} if library is None else {"registry": Registry.load(library)}


def names_of(model: Any, wrt: Sequence[str], **options: Any) -> list[str]:
    """`--wrt` with `inputs` and `initializers` spelt out, where the model has no value of that name."""
    from gradgen import api
    from gradgen.engine.reading import read

    if not set(KEYWORDS) & set(wrt):
        return list(wrt)
    graph = read(model)[0].graph
    taken = {v.name for v in [*graph.input, *graph.initializer]} | {o for n in graph.node for o in n.output}
    stored = {t.name for t in graph.initializer}
    floats = {1, 10, 11, 16}
    names: list[str] = []
    for name in wrt:
        if name == "inputs" and name not in taken:
            names += [i.name for i in graph.input if i.name not in stored and i.type.tensor_type.elem_type in floats]
        elif name == "initializers" and name not in taken:
            found = api.parameters(model, registry=options.get("registry"))
            if not found:
                label = f"'{model}'" if isinstance(model, Path) else "the model"
                raise GradientError(f"{label} has no float initializer to differentiate with respect to")
            names += found
        else:
            names.append(name)
    return names


def hinted(asked: dict[str, Sequence[str]], message: str) -> str:
    """A message with what may have been meant by names that the model lacks: keywords, and several names in one."""
    hints = []
    for option, names in asked.items():
        for name in [n for n in names if f"no value '{n}'" in message or f"nothing matches '{n}'" in message]:
            if len(parts := name.replace(",", " ").split()) > 1:
                each = " ".join(f"{option} {part}" for part in parts)
                hints.append(f"for several names repeat the option: {each}")
            elif option == "--wrt" and (near := difflib.get_close_matches(name, KEYWORDS, n=1, cutoff=0.7)):
                hints.append(f"did you mean the keyword --wrt {near[0]}?")
    return "; ".join([message, *hints])


def transform(
    call: Any,
    model: str,
    wrt: Sequence[str],
    of: Sequence[str],
    output: str,
    as_json: bool = False,
    library: Path | None = None,
    quiet: bool = False,
    **options: Any,
) -> tuple[Any, Any]:
    """Run a transform `call(model, wrt, of, **options)` and write its result; for the body of a command, in `one_line`.

    Returns:
        what was read (a path or a ModelProto), and the result.

    Raises:
        GradientError: for what cannot be read, transformed or written.
    """
    from rich.console import Console

    source = read_model(model)
    check_output(output, model)
    options |= options_of(library)
    label = label_of(model)
    with Console(stderr=True).status(f"differentiating {label}"):
        try:
            result = call(source, names_of(source, wrt, **options) or None, list(of) or None, **options)
        except GradientError as error:
            asked = {"--wrt": wrt, "--of": of, "--checkpoint": options.get("checkpoint") or ()}
            raise GradientError(hinted(asked, str(error))) from error
    if not quiet:
        write_model(result, output)
        report(result, output, as_json)
    return source, result
