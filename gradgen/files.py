"""Writes models: atomically, with external data that stays reachable."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from gradgen.engine.prepare import BASE_KEY
from gradgen.errors import GradientError


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model.

    Args:
        model: an onnx.ModelProto or an onnx_ir.Model, such as gradgen returns.
        path: where to write. Nothing is left half-written: the file appears when it is whole. Weights that refer to an
            external file are referred to where that file lies in or below the folder of `path`; otherwise they are
            written to `<name>.data` beside it.

    Raises:
        GradientError: if the path cannot be written or the external data cannot be read.
    """
    target = Path(path)
    check_target(target)
    if isinstance(model, onnx.ModelProto):
        base = next((p.value for p in model.metadata_props if p.key == BASE_KEY), None)
        if base is None:
            _replace(target, lambda scratch: onnx.save(model, scratch))
            return
        model = ir.from_proto(model)
    else:
        base = model.metadata_props.get(BASE_KEY)
    external = [
        v.const_value for v in model.graph.initializers.values() if isinstance(v.const_value, ir.ExternalTensor)
    ]
    for tensor in external:
        if base is not None:
            tensor.base_dir = base
        if not Path(tensor.path).is_file():
            raise GradientError(f"external data '{tensor.path}' is not there")
        end = (tensor.offset or 0) + (tensor.length or 0)
        if Path(tensor.path).stat().st_size < end:
            raise GradientError(f"external data '{tensor.path}' is too short: '{tensor.name}' ends at byte {end}")
    kept = model.metadata_props.pop(BASE_KEY, None)
    try:
        folder = target.parent.resolve()
        if all(Path(t.path).resolve().is_relative_to(folder) for t in external):
            for tensor in external:
                tensor._location = str(Path(tensor.path).resolve().relative_to(folder))
                tensor.base_dir = folder
            _replace(target, lambda scratch: ir.save(model, scratch))
        else:
            _replace(target, lambda scratch: ir.save(model, scratch, external_data=f"{target.name}.data"))
    finally:
        if kept is not None:
            model.metadata_props[BASE_KEY] = kept


def check_target(target: Path) -> None:
    """Refuse a path at which no file can be written; raises GradientError."""
    if not target.parent.is_dir():
        raise GradientError(f"cannot write '{target}': there is no folder '{target.parent}'")
    if target.is_dir():
        raise GradientError(f"cannot write '{target}': it is a folder")


def _replace(target: Path, write: Any) -> None:
    """Write into a scratch folder beside the target, then rename: what belongs to the model first, the model last."""
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise GradientError(f"cannot write '{target}': {error.strerror}") from error
    try:
        write(scratch / target.name)
        for file in sorted(scratch.iterdir(), key=lambda f: f.name == target.name):
            os.replace(file, target.parent / file.name)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
