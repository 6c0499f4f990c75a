"""Sessions of onnxruntime with the options found best, and the models that it has optimised, kept on disk."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime as ort

from gradgen import blocking, runtime_forms
from gradgen.blocking import CONVOLUTIONS
from gradgen.engine.external import PROTO_LIMIT, stored_bytes
from gradgen.engine.protos import all_nodes, subgraphs
from gradgen.errors import GradientError

# The oldest optimised models go once all of them take more than this.
CACHE_BYTES = 1 << 30

# onnxruntime's pass that blocks the channels of pools and convolutions.
BLOCKING = "NchwcTransformer"


def cache_folder() -> Path:
    """The folder of optimised models: `gradgen` in the user's cache folder, as the operating system has it."""
    home = Path.home()
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = home / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return root / "gradgen"


def options(threads: int | None, spin: bool, optimise: bool = True) -> ort.SessionOptions:
    """Session options: all graph optimisations, one op after the other, no warnings."""
    chosen = ort.SessionOptions()
    chosen.log_severity_level = 3
    level = ort.GraphOptimizationLevel
    chosen.graph_optimization_level = level.ORT_ENABLE_ALL if optimise else level.ORT_DISABLE_ALL
    chosen.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    # One block for all values of known sizes comes beside the values of the first call, which took as much: twice the
    # memory, in the same time.
    chosen.enable_mem_pattern = False
    if threads is not None:
        chosen.intra_op_num_threads = threads
    chosen.add_session_config_entry("session.intra_op.allow_spinning", "1" if spin else "0")
    # Threads that still spin after a call would take processor time from whatever the caller does next.
    chosen.add_session_config_entry("session.force_spinning_stop", "1")
    return chosen


def open_session(
    proto: onnx.ModelProto, base: Path | None, threads: int | None, spin: bool, cache: bool | str | os.PathLike[str]
) -> ort.InferenceSession:
    """A session of the model, from the cache where it is there.

    Args:
        base: the folder that external data is relative to.

    Raises:
        GradientError: with onnxruntime's message, where it does not load the model.
    """
    chosen = options(threads, spin)
    disabled, alone = disabled_optimisers(proto), threads == 1
    if stored_bytes(proto) >= PROTO_LIMIT:
        return _load(proto, chosen, disabled)
    if any(t.data_location == onnx.TensorProto.EXTERNAL for t in proto.graph.initializer):
        chosen.add_session_config_entry("session.model_external_initializers_file_folder_path", str(base or Path()))
        return _create(proto.SerializeToString(), chosen, disabled)
    content = proto.SerializeToString(deterministic=True)
    kept = (
        None if cache is False else _place(cache_folder() if cache is True else Path(cache), content, disabled, alone)
    )
    if kept is not None and kept.is_file():
        try:
            session = ort.InferenceSession(kept, options(threads, spin, False), providers=["CPUExecutionProvider"])
            os.utime(kept)
            return session
        except Exception:  # a file that another version wrote, or that was cut short, is made again
            kept.unlink(missing_ok=True)
    for candidate in (_rewritten(proto, alone), proto):
        if candidate is None:
            continue
        try:
            if (blocked := _blocked(candidate)) is not None:
                return _make(blocked, kept, options(threads, spin, False), [])
            if candidate is not proto:
                return _make(candidate.SerializeToString(), kept, options(threads, spin), disabled)
        except GradientError:  # the model itself may load
            pass
    return _make(content, kept, chosen, disabled)


def _place(folder: Path, content: bytes, disabled: list[str], alone: bool) -> Path:
    """Where the optimised model is kept.

    What onnxruntime makes of a model depends on its version, on the processor, and on the passes that are left out, and
    what it is given also on whether it runs on one thread.
    """
    about = f"{ort.__version__} {platform.machine()} {platform.processor()} {_processor_flags()} without {disabled}"
    about += f" blocking {blocking.VERSION} forms {runtime_forms.VERSION} alone {alone}"
    return folder / f"{hashlib.sha256(content + about.encode()).hexdigest()}.onnx"


def _rewritten(proto: onnx.ModelProto, alone: bool) -> onnx.ModelProto | None:
    """The model in forms that onnxruntime computes faster; None where there is nothing to gain.

    Whatever goes wrong on the way is no reason not to run: what is wrong with the model, onnxruntime says of itself.
    """
    try:
        return runtime_forms.rewritten(proto, alone)
    except Exception:
        return None


def _blocked(proto: onnx.ModelProto) -> bytes | None:
    """The optimised model with convolutions in blocks, of weights that are fed; None where there is nothing to gain.

    What goes wrong is no reason not to run here either.
    """
    try:
        prepared = blocking.stand_in(proto)
        if prepared is None:
            return None
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            chosen = options(1, False)
            chosen.optimized_model_filepath = str(Path(scratch) / "model.onnx")
            _create(prepared.model.SerializeToString(), chosen, prepared.disabled)
            optimised = onnx.load(chosen.optimized_model_filepath)
        restored = blocking.restore(optimised, prepared.stand_ins, len(proto.graph.output))
        return None if restored is None else restored.SerializeToString()
    except Exception:
        return None


def disabled_optimisers(proto: onnx.ModelProto) -> list[str]:
    """The passes of onnxruntime that make this model slower, where its convolutions are not blocked by `blocking`.

    Channels are blocked for convolutions whose weights are constant, and that gains more than it costs. Where what is
    fed decides on all weights, only pools and the constant kernels of the backward pass are left to it, between two
    copies each. (docs/performance.md has the figures.)
    """
    if any(node.op_type in CONVOLUTIONS for node in _inner_nodes(proto)):
        return []
    stored = {t.name for t in proto.graph.initializer}
    fed = {i.name for i in proto.graph.input if i.name not in stored}
    convolves = False
    for node in proto.graph.node:
        own = not any(entry.key == "gradgen.node" for entry in node.metadata_props)
        if own and node.op_type in CONVOLUTIONS and len(node.input) > 1:
            if node.input[1] not in fed:
                return []
            convolves = True
        if not fed.isdisjoint(node.input) or any(a.HasField("g") for a in node.attribute):
            fed.update(node.output)
    return [BLOCKING] if convolves else []


def _inner_nodes(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """The nodes of subgraphs and of functions."""
    for graph in subgraphs(proto.graph.node):
        yield from all_nodes(graph)
    for function in proto.functions:
        yield from all_nodes(function)


def _make(content: bytes, kept: Path | None, chosen: ort.SessionOptions, disabled: list[str]) -> ort.InferenceSession:
    """A session, whose model is kept where there is a place for it."""
    if kept is None:
        return _create(content, chosen, disabled)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(suffix=".tmp", dir=kept.parent)
        os.close(handle)
    except OSError:  # a folder that cannot be written is no reason not to run
        return _create(content, chosen, disabled)
    try:
        chosen.optimized_model_filepath = scratch
        session = _create(content, chosen, disabled)
        os.replace(scratch, kept)
    except OSError:  # what is there cannot be replaced
        return session
    finally:
        Path(scratch).unlink(missing_ok=True)
    _prune(kept)
    return session


def _prune(newest: Path) -> None:
    """Remove the files that were not used for longest, until the rest takes at most CACHE_BYTES."""
    files = []
    for file in newest.parent.glob("*.onnx"):
        try:
            stat = file.stat()
        except OSError:  # another process has removed it
            continue
        files.append((stat.st_mtime, stat.st_size, file))
    room = CACHE_BYTES
    for _, size, file in sorted(files, key=lambda f: f[0], reverse=True):
        room -= size
        if room < 0 and file != newest:
            file.unlink(missing_ok=True)


def _processor_flags() -> str:
    """What tells processors apart on which onnxruntime lays weights out differently, as far as it is known."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    found = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}
    return found.get("flags", found.get("Features", ""))


def _create(content: bytes, chosen: ort.SessionOptions, disabled: list[str]) -> ort.InferenceSession:
    try:
        return ort.InferenceSession(content, chosen, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
    except Exception as error:  # onnxruntime's exceptions share no base class of their own
        raise GradientError(f"onnxruntime does not load the model: {error}") from error


def _load(proto: onnx.ModelProto, chosen: ort.SessionOptions, disabled: list[str]) -> ort.InferenceSession:
    """A session of a model that is too large for one message."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        path = Path(scratch) / "model.onnx"
        onnx.save(proto, path, save_as_external_data=True, location="model.data", size_threshold=1024)
        try:
            return ort.InferenceSession(path, chosen, providers=["CPUExecutionProvider"], disabled_optimizers=disabled)
        except Exception as error:
            raise GradientError(f"onnxruntime does not load the model: {error}") from error
