"""Forward-mode derivatives, `jvp` and `hvp`, from the reverse rules: a vjp is linear in its cotangent, and its transpose
is the jvp."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradgen.engine.derive import derive
from gradgen.engine.prepare import Model
from gradgen.engine.registry import Registry, registry_of
from gradgen.transforms.common import begin, check_reduce, paused_collector
from gradgen.transforms.transpose import push_forward, refuse_nonlinear, with_mark


def jvp(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    straight_through: bool = False,
    portable: bool = False,
    registry: Registry | None = None,
) -> Any:
    """The Jacobian–vector product of a model, as a model: how its outputs move when its inputs move in a direction.

    Args:
        model: a path, an onnx.ModelProto or an onnx_ir.Model. It is not changed.
        wrt: names (or globs) of graph inputs, initializers or intermediate values; by default the float inputs
            that have no initializer.
        of: names of float outputs or intermediate values (which become outputs); by default every float output.
        straight_through: pass derivatives through quantisation, see `vjp`.
        portable: emit forms that engines beside onnxruntime have too, see `vjp`.
        registry: rules to use in place of the registered ones.

    Returns:
        A model of the kind that was handed in (a ModelProto for a path). Its inputs are the model's own, then
        `tangent_<name>` for each of `wrt`, with the shape and type of that value. Its outputs are the model's own, then
        `tangent_<output>` for each of `of`, in the order asked: Σ ∂output/∂name · tangent_name, with the output's shape
        and type. Where one of these names is taken, `tangent2_`, `tangent3_`, … is used throughout; the model's metadata
        `gradgen.names` maps each public name to its role and source.

    Raises:
        GradientError: as `vjp` does; and for rules that are declared not to be linear in their cotangents (clipped or
            guided gradients), which are derivatives of nothing: all of them are listed.
    """
    with paused_collector(model):
        rules = with_mark(registry_of(registry))
        call = begin(model, wrt, of, rules, straight_through=straight_through, portable=portable)
        graph, public = call.graph, call.public
        given = public.take("tangent", call.wrt, "tangent in", beside=call.of)
        names = public.take("tangent", call.of, "tangent out")
        tangents = [call.input(v, name) for v, name in zip(call.sources, given.values(), strict=True)]
        graph.outputs.extend(v for v in call.targets if v not in graph.outputs)
        found, replaced = push_forward(graph, call.sources, call.targets, tangents, call.linker)
        refuse_nonlinear(call.linker)
        call.replace(replaced)
        for value, tangent, name in zip(call.targets, found, names.values(), strict=True):
            missing = f"'{value.name}' does not depend on what is varied: its tangent is zero"
            call.output(value, tangent, name, "" if call.stopped else missing)
        return call.finish()


def hvp(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    reduce: str | None = None,
    straight_through: bool = False,
    portable: bool = False,
    registry: Registry | None = None,
) -> Any:
    """The product of a scalar output's Hessian and a vector, as a model.

    Args:
        model, wrt, straight_through, portable, registry: as for `jvp`.
        of: names of outputs or intermediate values of one element each; several are added. By default every float
            output.
        reduce: "sum" takes the sum of the elements of outputs that have more than one, "element" the one that an input
            `index_<output>` chooses.

    Returns:
        A model of the kind that was handed in. Its inputs are the model's own, then `vector_<name>` for each of `wrt`,
        with the shape and type of that value. Its outputs are `hvp_<name>` for each of `wrt`, alike: with H the Hessian
        with respect to all of `wrt` together, hvp_x = Σ_z H_xz · vector_z. Where one of these names is taken, the next
        prefix is used throughout, as for `jvp`.

    Raises:
        GradientError: as `jvp` does; and for an output of several elements without `reduce`.
    """
    check_reduce(reduce)
    with paused_collector(model):
        rules = with_mark(registry_of(registry))
        call = begin(model, wrt, of, rules, straight_through=straight_through, portable=portable)
        graph, linker, public = call.graph, call.linker, call.public
        given = public.take("vector", call.wrt, "vector in")
        names = public.take("hvp", call.wrt, "hvp out")
        gradients, replaced = derive(graph, call.sources, call.seeds(reduce, "Hessian"), linker)
        call.replace(replaced)
        vectors = [call.input(v, name) for v, name in zip(call.sources, given.values(), strict=True)]
        # Forward over reverse: as many nodes as reverse over reverse, or fewer, and right for a gradient whose rules are
        # no true derivatives too (straight-through), where a Hessian is not symmetric.
        graph.outputs.extend(call.sources)  # what is read for its shape alone stays
        asked = list(dict.fromkeys(v for v in gradients if v is not None))
        pushed, replaced = push_forward(graph, call.sources, asked, vectors, linker, alone=False)
        call.replace(replaced)
        refuse_nonlinear(linker)
        products = dict(zip(asked, pushed, strict=True))
        found = [None if v is None else products[v] for v in gradients]
        graph.outputs.clear()
        for value, product, name in zip(call.sources, found, names.values(), strict=True):
            call.output(value, product, name, f"the gradient does not depend on '{value.name}': its product is zero")
        return call.finish()
