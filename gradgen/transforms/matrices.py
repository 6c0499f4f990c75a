"""Jacobians and Hessians: models that run a derivative once for each element, in a Scan over one-hot seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from gradgen.arguments import check_switches
from gradgen.engine.compound import zeros
from gradgen.engine.contract import ir_shape
from gradgen.engine.derive import derive
from gradgen.engine.link import Linker
from gradgen.engine.prepare import Model
from gradgen.engine.registry import Registry, registry_of
from gradgen.errors import GradientError
from gradgen.transforms.batched import repeat, typed
from gradgen.transforms.common import Call, begin, check_reduce, paused_collector
from gradgen.transforms.one_hot import Basis, shape_of, size_of
from gradgen.transforms.seeds import pull_back, settle
from gradgen.transforms.transpose import push_forward, refuse_nonlinear, with_mark

MODES = (None, "forward", "reverse")


def jacobian(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    per_sample: bool = False,
    mode: str | None = None,
    inline: bool = True,
    straight_through: bool = False,
    portable: bool = False,
    registry: Registry | None = None,
) -> Any:
    """The Jacobians of a model's outputs, as a model.

    The forward pass runs once. Then, in a Scan, the backward pass runs once for each element of what is differentiated,
    or the forward-mode derivative once for each element of `wrt`.

    Args:
        model, wrt, of, inline, straight_through, portable, registry: as for `vjp`.
        per_sample: the first axis of each of `of` and `wrt` is that of the samples of a batch, none of which influences
            another: the Jacobian of each sample, with one step for each element of one sample.
        mode: "reverse" takes one step for each element of `of`, "forward" for each element of `wrt`; by default what
            takes fewer steps, where all sizes are known and `inline` is True, and else "reverse".

    Returns:
        A model of the kind that was handed in, with the model's inputs. Its outputs are the model's own, then
        `jacobian_<y>_<x>` for each y of `of` and each x of `wrt`, of the shape of y followed by that of x; with
        `per_sample`, of the shape of y followed by that of x without its first axis. Where one of these names is taken,
        `jacobian2_`, `jacobian3_`, … is used throughout.

    Raises:
        GradientError: as `vjp` does, and in forward mode as `jvp`; for values that are no tensors; with `per_sample`, for
            values that have no axis of samples, or other numbers of them.
    """
    check_switches(per_sample=per_sample, inline=inline)
    if mode not in MODES:
        raise GradientError(f"mode is None, 'forward' or 'reverse', not {mode!r}")
    if mode == "forward" and not inline:
        raise GradientError("forward mode goes through the bodies of the rules: inline=False goes with mode='reverse'")
    with paused_collector(model):
        rules = with_mark(registry_of(registry))
        given = {"inline": inline, "straight_through": straight_through, "portable": portable}
        call = begin(model, wrt, of, rules, **given)
        names, lead = call.public.take_pairs("jacobian", call.of, call.wrt), 1 if per_sample else 0
        _check_tensors(call, per_sample, mode)
        rows, columns = size_of(call.targets, lead), size_of(call.sources, lead)
        if mode is None and inline and rows is not None and columns is not None:
            mode = "forward" if columns < rows else "reverse"
        if mode == "forward":
            seeds, results = _push(call)
        else:
            seeds, results = pull_back(call)
        _tabulate(call, names, seeds, results, call.targets, mode == "forward", lead)
        return call.deliver()


def hessian(
    model: Model,
    wrt: Sequence[str] | str | None = None,
    of: Sequence[str] | str | None = None,
    *,
    reduce: str | None = None,
    inline: bool = True,
    straight_through: bool = False,
    portable: bool = False,
    registry: Registry | None = None,
) -> Any:
    """The Hessian of a scalar output, as a model: its gradient is derived once for each element of `wrt`, in a Scan.

    Args:
        model, wrt, inline, straight_through, portable, registry: as for `vjp`.
        of, reduce: as for `value_and_grad`.

    Returns:
        A model of the kind that was handed in. Its outputs are the model's own, then `hessian_<x>_<z>` for each x and
        each z of `wrt`: the second derivatives, of the shape of x followed by that of z. Where one of these names is
        taken, `hessian2_`, `hessian3_`, … is used throughout.

    Raises:
        GradientError: as `value_and_grad` does; and for rules that are declared not to be linear in their cotangents.
    """
    check_reduce(reduce)
    with paused_collector(model):
        given = {"inline": inline, "straight_through": straight_through, "portable": portable}
        call = begin(model, wrt, of, registry_of(registry), **given)
        names, linker = call.public.take_pairs("hessian", call.wrt, call.wrt), call.linker
        # The bodies of the first rules are there to be derived, even where calls remain of the second ones.
        known = (call.graph, linker.registry, linker.opset, linker.knowledge, linker.names, linker.constants)
        found, replaced = derive(call.graph, call.sources, call.seeds(reduce, "Hessian"), Linker(*known))
        call.replace(replaced)
        gradients: list[ir.Value] = []
        for value, gradient in zip(call.sources, found, strict=True):
            if gradient is None:
                gradient = zeros(linker, value)
            elif gradient in gradients or gradient in call.sources:
                gradient = linker.node("Identity", [gradient], value, f"{value.name}/gradient")
            gradients.append(gradient)
        seeds, results = pull_back(call, gradients, warns=False)
        refuse_nonlinear(linker)
        _tabulate(call, names, seeds, results, call.sources, False, 0)
        return call.deliver()


def _push(call: Call) -> tuple[list[ir.Value], list[ir.Value]]:
    """Append the tangents of a call's targets; what stands for the tangents of its sources, and the results."""
    tangents = [call.linker.value(f"{v.name}/tangent", v) for v in call.sources]
    found, replaced = push_forward(call.graph, call.sources, call.targets, tangents, call.linker)
    refuse_nonlinear(call.linker)
    call.replace(replaced)
    missing = [
        "" if call.stopped else f"'{v.name}' does not depend on what is varied: its derivative is zero"
        for v in call.targets
    ]
    return tangents, settle(call, call.targets, found, missing)


def _check_tensors(call: Call, per_sample: bool, mode: str | None) -> None:
    """Refuse values that have no Jacobian, and samples that do not match."""
    samples: dict[int, str] = {}
    if mode == "forward" and (unknown := [v for v in call.targets if v.shape is None]):
        raise GradientError(
            f"forward mode asks for ranks, and that of '{unknown[0].name}' is unknown: use mode='reverse'"
        )
    for value in (*call.targets, *call.sources):
        shape = ir_shape(value)
        if not isinstance(value.type, ir.TensorType):
            raise GradientError(f"'{value.name}' is no tensor, and a Jacobian is that of tensors: use vjp")
        if per_sample and not shape:
            kind = "a scalar" if shape == () else "of unknown rank"
            raise GradientError(f"per_sample: '{value.name}' is {kind}, and so has no axis of samples")
        if shape and isinstance(shape[0], int):
            samples.setdefault(shape[0], value.name or "")
    if per_sample and len(samples) > 1:
        listed = ", ".join(f"{count} in '{name}'" for count, name in samples.items())
        raise GradientError(f"per_sample: the first axis is that of the samples, and there are {listed}")


def _tabulate(
    call: Call,
    names: dict[tuple[str, str], str],
    seeds: Sequence[ir.Value],
    results: Sequence[ir.Value],
    rows: Sequence[ir.Value],
    forward: bool,
    lead: int,
) -> None:
    """Run a derivative for one-hot seeds, and make the results outputs of the model.

    Args:
        call: the call; its graph holds the derivative.
        names: the names of the outputs, by row and column.
        seeds, results: what stands for the cotangents (or tangents), and what the derivative makes of them.
        rows: the values whose elements come first in the shape of a result; those of `wrt` come second.
        forward: whether the seeds are those of `wrt`.
        lead: how many leading axes the samples of a batch have, 0 or 1.
    """
    graph, linker = call.graph, call.linker
    seeded, others = (call.sources, rows) if forward else (rows, call.sources)
    basis = Basis(linker, seeded, lead)
    found = repeat(linker, seeds, results, others, [basis.positions], basis.steps, basis.seeds)
    blocks = {}
    for row, column in np.ndindex(len(seeded), len(others)):
        part = basis.part(row, found[column])
        blocks[(column, row) if forward else (row, column)] = _arranged(linker, part, forward, lead)
    for (y, x), name in zip(np.ndindex(len(rows), len(call.sources)), names.values(), strict=True):
        graph.outputs.append(_block(linker, blocks[y, x], rows[y], call.sources[x], lead, name))
    call.simplify()


def _arranged(linker: Linker, part: ir.Value, forward: bool, lead: int) -> ir.Value:
    """The steps moved to their axis: behind that of the samples, in forward mode behind all others."""
    if not forward and not lead:
        return part
    shape = ir_shape(part)
    assert shape is not None
    axes = [*range(1, len(shape))]
    perm = [*axes, 0] if forward else [*axes[:lead], 0, *axes[lead:]]
    like = typed(part, tuple(shape[a] for a in perm))
    return linker.node("Transpose", [part], like, f"{part.name}/arranged", perm=perm)


def _block(linker: Linker, value: ir.Value, y: ir.Value, x: ir.Value, lead: int, name: str) -> ir.Value:
    """The public output of the shape of y followed by that of x."""
    first, second = ir_shape(y), ir_shape(x)
    shape = None if first is None or second is None else (*first, *second[lead:])
    like = typed(value, shape)
    if shape is not None and all(isinstance(d, int) for d in shape):
        target = linker.constants.get(np.asarray(shape, np.int64))
    else:
        whole = typed(value, (None if shape is None else len(shape),), ir.DataType.INT64)
        parts = [shape_of(linker, y, 0), shape_of(linker, x, lead)]
        target = linker.node("Concat", parts, whole, f"{name}/shape", axis=0)
    result = linker.node("Reshape", [value, target], like, f"{name}/block", allowzero=1)
    return linker.publish(result, name, like)


__all__ = ["hessian", "jacobian"]
