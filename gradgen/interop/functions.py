"""A model as a function with a backward pass, on onnxruntime: what the libraries' functions share."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnxruntime as ort

from gradgen.api import vjp
from gradgen.arguments import check_threads, name_list
from gradgen.engine.external import BASE_KEY
from gradgen.engine.prepare import infer
from gradgen.engine.protos import all_graphs, all_nodes, imports
from gradgen.engine.reading import Model, read
from gradgen.engine.registry import Registry, Rules, registry_of
from gradgen.engine.values import FLOATS
from gradgen.errors import GradientError
from gradgen.request import roles_of, value_names
from gradgen.session import open_session
from gradgen.transforms.pair import vjp_pair

Arrays = dict[str, Any]
Shape = tuple[int, ...]
LARGE = 1024  # elements: initializers up to this are kept for shape inference, as shapes may be computed from them
_FLOATS = {int(t) for t in FLOATS}


def needed(package: str, extra: str) -> Any:
    """Import a library that gradgen does not depend on.

    Raises:
        ImportError: that says how to install it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(
            f'gradgen.interop needs {package}, which cannot be imported ({error}): run `pip install -e ".[{extra}]"` in a '
            "clone of gradgen"
        ) from error


class Function:
    """A model with its forward and backward sessions.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model.
        wrt: what has a gradient, as in `vjp`; initializers that it names become inputs.
        of: the outputs, as in `vjp`; by default all outputs of the model, of which the float ones are differentiated.
        threads: how many threads an op may use.
        straight_through, registry: as in `vjp`.

    Attributes:
        inputs: names of the arguments: the model's inputs, then the initializers that `wrt` names.
        outputs: names of the results.
        wrt: names of the arguments that have a gradient.
        of: names of the results that are differentiated.
        gradients: the argument that each output of the backward model is the gradient of.
        cotangents: the result that each cotangent belongs to, by the name of the backward model's input.
        parameters: the stored values of the arguments that are initializers.
        dtypes: the numpy types of arguments and results by name.
    """

    def __init__(
        self,
        model: Model,
        wrt: Sequence[str] | str | None,
        of: Sequence[str] | str | None,
        threads: int | None = None,
        *,
        straight_through: bool = False,
        registry: Registry | None = None,
    ):
        check_threads(threads)
        self.proto = _with_inputs(read(model)[0], wrt)
        self._threads = threads
        self._registry = registry_of(registry)
        self._request: dict[str, Any] = {"straight_through": straight_through, "registry": registry}
        self.forward_model, self.backward_model = vjp_pair(self.proto, wrt, of, **self._request)
        roles = roles_of(self.backward_model)
        self.gradients = {o.name: roles[o.name]["source"] for o in self.backward_model.graph.output}
        known = value_names(self.proto)
        self.cotangents = {
            i.name: roles[i.name]["source"]
            for i in self.backward_model.graph.input
            if i.name not in known and roles.get(i.name, {}).get("role") == "cotangent"
        }
        self.wrt, self.of = list(self.gradients.values()), list(self.cotangents.values())
        stored = {t.name: t for t in self.proto.graph.initializer}
        graph = self.proto.graph
        self.inputs = [i.name for i in graph.input if i.name not in stored or i.name in self.wrt]
        self.outputs = list(dict.fromkeys(o.name for o in graph.output)) if of is None else self.of
        base = base_of_proto(self.proto)
        self.parameters = {
            n: onnx.numpy_helper.to_array(stored[n], str(base or "")) for n in self.inputs if n in stored
        }
        if strangers := [n for n in self.wrt if n not in self.inputs]:
            raise GradientError(
                f"wrt: {', '.join(map(repr, strangers))} is computed by the model, and a function has gradients with "
                "respect to its arguments: name inputs or initializers"
            )
        infos = {i.name: i for i in [*self.forward_model.graph.input, *self.forward_model.graph.output]}
        self.dtypes = {n: _dtype(infos[n]) for n in [*self.inputs, *self.outputs]}
        self.ranks = {n: _rank(infos[n]) for n in self.inputs}
        self.residuals = [o.name for o in self.forward_model.graph.output if o.name not in self.outputs]
        self.backward_reads = {i.name for i in self.backward_model.graph.input} - set(self.cotangents)

    @cached_property
    def _forward(self) -> ort.InferenceSession:
        return open_session(self.forward_model, base_of_proto(self.forward_model), self._threads, True, False)

    @cached_property
    def _backward(self) -> ort.InferenceSession:
        return open_session(self.backward_model, base_of_proto(self.backward_model), self._threads, True, False)

    def feed_dtype(self, name: str) -> Any:
        """The numpy type of whatever either model reads: arguments, results, residuals and cotangents."""
        return self._feeds[name]

    @cached_property
    def _feeds(self) -> dict[str, Any]:
        infos = [*self.forward_model.graph.input, *self.backward_model.graph.input]
        return {i.name: _dtype(i) for i in infos if _rank(i) is not None}

    @cached_property
    def draws(self) -> bool:
        """Whether the model may draw random numbers."""
        return may_draw(self.forward_model, self._registry)  # here local functions are inlined

    def differentiated(self) -> Function:
        """The gradients as a function of arguments and cotangents, which runs the forward pass again."""
        whole = vjp(self.proto, self.wrt, self.of, **self._request)
        wrt = [*self.wrt, *self.cotangents]
        return Function(whole, wrt, list(self.gradients), self._threads, **self._request)

    def arguments(self, values: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The arguments in the order of `inputs`; parameters that are left out have their stored values.

        Raises:
            GradientError: for arguments that are missing, unknown, or given twice.
        """
        given = dict(zip(self.inputs, values, strict=False))
        problems = [f"'{n}' is given twice" for n in named if n in given]
        problems += [f"there is no argument '{n}'" for n in named if n not in self.inputs]
        if len(values) > len(self.inputs):
            problems.append(f"there are {len(values)} of them")
        given = {**self.parameters, **given, **named}
        problems += [f"'{n}' is missing" for n in self.inputs if n not in given]
        if problems:
            raise GradientError(f"arguments: {'; '.join(problems)}; the model has {', '.join(self.inputs)}")
        return [given[n] for n in self.inputs]

    def forward(self, feeds: Mapping[str, np.ndarray], residuals: bool) -> Arrays:
        """The outputs, and what is kept for the backward pass."""
        names = [*self.outputs, *self.residuals] if residuals else self.outputs
        return self._run(self._forward, names, {n: feeds[n] for n in self.inputs})

    def backward(self, held: Mapping[str, Any]) -> Arrays:
        """The gradients by the names in `wrt`, from arguments, results, residuals and `grad_…` cotangents."""
        feeds = {n: held[n] for n in [*self.backward_reads, *self.cotangents]}
        found = self._run(self._backward, list(self.gradients), feeds)
        return {self.gradients[n]: array for n, array in found.items()}

    @staticmethod
    def _run(session: ort.InferenceSession, names: Sequence[str], feeds: Mapping[str, Any]) -> Arrays:
        try:
            return dict(zip(names, session.run(list(names), dict(feeds)), strict=True))
        except (RuntimeError, ValueError) as error:
            raise GradientError(f"onnxruntime: {error}") from error

    def shapes(self, given: Mapping[str, Shape]) -> dict[str, tuple[Shape | None, Any]]:
        """The shapes and numpy types of results and residuals for arguments of some shapes.

        A shape is None where it cannot be inferred, and where the value is no tensor.
        """
        proto = onnx.ModelProto()
        proto.CopyFrom(self.forward_model)
        graph = proto.graph
        sizes = {**{t.name: tuple(t.dims) for t in graph.initializer}, **given}
        infos = [
            onnx.helper.make_tensor_value_info(i.name, i.type.tensor_type.elem_type, sizes[i.name]) for i in graph.input
        ]
        listed = {i.name for i in graph.input}
        large = [t for t in graph.initializer if int(np.prod(t.dims)) > LARGE and t.name not in listed]
        infos += [onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in large]
        kept = [t for t in graph.initializer if t.name not in listed and t not in large]
        for field, fresh in ((graph.input, infos), (graph.initializer, kept)):
            del field[:]  # type: ignore[attr-defined]
            field.extend(fresh)  # type: ignore[attr-defined]
        del graph.value_info[:]
        declared = {o.name: _static(o) for o in graph.output}
        for output in [o for o in graph.output if o.type.HasField("tensor_type")]:
            output.type.tensor_type.ClearField("shape")
        found = infer(proto, self._registry).graph

        def shape(info: onnx.ValueInfoProto) -> Shape | None:
            inferred = given.get(info.name, _static(info))
            return declared[info.name] if inferred is None else inferred

        return {
            o.name: (s := shape(o), _dtype(o) if s is not None or _rank(o) is not None else None) for o in found.output
        }


def _with_inputs(proto: onnx.ModelProto, wrt: Sequence[str] | str | None) -> onnx.ModelProto:
    """Make initializers that are differentiated inputs, whose stored values are defaults."""
    listed = {i.name for i in proto.graph.input}
    stored = {t.name: t for t in proto.graph.initializer}
    if wrt is not None:
        from fnmatch import fnmatchcase

        for pattern in name_list("wrt", wrt):
            for name, tensor in stored.items():
                chosen = name == pattern or (fnmatchcase(name, pattern) and tensor.data_type in _FLOATS)
                if chosen and name not in listed:
                    listed.add(name)
                    proto.graph.input.append(
                        onnx.helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims))
                    )
    proto.ir_version = max(proto.ir_version, 4)
    return proto


def may_draw(proto: onnx.ModelProto, registry: Registry) -> bool:
    """Whether a node of a model may draw random numbers; a Dropout whose mode is stored as False does not."""
    rules = Rules(registry, imports(proto))
    listed = {i.name for i in proto.graph.input}
    off = {
        t.name
        for graph in all_graphs(proto.graph)
        for t in (*graph.initializer, *_constants(graph))
        if t.data_type == onnx.TensorProto.BOOL and t.name not in listed and not np.any(onnx.numpy_helper.to_array(t))
    }

    def draws(node: onnx.NodeProto) -> bool:
        row = rules.of(node)
        if row is not None and isinstance(row.random, str):
            return any(n and n not in off for i, n in enumerate(node.input) if row.input_name(i) == row.random)
        return rules.may_draw(node)

    return any(draws(node) for node in all_nodes(proto.graph))


def _constants(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The tensors of a graph's Constant nodes, by the names of their results."""
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value":
                tensor = onnx.TensorProto()
                tensor.CopyFrom(attribute.t)
                tensor.name = node.output[0]
                yield tensor


def base_of_proto(proto: onnx.ModelProto) -> Path | None:
    """The folder that a model's external data is relative to."""
    base = next((p.value for p in proto.metadata_props if p.key == BASE_KEY), None)
    return None if base is None else Path(base)


def _dtype(info: onnx.ValueInfoProto) -> Any:
    kind = info.type.tensor_type.elem_type
    if not info.type.HasField("tensor_type") or kind in (onnx.TensorProto.BFLOAT16, onnx.TensorProto.STRING):
        what = onnx.TensorProto.DataType.Name(kind).lower() if kind else "no tensor"
        raise GradientError(f"'{info.name}' is {what}: arguments and results are tensors of a type that numpy has")
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind))


def _rank(info: onnx.ValueInfoProto) -> int | None:
    kind = info.type.tensor_type
    return len(kind.shape.dim) if info.type.HasField("tensor_type") and kind.HasField("shape") else None


def _static(info: onnx.ValueInfoProto) -> Shape | None:
    dims = info.type.tensor_type.shape.dim
    if _rank(info) is None or not all(d.HasField("dim_value") for d in dims):
        return None
    return tuple(d.dim_value for d in dims)
