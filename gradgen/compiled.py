"""Runs a model on onnxruntime as a function of numpy arrays: `gradgen.compile`."""

from __future__ import annotations

import fnmatch
import math
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from gradgen.arguments import check_cache, check_switches, check_threads, existing_file, is_path, name_list
from gradgen.engine.external import noted_base
from gradgen.engine.knowledge import CONSTANT_MARK
from gradgen.errors import GradientError
from gradgen.session import open_session

Dims = list[Any]
Layout = tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]
ALIGNMENT = 64
# So many buffers of an output are remembered: the one that is held, and the one that is written meanwhile.
BUFFERS = 2
# Element types that onnxruntime and numpy lay out alike.
DTYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(bool)": np.bool_,
    "tensor(int8)": np.int8, "tensor(int16)": np.int16, "tensor(int32)": np.int32, "tensor(int64)": np.int64,
    "tensor(uint8)": np.uint8, "tensor(uint16)": np.uint16, "tensor(uint32)": np.uint32, "tensor(uint64)": np.uint64,
}  # fmt: skip


def compile(
    model: str | os.PathLike[str] | onnx.ModelProto | ir.Model,
    *,
    feed: Sequence[str] | str = (),
    threads: int | None = None,
    spin: bool = True,
    cache: bool | str | os.PathLike[str] = True,
) -> Compiled:
    """Make a model, such as a gradient model, a fast function of numpy arrays.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model; it is not changed.
        feed: names (or globs) of initializers that calls may pass, such as weights in training. Their stored values
            are the defaults. All other initializers are constants, which onnxruntime folds and packs in advance.
        threads: how many threads an op may use; by default one for each physical core.
        spin: whether idle threads wait actively for the next op of a call, which is faster, and costs processor time.
            Between calls they never do.
        cache: whether the optimised model is kept on disk for the next time, or the folder to keep it in; by default
            `gradgen` in the user's cache folder. Models with external data are not kept.

    Returns:
        A function: `step(x, label)` or `step(x=…, label=…)` takes arrays in the order or by the names of
        `step.inputs`, and returns a dict of arrays by the names of `step.outputs`.

    Raises:
        GradientError: for names in `feed` that no initializer has, other arguments that are not what they should be, and a model
            that cannot be read or loaded.
    """
    check_threads(threads)
    check_switches(spin=spin)
    check_cache(cache)
    patterns = name_list("feed", feed)
    proto, base = _read(model)
    defaults = _make_inputs(proto, patterns, base)
    return Compiled(open_session(proto, base, threads, spin, cache), defaults)


class Compiled:
    """A model as a function of numpy arrays; see `gradgen.compile`.

    Results are written into memory that is used again once nobody holds the arrays of an earlier call, or a view of
    them: in a loop that feeds results back, two buffers take turns, and an output never lies on an input's memory.

    A call waits for one that another thread has begun; to run several at once, compile the model once for each thread
    (the second load is from the cache).

    Attributes:
        inputs: names of the inputs, in the order of positional arguments.
        outputs: names of the outputs.
        session: the onnxruntime session.
    """

    def __init__(self, session: ort.InferenceSession, defaults: Mapping[str, np.ndarray] | None = None):
        self.session = session
        self._inputs = {i.name: (i.type, list(i.shape)) for i in session.get_inputs()}
        self._outputs = {o.name: (o.type, list(o.shape)) for o in session.get_outputs()}
        self.inputs, self.outputs = list(self._inputs), list(self._outputs)
        self._defaults = dict(defaults or {})
        self._plain = all(kind in DTYPES for kind, _ in (*self._inputs.values(), *self._outputs.values()))
        self._binding = session.io_binding()
        self._running = threading.Lock()
        # The arrays that inputs are bound to, and how these lay then: all of that can be changed in place.
        self._bound: dict[str, np.ndarray] = {}
        self._layouts: dict[str, Layout] = {}
        # The shapes of inputs by which the sizes of outputs were found last, these, and the memory they are bound to.
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._results: dict[str, tuple[np.dtype[Any], tuple[int, ...], int] | None] = {}
        self._pools: dict[str, list[_Buffer]] = {name: [] for name in self._outputs}
        self._written: dict[str, _Buffer] = {}

    def __call__(self, /, *arrays: Any, **named: Any) -> dict[str, Any]:
        """Run the model.

        Args:
            arrays: inputs in the order of `inputs`.
            named: inputs by name, those that no Python name can spell by `**{"layer.weight": …}`.

        Returns:
            The outputs by name. They are the caller's: later calls do not change them.

        Raises:
            GradientError: for inputs that are missing, unknown, given twice, or of another type or shape; and with
                onnxruntime's message where it fails.
        """
        with self._running:
            feeds = self._feeds(arrays, named)
            try:
                if self._plain:
                    return self._run_bound(feeds)
                return dict(zip(self.outputs, self.session.run(self.outputs, feeds), strict=True))
            except (RuntimeError, ValueError) as error:
                raise GradientError(f"{self._disagreement(feeds)}onnxruntime: {error}") from error

    def __repr__(self) -> str:
        def show(values: Mapping[str, tuple[str, Dims]]) -> str:
            return ", ".join(f"{name}: {kind.removeprefix('tensor')}{shape}" for name, (kind, shape) in values.items())

        return f"<compiled model ({show(self._inputs)}) -> ({show(self._outputs)})>"

    def _feeds(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        if len(arrays) > len(self.inputs):
            raise GradientError(f"{len(arrays)} arrays, and the model has {len(self.inputs)} inputs: {self.inputs}")
        if not arrays and self._plain and named.keys() == self._inputs.keys():
            return {n: self._array(n, named[n]) for n in self.inputs}
        given = dict(zip(self.inputs, arrays, strict=False))
        problems = [f"'{n}' is given twice" for n in named if n in given]
        problems += [f"the model has no input '{n}'" for n in named if n not in self._inputs]
        given = {**self._defaults, **given, **named}
        problems += [f"input '{n}' is missing" for n in self.inputs if n not in given]
        if problems:
            raise GradientError(f"{'; '.join(problems)}; the inputs are {', '.join(self.inputs)}")
        return {n: self._array(n, given[n]) if self._plain else given[n] for n in self.inputs}

    def _disagreement(self, feeds: Mapping[str, Any]) -> str:
        """The sizes that inputs give to one name, where these differ, which onnxruntime does not check."""
        sizes: dict[str, dict[int, str]] = {}
        for name, array in feeds.items():
            for dim, size in zip(self._inputs[name][1], np.shape(array), strict=False):
                if isinstance(dim, str):
                    sizes.setdefault(dim, {}).setdefault(size, name)
        found = {
            dim: ", ".join(f"{size} in '{name}'" for size, name in given.items())
            for dim, given in sizes.items()
            if len(given) > 1
        }
        return "".join(f"'{dim}' is {given}; " for dim, given in found.items())

    def _array(self, name: str, value: Any) -> np.ndarray:
        kind, shape = self._inputs[name]
        dtype = DTYPES[kind]
        bound = self._bound.get(name)
        if bound is not None and value is bound and self._layouts[name] == _layout(bound):
            return bound  # as it was at the last call
        array = np.asarray(value)
        if array.dtype != dtype:
            if not np.can_cast(array.dtype, dtype, "same_kind") and array.size:
                raise GradientError(f"input '{name}' is of {np.dtype(dtype)}, and the array of {array.dtype}")
            given, array = array, array.astype(dtype)
            if array.dtype.kind in "iu" and given.dtype.kind in "iu" and not np.array_equal(array, given):
                raise GradientError(f"input '{name}' is of {array.dtype}, and the array holds numbers beyond that")
        if len(shape) != array.ndim or any(
            isinstance(d, int) and d != n for d, n in zip(shape, array.shape, strict=True)
        ):
            raise GradientError(f"input '{name}' has shape {shape}, and the array {list(array.shape)}")
        return np.ascontiguousarray(array) if array.ndim else array

    def _run_bound(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        binding = self._binding
        for name, array in feeds.items():
            layout = _layout(array)
            if self._bound.get(name) is not array or self._layouts[name] != layout:
                binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
                self._bound[name], self._layouts[name] = array, layout
        shapes = {name: array.shape for name, array in feeds.items()}
        if shapes != self._shapes or not self._results:
            self._shapes, self._results = shapes, self._sizes(shapes)
        results: dict[str, np.ndarray] = {}
        for name, known in self._results.items():
            if name in feeds:  # onnxruntime leaves the memory of such an output as it is
                results[name] = feeds[name].copy()
                continue
            if known is None:
                binding.bind_output(name, "cpu")
                continue
            dtype, shape, size = known
            buffer = self._buffer(name, size)
            array = results[name] = buffer.array(dtype, shape)
            if self._written.get(name) is not buffer:
                binding.bind_output(name, "cpu", 0, dtype.type, shape, array.ctypes.data)
                self._written[name] = buffer
        self.session.run_with_iobinding(binding)
        if len(results) < len(self.outputs):
            bound = [name for name in self.outputs if name not in feeds]
            values = dict(zip(bound, binding.get_outputs(), strict=True))
            results = {n: results[n] if n in results else values[n].numpy() for n in self.outputs}
        return results

    def _sizes(
        self, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[np.dtype[Any], tuple[int, ...], int] | None]:
        """Type, shape and bytes of each output for inputs of these shapes; None where only the run tells."""
        sizes = {d: n for name, shape in shapes.items() for d, n in zip(self._inputs[name][1], shape, strict=True)}
        found: dict[str, tuple[np.dtype[Any], tuple[int, ...], int] | None] = {}
        for name, (kind, dims) in self._outputs.items():
            shape = tuple(d if isinstance(d, int) else sizes.get(d) if isinstance(d, str) else None for d in dims)
            dtype = np.dtype(DTYPES[kind])
            known = tuple(d for d in shape if d is not None)
            found[name] = (dtype, known, math.prod(known) * dtype.itemsize) if len(known) == len(shape) else None
        self._written.clear()  # the shapes of memory that is bound are others now
        return found

    def _buffer(self, name: str, size: int) -> _Buffer:
        """Memory to write an output into, that nobody else holds: that of the last call where it is free again."""
        last = self._written.get(name)
        if last is not None and not last.held():
            return last
        pool = self._pools[name]
        for buffer in pool:
            if buffer.size == size and not buffer.held():
                return buffer
        if len(pool) == BUFFERS:
            pool.pop(0)  # memory that somebody holds for longer is theirs alone from now on
        pool.append(_Buffer(size))
        return pool[-1]


class _Buffer:
    """Memory for one output, lent to one array at a time."""

    def __init__(self, size: int):
        self.size = size
        self._memory = bytearray(size + ALIGNMENT)
        address = np.frombuffer(self._memory, np.uint8).ctypes.data
        self._offset = -address % ALIGNMENT
        self._lent: weakref.ref[np.ndarray] | None = None

    def held(self) -> bool:
        """Whether an array that lies on this memory, or a view of one, is still alive."""
        return self._lent is not None and self._lent() is not None

    def array(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray:
        # Views of views refer to the first array that lies on memory of another kind: this one.
        whole = np.frombuffer(self._memory, dtype, self.size // dtype.itemsize, self._offset)
        self._lent = weakref.ref(whole)
        return whole.reshape(shape)


def _layout(array: np.ndarray) -> Layout:
    """How an array lies: its type, shape and strides."""
    return array.dtype, array.shape, array.strides


def _read(model: Any) -> tuple[onnx.ModelProto, Path | None]:
    """A copy of the model that may be changed, and the folder that its external data is relative to."""
    if isinstance(model, ir.Model | onnx.ModelProto):
        copy = onnx.ModelProto()
        copy.CopyFrom(ir.to_proto(model) if isinstance(model, ir.Model) else model)
        return copy, noted_base(copy)
    if not is_path(model):
        raise GradientError(f"a model is a path, an onnx.ModelProto or an onnx_ir.Model, not {type(model).__name__}")
    path = existing_file(model)
    try:
        return onnx.load(path, load_external_data=False), path.resolve().parent
    except Exception as error:  # protobuf's DecodeError is no ValueError in every version
        raise GradientError(f"cannot read the model '{path}': {error}") from error


def _make_inputs(proto: onnx.ModelProto, patterns: list[str], base: Path | None) -> dict[str, np.ndarray]:
    """Make the initializers that calls pass inputs, all other ones constants; returns the stored values of the former."""
    graph = proto.graph
    stored = {t.name: t for t in graph.initializer}
    # Constants that gradgen has added are the model's own workings: a glob does not mean them.
    own = {n: t for n, t in stored.items() if not any(p.key == CONSTANT_MARK for p in t.metadata_props)}
    chosen = {n for n in own if any(fnmatch.fnmatchcase(n, p) for p in patterns)}
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(n, pattern) for n in own):
            raise GradientError(f"feed: no initializer is called '{pattern}'; there are {', '.join(own) or 'none'}")
    listed = {i.name for i in graph.input}
    kept = [i for i in graph.input if i.name not in stored or i.name in chosen]
    kept += [
        onnx.helper.make_tensor_value_info(n, stored[n].data_type, list(stored[n].dims))
        for n in stored
        if n in chosen and n not in listed
    ]
    del graph.input[:]
    graph.input.extend(kept)
    tensors = [t for t in graph.initializer if t.name not in chosen]
    defaults = {n: onnx.numpy_helper.to_array(stored[n], str(base or "")) for n in chosen}
    del graph.initializer[:]
    graph.initializer.extend(tensors)
    return defaults
