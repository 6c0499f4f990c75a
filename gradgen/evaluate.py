# Runs a model on onnxruntime or on the reference evaluator, and makes float64 copies: the oracle of the checks.
"""Evaluate ONNX models, in float64 where a comparison with finite differences wants it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import onnx
import onnx.shape_inference
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.external_data_helper import uses_external_data

from gradgen.inlining import inline_functions

Arrays = dict[str, np.ndarray]
Engine = Literal["onnxruntime", "reference"]

# Narrower float types that a double copy widens. The 8- and 4-bit types are quantised data, not arithmetic: they stay.
_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16}
# Attributes that name an element type of a result; an absent one whose default is float must be written out.
_DTYPE_ATTRIBUTES = {"to", "dtype", "output_datatype", "softmax_precision"}
# Operators that onnxruntime takes in float64 but computes, in part, in float32.
_INEXACT = {"Celu", "Gelu", "GroupNormalization", "LayerNormalization", "RMSNormalization", "Shrink"}
# Operators that onnxruntime loads in float64 and refuses when they run.
_SINGLE = {"GRU", "LSTM"}
# Operators whose result lies in the memory of their input, at least where onnxruntime plans it so.
_VIEWS = {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}


class Evaluator:
    """A model that can be called with arrays and says which engine runs it.

    Attributes:
        engine: "onnxruntime" or "reference".
        reason: why the preferred engine was not taken; empty where it was.
        input_names, output_names: of the graph, in order; initializers that are no graph inputs are not listed.
    """

    def __init__(self, model: onnx.ModelProto, *, prefer: Engine = "onnxruntime", strict: bool = False) -> None:
        """Load `model`.

        Args:
            model: any model; local functions are inlined first, their attribute defaults kept.
            prefer: the engine to try first. A model with random nodes always goes to the reference evaluator, whose
                draws are the same from run to run, and so does a float64 model with operators that onnxruntime
                rounds to float32.
            strict: raise instead of falling back to the other engine.

        Raises:
            ValueError: an unknown engine name, or no engine loads the model.
        """
        if prefer not in ("onnxruntime", "reference"):
            raise ValueError(f"unknown engine {prefer!r}: use 'onnxruntime' or 'reference'")
        model = inline_functions(model)
        self.input_names = [value.name for value in model.graph.input]
        self.output_names = [value.name for value in model.graph.output]
        self.reason = ""
        order: list[Engine] = ["onnxruntime", "reference"] if prefer == "onnxruntime" else ["reference", "onnxruntime"]
        if order[0] == "onnxruntime" and not strict and (obstacle := _obstacle(model)):
            order, self.reason = ["reference"], obstacle
        loaders: dict[str, Callable[[onnx.ModelProto], Callable[[Mapping[str, np.ndarray]], list]]] = {
            "onnxruntime": _load_onnxruntime,
            "reference": _load_reference,
        }
        failures = []
        for engine in order[:1] if strict else order:
            try:
                self._call = loaders[engine](model)
            except Exception as error:  # engines raise types of their own, whatever the cause
                failures.append(f"{engine}: {_first_line(error)}")
                continue
            self.engine: Engine = engine
            self.reason = self.reason or "; ".join(failures)
            return
        raise ValueError(f"no engine loads the model {model.graph.name!r}: {'; '.join(failures)}")

    def __call__(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """Outputs by name for inputs by name. Raises what the engine raises."""
        arrays = {name: np.asarray(value) for name, value in feeds.items()}
        return dict(zip(self.output_names, self._call(arrays), strict=True))


def evaluator(model: onnx.ModelProto, *, prefer: Engine = "onnxruntime", strict: bool = False) -> Evaluator:
    """`Evaluator(model, ...)`: a callable from arrays by name to arrays by name."""
    return Evaluator(model, prefer=prefer, strict=strict)


def _load_onnxruntime(model: onnx.ModelProto) -> Callable[[Mapping[str, np.ndarray]], list]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    quiet = onnxruntime.RunOptions()
    quiet.log_severity_level = 4
    # In training mode onnxruntime's BatchNormalization writes its running statistics into the arrays that it is fed.
    copied = any(n.op_type == "BatchNormalization" and len(n.output) > 1 for n in _nodes(model.graph))
    return lambda feeds: session.run(None, {k: v.copy() for k, v in feeds.items()} if copied else dict(feeds), quiet)


def _load_reference(model: onnx.ModelProto) -> Callable[[Mapping[str, np.ndarray]], list]:
    from onnx.reference import ReferenceEvaluator

    from gradgen import (
        evaluate_ops,
        evaluate_ops_attention,
        evaluate_ops_data,
        evaluate_ops_ml,
        evaluate_ops_recurrent,
        evaluate_ops_signal,
        evaluate_ops_windows,
    )

    # Context-dependent functions of the standard need the types of their inputs.
    with contextlib.suppress(Exception):  # over 2 GB it cannot; types are then found at run time
        model = onnx.shape_inference.infer_shapes(model)
    model = _name_outputs(model)
    modules = (
        evaluate_ops,
        evaluate_ops_attention,
        evaluate_ops_data,
        evaluate_ops_ml,
        evaluate_ops_recurrent,
        evaluate_ops_signal,
        evaluate_ops_windows,
    )
    reference = ReferenceEvaluator(model, new_ops=[op for module in modules for op in module.REPLACEMENTS])

    def call(feeds: Mapping[str, np.ndarray]) -> list:
        with np.errstate(all="ignore"):
            return reference.run(None, dict(feeds))  # type: ignore[return-value]

    return call


def _name_outputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """`model` with a name for every output that a node omits before one that it has.

    The reference evaluator keeps such an output under the name "", and then reads it where an input is absent.
    """
    if not any("" in node.output for node in _nodes(model.graph)):
        return model
    named = onnx.ModelProto()
    named.CopyFrom(model)
    for count, node in enumerate(_nodes(named.graph)):
        while len(node.output) > 1 and not node.output[-1]:
            node.output.pop()
        for position, name in enumerate(node.output):
            node.output[position] = name or f"omitted {count} {position}"
    return named


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0][:200] if text else 'no message'}"


def _obstacle(model: onnx.ModelProto) -> str:
    """Why onnxruntime's values are no use as a reference, or an empty string."""
    values = (*model.graph.input, *model.graph.output)
    double = any(value.type.tensor_type.elem_type == TensorProto.DOUBLE for value in values)
    for node in _nodes(model.graph):
        if node.op_type in RANDOM or may_drop(node):
            return f"{node.op_type}: onnxruntime draws anew in each run"
        if double and node.op_type in _INEXACT:
            return f"{node.op_type}: onnxruntime computes it in float32"
        if double and node.op_type in _SINGLE:
            return f"{node.op_type}: onnxruntime has no float64 kernel"
    if any(_overwrites(node, model.graph) for node in _nodes(model.graph)):
        return "BatchNormalization: onnxruntime overwrites its scale or bias where its mean or variance is the same one"
    return ""


def _overwrites(node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    """Whether a BatchNormalization in training mode has one value as a statistic and as scale or bias.

    onnxruntime (1.32, CPU) writes the running statistics into the memory of the old ones before it reads the others.
    """
    if node.op_type != "BatchNormalization" or len(node.output) < 2 or len(node.input) < 5:
        return False
    views = {n.output[0]: n.input[0] for n in _nodes(graph) if n.op_type in _VIEWS}

    def root(name: str) -> str:
        while name in views:
            name = views[name]
        return name

    parameters, statistics = node.input[1:3], node.input[3:5]
    return not {root(n) for n in parameters}.isdisjoint(root(n) for n in statistics)


def may_drop(node: onnx.NodeProto) -> bool:
    """Whether the node is a Dropout whose mode is an input: in training it draws."""
    return node.op_type == "Dropout" and len(node.input) == 3 and bool(node.input[2])


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Every node of `graph`, those of subgraphs included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for sub in [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs:
                yield from _nodes(sub)


def to_float64(model: onnx.ModelProto, base_dir: str | None = None) -> onnx.ModelProto:
    """A copy of `model` that computes in float64 where `model` computes in float32, float16 or bfloat16.

    Local functions are inlined. Inputs that the standard types as float only (Resize's scales, a quantiser's scale)
    get a Cast, as do outputs that exist in float only. Integers, strings and 8-bit floats are untouched.

    Args:
        model: the model to widen; it is not changed.
        base_dir: the folder that external data is relative to.

    Raises:
        ValueError: an initializer lies in external data and no `base_dir` is given.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(inline_functions(model))
    external = [t.name for t in copy.graph.initializer if uses_external_data(t)]
    if external:
        if base_dir is None:
            raise ValueError(
                f"initializer {external[0]!r} lies in external data: give base_dir, the folder of the model file"
            )
        onnx.load_external_data_for_model(copy, base_dir)
    del copy.training_info[:]
    _Widener(copy).graph(copy.graph)
    return copy


class _Widener:
    """Rewrites the graphs of one model in place."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.opsets = {opset.domain: opset.version for opset in model.opset_import}
        self.used = {name for node in _nodes(model.graph) for name in (*node.input, *node.output)}
        try:
            inferred = onnx.shape_inference.infer_shapes(model)
        except Exception:  # over 2 GB: only declared types are known then
            inferred = model
        self.types: dict[str, int] = {}
        self._collect(inferred.graph)

    def _collect(self, graph: onnx.GraphProto) -> None:
        for value in (*graph.input, *graph.output, *graph.value_info):
            self.types[value.name] = value.type.tensor_type.elem_type
        for tensor in graph.initializer:
            self.types[tensor.name] = tensor.data_type
        for node in graph.node:
            for attribute in node.attribute:
                for sub in [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs:
                    self._collect(sub)

    def graph(self, graph: onnx.GraphProto) -> None:
        """Widen one graph, its subgraphs included."""
        for value in (*graph.input, *graph.output, *graph.value_info):
            _widen_type(value.type)
        for tensor in graph.initializer:
            _widen_tensor(tensor)
        for sparse in graph.sparse_initializer:
            _widen_tensor(sparse.values)
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            self._attributes(node)
            before, after = self._casts(node)
            nodes += [*before, node, *after]
        del graph.node[:]
        graph.node.extend(nodes)

    def _attributes(self, node: onnx.NodeProto) -> None:
        if node.op_type == "Constant":
            _widen_constant(node)
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _widen_tensor(attribute.t)
            elif attribute.type == AttributeProto.SPARSE_TENSOR:
                _widen_tensor(attribute.sparse_tensor.values)
            elif attribute.type == AttributeProto.TYPE_PROTO:
                _widen_type(attribute.tp)
            elif attribute.type == AttributeProto.GRAPH:
                self.graph(attribute.g)
            elif attribute.name in _DTYPE_ATTRIBUTES and attribute.i in _FLOATS:
                attribute.i = TensorProto.DOUBLE
        given = {attribute.name for attribute in node.attribute}
        if node.op_type == "ConstantOfShape" and not given:
            node.attribute.append(
                onnx.helper.make_attribute("value", onnx.helper.make_tensor("value", TensorProto.DOUBLE, [1], [0.0]))
            )
        schema = self._schema(node)
        for name in _DTYPE_ATTRIBUTES & set(schema.attributes if schema else ()) - given:
            assert schema is not None
            # SequenceEmpty states its default, float, in prose only.
            if schema.attributes[name].default_value.i == TensorProto.FLOAT or node.op_type == "SequenceEmpty":
                node.attribute.append(onnx.helper.make_attribute(name, int(TensorProto.DOUBLE)))

    def _casts(self, node: onnx.NodeProto) -> tuple[list[onnx.NodeProto], list[onnx.NodeProto]]:
        """Casts around `node` for the inputs and outputs that its schema knows in float32 but not in float64.

        Where an output is known in float32 alone too (Celu, a dequantiser), inputs are left in float64: a Cast would
        round what flows through, and the reference evaluator, which such a node needs anyway, takes them as they are.
        """
        schema = self._schema(node)
        before: list[onnx.NodeProto] = []
        after: list[onnx.NodeProto] = []
        if schema is None:
            return before, after
        constraints = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
        results = [self._float_only(schema.outputs, i, constraints, name) for i, name in enumerate(node.output)]
        for position, name in enumerate(node.input):
            if not any(results) and self._float_only(schema.inputs, position, constraints, name):
                node.input[position] = self._fresh(f"{name}_float")
                before.append(_cast(name, node.input[position], TensorProto.FLOAT))
        for position, name in enumerate(node.output):
            if results[position]:
                node.output[position] = self._fresh(f"{name}_float")
                after.append(_cast(node.output[position], name, TensorProto.DOUBLE))
        return before, after

    def _float_only(self, formals: Any, position: int, constraints: Mapping[str, set[str]], name: str) -> bool:
        if not formals or not name:
            return False
        formal = formals[min(position, len(formals) - 1)]
        allowed = constraints.get(formal.type_str, {formal.type_str})
        if "tensor(float)" not in allowed or "tensor(double)" in allowed:
            return False
        known = self.types.get(name, 0)
        # Without a type, only a formal that admits nothing but floats is sure to hold one.
        return known in _FLOATS or (not known and all("float" in a for a in allowed))

    def _schema(self, node: onnx.NodeProto) -> onnx.defs.OpSchema | None:
        version = self.opsets.get(node.domain, self.opsets.get("ai.onnx" if not node.domain else "", 0))
        try:
            return onnx.defs.get_schema(node.op_type, version, "" if node.domain == "ai.onnx" else node.domain)
        except onnx.defs.SchemaError:
            return None

    def _fresh(self, stem: str) -> str:
        name, count = stem, 1
        while name in self.used:
            name, count = f"{stem}_{count}", count + 1
        self.used.add(name)
        return name


def _cast(source: str, target: str, to: int) -> onnx.NodeProto:
    return onnx.helper.make_node("Cast", [source], [target], name=f"{target}_cast", to=int(to))


def _widen_type(proto: onnx.TypeProto) -> None:
    kind = proto.WhichOneof("value")
    if kind in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, kind)
        if tensor.elem_type in _FLOATS:
            tensor.elem_type = TensorProto.DOUBLE
    elif kind in ("sequence_type", "optional_type"):
        _widen_type(getattr(proto, kind).elem_type)
    elif kind == "map_type":
        _widen_type(proto.map_type.value_type)


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _FLOATS:
        wide = numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)
        tensor.CopyFrom(wide)


def _widen_constant(node: onnx.NodeProto) -> None:
    """value_float and value_floats always mean float32, so they become a tensor."""
    for attribute in node.attribute:
        if attribute.name in ("value_float", "value_floats") and not attribute.ref_attr_name:
            value = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.array(value, dtype=np.float64))
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))
