"""Inputs for checks: read from an .npz, or made to fit a model."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx.checker
import onnx.helper

from gradgen.arguments import is_path, named_arrays
from gradgen.errors import GradientError

FREE_SIZE = 2
MADE_LIMIT = 2**30  # bytes: more than this is not made up
MAX_RANK = 64  # numpy's
OR_FILE = ", or the path of an .npz"
Stored = Mapping[str, np.ndarray] | str | os.PathLike[str] | None


def make_feeds(
    source: Path | onnx.ModelProto, stored: Stored = None, seed: int = 0
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model with its weights, and a content for each of its inputs.

    Args:
        source: the model, or its file.
        stored: arrays by input name, or the path of an .npz that holds them; what it lacks is made up: floats from a normal
            distribution, integers 0 and 1 in turn, True, free dimensions of size 2. An input with a stored content keeps
            that where it is not given, and loses it where it is.
        seed: of what is made up.

    Raises:
        GradientError: if the weights or the .npz cannot be read, an array fits no input, or an input cannot be made up
            (it is no tensor, has no rank, or is huge).
    """
    try:
        model = source if isinstance(source, onnx.ModelProto) else onnx.load(source)
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise GradientError(f"cannot read the weights of '{source}': {line_of(error)}") from error
    given = _given(stored)
    label = f"'{stored}' holds" if is_path(stored) else "the feeds hold"
    initializers = {t.name for t in model.graph.initializer}
    rng = np.random.default_rng(seed)
    feeds: dict[str, np.ndarray] = {}
    sizes: dict[str, int] = {}
    declared = [i for i in model.graph.input if i.name not in initializers or i.name in given]
    if strangers := sorted(set(given) - {i.name for i in declared}):
        names = ", ".join(i.name for i in declared)
        raise GradientError(f"{label} {', '.join(strangers)}; the model's inputs are {names}")
    for info in declared:
        if info.name in given:
            _match(info, given[info.name], sizes)
    for info in declared:
        if info.name not in given:
            feeds[info.name] = _made(info, sizes, rng)
            continue
        dtype, array = _dtype(info), given[info.name]
        if not np.can_cast(array.dtype, dtype, "same_kind"):
            raise GradientError(f"input '{info.name}' is of {dtype}, and the stored array of {array.dtype}")
        feeds[info.name] = np.asarray(array, dtype)
    defaults = initializers & set(feeds)
    return (_without_defaults(model, defaults) if defaults else model), feeds


def _without_defaults(model: onnx.ModelProto, names: set[str]) -> onnx.ModelProto:
    """A copy of a model in which these inputs have no stored content."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [t for t in model.graph.initializer if t.name not in names]
    del copy.graph.initializer[:]
    copy.graph.initializer.extend(kept)
    return copy


def _dtype(info: onnx.ValueInfoProto) -> np.dtype:
    kind = info.type.tensor_type.elem_type
    try:
        return onnx.helper.tensor_dtype_to_np_dtype(kind)
    except KeyError:
        raise GradientError(f"input '{info.name}' is no tensor of a known type: no content is known for it") from None


def _made(info: onnx.ValueInfoProto, sizes: dict[str, int], rng: np.random.Generator) -> np.ndarray:
    """A content for an input; `sizes` are those of the named dimensions."""
    dtype = _dtype(info)
    if not info.type.tensor_type.HasField("shape"):
        raise GradientError(f"input '{info.name}' has no rank, so that its content cannot be made up: give it")
    shape = tuple(
        d.dim_value
        if d.HasField("dim_value") and d.dim_value >= 0  # exporters write an unknown size as -1
        else sizes.setdefault(d.dim_param or info.name, FREE_SIZE)
        for d in info.type.tensor_type.shape.dim
    )
    if len(shape) > MAX_RANK or math.prod(shape) * max(dtype.itemsize, 1) > MADE_LIMIT:
        size = f"rank {len(shape)}" if len(shape) > MAX_RANK else f"shape {list(shape)}"
        raise GradientError(f"input '{info.name}' of {size} is too large to be made up: give it")
    if dtype.kind == "f" or dtype.name == "bfloat16":
        return rng.standard_normal(shape).astype(dtype)
    if dtype == np.bool_:
        return np.ones(shape, dtype)
    return (np.arange(math.prod(shape)) % 2).reshape(shape).astype(dtype)


def _given(stored: Stored) -> dict[str, np.ndarray]:
    if is_path(stored):
        return _read(Path(stored))  # type: ignore[arg-type]
    return {name: np.asarray(array) for name, array in named_arrays("feeds", stored, or_else=OR_FILE).items()}


def _read(stored: Path) -> dict[str, np.ndarray]:
    if not stored.is_file():
        raise GradientError(f"cannot read inputs from '{stored}': there is no such file")
    if not zipfile.is_zipfile(stored):
        raise GradientError(f"cannot read inputs from '{stored}': it is no .npz file, or a broken one")
    try:
        with np.load(stored, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise GradientError(f"cannot read inputs from '{stored}': {line_of(error)}") from error


def line_of(error: Exception, length: int = 400) -> str:
    """An error's message on one line; of a long one the beginning and, where runtimes say what is wrong, the end."""
    message = " ".join(str(error).split())
    return message if len(message) <= length else f"{message[: length // 4]} … {message[-3 * length // 4 :]}"


def _match(info: onnx.ValueInfoProto, array: np.ndarray, sizes: dict[str, int]) -> None:
    """Learn the sizes of named dimensions; refuse an array of another shape."""
    if not info.type.tensor_type.HasField("shape"):
        return
    dims = info.type.tensor_type.shape.dim
    fixed = [d.dim_value if d.HasField("dim_value") else None for d in dims]
    if len(dims) != array.ndim or any(f is not None and f != s for f, s in zip(fixed, array.shape, strict=True)):
        wanted = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in dims]
        raise GradientError(f"input '{info.name}' has shape {wanted}, and the stored array {list(array.shape)}")
    for d, size in zip(dims, array.shape, strict=True):
        if d.dim_param and sizes.setdefault(d.dim_param, size) != size:
            raise GradientError(f"dimension '{d.dim_param}' is {sizes[d.dim_param]} and {size} in the stored arrays")
