"""Rules of sequence and optional types. A cotangent has the type of its value: one tensor for each element.

They work on the values of the graph, not on typed tensors, so they are structural rules.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from gradgen.engine.compound import BOOL, INT64, element, is_sequence, map_elements
from gradgen.engine.flow import Flow
from gradgen.errors import GradientError
from gradgen.rules.lang import structural

_INT64 = ir.TensorType(ir.DataType.INT64)


@structural
def sequenceconstruct_vjp(context):
    """dinput_k = doutput[k]."""
    (ct,) = context.cotangents
    return [
        (value, context.emit_one("SequenceAt", [ct, context.constant(k)], value))
        for k, value in enumerate(context.inputs)
        if value in context.step.active
    ]


@structural
def sequenceat_vjp(context):
    """dinput = zeros for every element but the one that was read."""
    (ct,), (sequence, position) = context.cotangents, context.inputs
    if (direct := _without_the_sequence(context, sequence, position, ct)) is not None:
        return direct
    others = context.emit_one("SequenceErase", [context.zeros(sequence), position], sequence)
    return [
        (sequence, context.emit_one("SequenceInsert", [others, ct, _from_start(context, sequence, position)], sequence))
    ]


def _without_the_sequence(context, sequence, position, ct):
    """The contribution to what the sequence was made of, where the position is known: no zeros are needed."""
    maker, index = sequence.producer(), context.linker.knowledge.constant(position)
    if index is None or maker is None or maker.graph is not context.node.graph or sequence in context.step.sources:
        return None
    k = int(index)
    if maker.op_type == "SequenceConstruct" and -len(maker.inputs) <= k < len(maker.inputs):
        return [(maker.inputs[k], ct)]
    if maker.op_type != "SplitToSequence":
        return None
    axis, whole = _attribute(maker, "axis", 0), maker.inputs[0]
    split = maker.inputs[1] if len(maker.inputs) > 1 else None
    if split is None and not _attribute(maker, "keepdims", 1):
        return context.pull("Gather", [whole, context.constant(k)], ct, axis=axis)
    sizes = np.asarray(1) if split is None else context.linker.knowledge.constant(split)
    if sizes is None or k < 0:
        return None
    start, size = (k * int(sizes), int(sizes)) if sizes.ndim == 0 else (int(sizes[:k].sum()), int(sizes[k]))
    bounds = [context.linker.constants.get(np.asarray([n], np.int64)) for n in (start, start + size, axis)]
    return context.pull("Slice", [whole, *bounds], ct)


@structural
def sequenceinsert_vjp(context):
    """dtensor = doutput[position], dinput = doutput without it."""
    (ct,), (sequence, tensor, *position) = context.cotangents, context.inputs
    where = context.constant(-1)
    if position and position[0] is not None:
        # A negative position counts from the end of what is one element shorter.
        negative = context.emit_one("Less", [position[0], _alike(context, 0, position[0])], _boolean(position[0]))
        shifted = context.emit_one("Sub", [position[0], _alike(context, 1, position[0])], position[0])
        where = context.emit_one("Where", [negative, shifted, position[0]], position[0])
    pairs = []
    if tensor in context.step.active:
        pairs.append((tensor, context.emit_one("SequenceAt", [ct, where], tensor)))
    if sequence in context.step.active:
        pairs.append((sequence, context.emit_one("SequenceErase", [ct, where], sequence)))
    return pairs


@structural
def sequenceerase_vjp(context):
    """dinput = doutput with zeros where the element was erased."""
    (ct,), (sequence, *position) = context.cotangents, context.inputs
    where = position[0] if position and position[0] is not None else context.constant(-1)
    zero = context.zeros(context.emit_one("SequenceAt", [sequence, where], element(sequence)))
    return [(sequence, context.emit_one("SequenceInsert", [ct, zero, _from_start(context, sequence, where)], sequence))]


@structural
def splittosequence_vjp(context):
    """dinput = the concatenation of the cotangents."""
    node, (ct,) = context.node, context.cotangents
    whole = len(context.inputs) > 1 and context.inputs[1] is not None
    squeezed = not whole and _attribute(node, "keepdims", 1) == 0
    axis = _attribute(node, "axis", 0)
    result = context.emit_one("ConcatFromSequence", [ct], context.inputs[0], axis=axis, new_axis=int(squeezed))
    return [(context.inputs[0], result)]


@structural
def concatfromsequence_vjp(context):
    """dinput = the cotangent, split as the elements were long."""
    node, (ct,), (sequence,) = context.node, context.cotangents, context.inputs
    axis = node.attributes["axis"].value
    if _attribute(node, "new_axis", 0):
        return [(sequence, context.emit_one("SplitToSequence", [ct], sequence, axis=axis, keepdims=0))]
    one = ir.Value(name=f"{sequence.name}/size", type=_INT64, shape=ir.Shape([1]))
    bounds = {"start": axis} if axis == -1 else {"start": axis, "end": axis + 1}
    sizes = map_elements(
        context.linker,
        [sequence],
        ir.Value(name=one.name, type=ir.SequenceType(_INT64), shape=one.shape),
        lambda inner, items: inner.node("Shape", items, one, one.name, **bounds),
    )
    split = context.emit_one("ConcatFromSequence", [sizes], ir.Value(type=_INT64, shape=ir.Shape([None])), axis=0)
    return [(sequence, context.emit_one("SplitToSequence", [ct, split], sequence, axis=axis))]


@structural
def optional_vjp(context):
    """dinput = what doutput holds."""
    (ct,) = context.cotangents
    return [(v, context.emit_one("OptionalGetElement", [ct], v)) for v in context.inputs if v is not None]


@structural
def optionalgetelement_vjp(context):
    """dinput = doutput as an optional; doutput itself where the input was none."""
    (ct,), (value,) = context.cotangents, context.inputs
    return [(value, context.emit_one("Optional", [ct], value) if isinstance(value.type, ir.OptionalType) else ct)]


def sequencemap_flows(node):
    """The body reads one element of each sequence, and other inputs as they are."""
    enters = tuple((i, i) for i in range(len(node.inputs)))
    return [Flow(node.attributes["body"].value, enters, tuple((k, k) for k in range(len(node.outputs))))]


def as_loop(node, linker):
    """The Loop over the elements that the op stands for."""
    body, base = node.attributes.pop("body").value, node.name or f"{node.outputs[0].name}/map"
    (step, go), scalars = [linker.value(base, like) for like in (INT64, BOOL)], list(body.inputs)
    length = linker.node("SequenceLength", [node.inputs[0]], INT64, f"{base}/length")
    results = {v: v for v in body.outputs}
    inner = linker.within(body).anchored(body[0]) if len(body) else linker.within(body)
    for value, given in zip(scalars, node.inputs, strict=True):
        found = inner.node("SequenceAt", [given, step], element(given), value.name) if is_sequence(given) else given
        value.replace_all_uses_with(found, replace_graph_outputs=False)
        results[value] = found
    outer, before, after = linker.within(body), [], []
    for value, whole in zip(body.outputs, node.outputs, strict=True):
        like = ir.Value(name=whole.name, type=ir.SequenceType(value.type), shape=value.shape)
        before.append(linker.value(whole.name, like))
        after.append(outer.node("SequenceInsert", [before[-1], results[value]], like, whole.name))
    after.insert(0, outer.node("Identity", [go], BOOL, base))
    body.outputs.clear()
    body.outputs.extend(after)
    body.inputs.clear()
    body.inputs.extend([step, go, *before])
    empty = [linker.node("SequenceEmpty", [], ir.Value(type=v.type), v.name, dtype=int(v.dtype)) for v in before]
    return linker.structured("Loop", [length, None, *empty], {"body": body}, before, base)


@structural(flows=sequencemap_flows, rewrite=as_loop)
def sequencemap_vjp(context):
    """Refuses: the Loop that takes the place of the node is what is differentiated."""
    raise GradientError(f"{context.step.origin} (SequenceMap): it should have been rewritten as a Loop")


def _attribute(node, name, default):
    return node.attributes[name].value if name in node.attributes else default


def _boolean(like):
    return ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=like.shape)


def _alike(context, number, like):
    """An integer constant of the type of another value."""
    return context.linker.constants.get(np.asarray(number, like.dtype.numpy()))


def _from_start(context, sequence, position):
    """A position in a sequence as one that is not negative."""
    negative = context.emit_one("Less", [position, _alike(context, 0, position)], _boolean(position))
    length = context.emit_one("SequenceLength", [sequence], ir.Value(type=_INT64, shape=ir.Shape([])))
    if position.dtype != ir.DataType.INT64:
        length = context.emit_one("Cast", [length], position, to=int(position.dtype))
    shifted = context.emit_one("Add", [position, length], position)
    return context.emit_one("Where", [negative, shifted, position], position)
