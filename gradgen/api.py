"""The public calls: gradient models of models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gradgen.engine.derive import derive
from gradgen.engine.knowledge import CONSTANT_MARK
from gradgen.engine.prepare import Model, prepare
from gradgen.engine.reading import read
from gradgen.engine.registry import Registry, Rules, registry_of
from gradgen.engine.walk import pull
from gradgen.errors import GradientError
from gradgen.request import parameter_values, stored_parameters
from gradgen.rules.lang import OPSET
from gradgen.transforms.checkpoint import Checkpoint
from gradgen.transforms.common import Call, begin, check_reduce, paused_collector
from gradgen.transforms.seeds import stacked_vjp


@dataclass(frozen=True)
class Options:
    """What a call asks for beside the values: see `vjp` and `value_and_grad`.

    `apart` says that the backward pass will be cut off and run later, as a model of its own.
    """

    inline: bool = True
    straight_through: bool = False
    registry: Registry | None = None
    reduce: str | None = None
    portable: bool = False
    seeds: int | str | None = None
    checkpoint: Sequence[str] | str | None = None
    apart: bool = False


def vjp(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    inline: bool = True,
    straight_through: bool = False,
    portable: bool = False,
    registry: Registry | None = None,
    seeds: int | str | None = None,
    checkpoint: Sequence[str] | str | None = None,
) -> Any:
    """The vector–Jacobian product of a model, as a model.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        wrt: names (or globs) of graph inputs, initializers or intermediate values; by default the float inputs
            that have no initializer.
        of: names of float outputs or intermediate values (which become outputs); by default every float output.
        inline: False keeps calls into the function library, for reading.
        straight_through: pass gradients through quantisation, where the true derivative is zero: to the input inside
            the range, to the scale by the learned-step-size rule. By default a GradientWarning names what stops them.
        portable: emit, where engines beside onnxruntime lack a form, another standard one that they have: see
            docs/portability.md.
        registry: rules to use in place of the registered ones.
        seeds: how many cotangents are pulled back at once, a number or the name of a dimension: they lie along a new
            leading axis of `grad_<output>` and so do their results in `grad_<name>`. The forward pass runs once.
        checkpoint: names (or globs) of values that are kept for the backward pass, or "auto": what it needs of the
            values between them is computed anew when it gets there, which takes time and saves memory. Random nodes
            draw once.

    Returns:
        A model of the kind that was handed in (a ModelProto for a path). Its inputs are the model's own, then
        `grad_<output>` for each of `of`: the cotangents, with the outputs' shapes and types. Its outputs are the
        model's own, then `grad_<name>` for each of `wrt`, in the order asked, with the shape and type of that value.
        Where one of these names is taken, `grad2_`, `grad3_`, … is used throughout; the model's metadata
        `gradgen.names` maps each public name to its role and source.

    Raises:
        GradientError: for names that do not exist, values that are not float, a path through ops without a rule
            (all of them are listed), and models that are not valid.
    """
    options = Options(inline, straight_through, registry, portable=portable, seeds=seeds, checkpoint=checkpoint)
    return differentiated(model, wrt, of, "vjp", options)


def value_and_grad(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    reduce: str | None = None,
    inline: bool = True,
    straight_through: bool = False,
    portable: bool = False,
    registry: Registry | None = None,
    checkpoint: Sequence[str] | str | None = None,
) -> Any:
    """The outputs of a model and the gradient of a scalar one, as a model.

    As `vjp`, but `of` (one element each; several are added) is seeded with 1, so the result has no cotangent inputs.
    `reduce="sum"` differentiates the sum of the elements of outputs that have more than one. `reduce="element"`
    differentiates one element, chosen when the model runs: an input `index_<output>`, int64 of shape [rank of the
    output], holds its index, in which negative numbers count from the end (an output of rank 0 needs none).
    """
    options = Options(inline, straight_through, registry, reduce, portable, checkpoint=checkpoint)
    return differentiated(model, wrt, of, "value_and_grad", options)


def grad(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    reduce: str | None = None,
    inline: bool = True,
    straight_through: bool = False,
    portable: bool = False,
    registry: Registry | None = None,
    checkpoint: Sequence[str] | str | None = None,
) -> Any:
    """The gradient of a scalar output alone: `value_and_grad` without the primal outputs."""
    options = Options(inline, straight_through, registry, reduce, portable, checkpoint=checkpoint)
    return differentiated(model, wrt, of, "grad", options)


def parameters(model: Model, *, registry: Registry | None = None) -> list[str]:
    """The names of a model's trainable initializers: the float ones that a rule differentiates, in the model's order.

    Where a model has none and keeps its weights in Constant nodes, the outputs of those of rank 1 and more. Constants
    that gradgen has added to a gradient model are no parameters.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        registry: rules to use in place of the registered ones.

    Raises:
        GradientError: for what is no valid model.
    """
    registry = registry_of(registry)
    with paused_collector(model):
        if names := stored_parameters(read(model)[0], registry):
            return names
        for types in (False, True):  # Constants that hold the weights have types only after inference
            prepared = prepare(model, registry, types=types)
            graph = prepared.model.graph
            versions = {**graph.opset_imports, "": max(prepared.opset, OPSET)}
            found = parameter_values(graph, Rules(registry, versions))
            if found:
                break
    return [v.name or "" for v in found]


def differentiated(
    model: Model, wrt: Sequence[str] | str | None, of: Sequence[str] | str | None, kind: str, options: Options
) -> Any:
    """What `vjp`, `value_and_grad` and `grad` give: `kind` is the name of the call."""
    check_reduce(options.reduce)
    registry = registry_of(options.registry)
    with paused_collector(model):
        given = {"inline": options.inline, "straight_through": options.straight_through, "portable": options.portable}
        return _differentiate(begin(model, wrt, of, registry, **given), kind, options)


def _differentiate(call: Call, kind: str, options: Options) -> Any:
    graph, wrt, of, public = call.graph, call.wrt, call.of, call.public
    if options.seeds is not None:
        if options.checkpoint is not None:
            raise GradientError("seeds and checkpoint do not go together: the Scan keeps what its steps read")
        return stacked_vjp(call, options.seeds, options.apart)
    cotangents = public.take("grad", of, "cotangent", beside=wrt) if kind == "vjp" else {}
    gradients = public.take("grad", wrt, "gradient")
    if kind == "vjp":
        seeds = {v: call.input(v, cotangents[v.name or ""]) for v in call.targets}
    else:
        seeds = call.seeds(options.reduce)
    checkpoint = None if options.checkpoint is None else Checkpoint(graph, options.checkpoint, options.apart)
    found, replaced = derive(graph, call.sources, seeds, call.linker, pull=checkpoint.pull if checkpoint else pull)
    silent = [v in call.stopped for v in call.sources]
    call.replace(replaced)
    outputs = call.outputs
    graph.outputs.clear()
    graph.outputs.extend([] if kind == "grad" else outputs)
    for value, ct, name, said in zip(call.sources, found, gradients.values(), silent, strict=True):
        missing = f"'{value.name}' does not influence what is differentiated: its gradient is zero"
        call.output(value, ct, name, "" if said else missing)
    if checkpoint is None:
        return call.finish(cut=options.apart)
    call.linker.knowledge.kept |= checkpoint.borders(replaced)
    return call.finish(lambda: checkpoint.apply(graph, call.linker, replaced), cut=options.apart)


__all__ = ["CONSTANT_MARK", "grad", "parameters", "value_and_grad", "vjp"]
