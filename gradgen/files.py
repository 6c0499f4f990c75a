"""Writes models: atomically, with external data that stays reachable."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from gradgen.arguments import is_path
from gradgen.engine.external import BASE_KEY, all_external, base_of, location, settle_external
from gradgen.errors import GradientError


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model.

    Args:
        model: an onnx.ModelProto or an onnx_ir.Model, such as gradgen returns. It is not changed.
        path: where to write. Nothing is left half-written: the file appears when it is whole. Weights that refer to an
            external file are referred to where that file lies in or below the folder of `path`; otherwise they are
            written to `<name>.data` beside it.

    Raises:
        GradientError: if the path cannot be written or the external data cannot be read.
    """
    if not isinstance(model, onnx.ModelProto | ir.Model):
        swapped = "; save takes the model first, then the path" if isinstance(path, onnx.ModelProto | ir.Model) else ""
        raise GradientError(f"a model is an onnx.ModelProto or an onnx_ir.Model, not {type(model).__name__}{swapped}")
    if not is_path(path):
        raise GradientError(f"the path to write to is a str or a Path, not {type(path).__name__}")
    target = Path(path)
    check_target(target)
    proto, base = base_of(model)
    onnx.helper.set_model_props(proto, {p.key: p.value for p in proto.metadata_props if p.key != BASE_KEY})
    if not settle_external(proto, base, "the model"):
        _replace(target, lambda scratch: onnx.save(proto, scratch))
        return
    folder = target.parent.resolve()
    external = all_external(proto)
    files = [(base / location(tensor)).resolve() for tensor in external]
    if all(file.is_relative_to(folder) for file in files):
        for tensor, file in zip(external, files, strict=True):
            entry = next(e for e in tensor.external_data if e.key == "location")
            entry.value = file.relative_to(folder).as_posix()
        _replace(target, lambda scratch: onnx.save(proto, scratch))
        return
    copied = ir.from_proto(proto)
    for value in copied.graph.initializers.values():
        if isinstance(value.const_value, ir.ExternalTensor):
            value.const_value.base_dir = base.resolve()
    _replace(target, lambda scratch: ir.save(copied, scratch, external_data=f"{target.name}.data"))


def check_target(target: Path) -> None:
    """Refuse a path at which no file can be written; raises GradientError."""
    if not target.parent.is_dir():
        raise GradientError(f"cannot write '{target}': there is no folder '{target.parent}'")
    if target.is_dir():
        raise GradientError(f"cannot write '{target}': it is a folder")


def _replace(target: Path, write: Callable[[Path], Any]) -> None:
    """Write into a scratch folder beside the target, then rename: what belongs to the model first, the model last."""
    scratch = None
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        write(scratch / target.name)
        for file in sorted(scratch.iterdir(), key=lambda f: f.name == target.name):
            os.replace(file, target.parent / file.name)
    except OSError as error:
        raise GradientError(f"cannot write '{target}': {error.strerror or error}") from error
    finally:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
