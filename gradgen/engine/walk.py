"""The reverse pass: visits the steps backwards and accumulates cotangents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import onnx_ir as ir

from gradgen.engine.compound import add
from gradgen.engine.contract import conform, learns
from gradgen.engine.link import Linker
from gradgen.engine.plan import Step, pull_back
from gradgen.engine.structural import reverse_structural

Pull = Callable[[Step, Sequence[ir.Value | None], Linker], Iterable[tuple[ir.Value, ir.Value]]]
HINT = (
    ": the cotangent of a value has its type and shape; in the rule, sum_to undoes broadcasting and CastLike a change "
    "of type; or the model declares another shape for an output of the node than the op gives it"
)


class Cotangents:
    """Contributions to the cotangent of each value, merged when they are asked for."""

    def __init__(self, linker: Linker, seeds: Mapping[ir.Value, ir.Value]):
        self._linker = linker
        self._parts: dict[ir.Value, list[ir.Value]] = {v: [seed] for v, seed in seeds.items()}

    def add(self, value: ir.Value, contribution: ir.Value, label: str = "") -> None:
        """Add a contribution, which has the value's type and shape; `label` says who made it.

        Raises:
            GradientError: its type or shape contradicts that of the value.
        """
        producer = contribution.producer()
        if producer is not None and producer.graph is not self._linker.graph and learns(contribution, value):
            # What holds in a branch or in a body is not true of the outer value: another branch may know otherwise.
            own = ir.Value(name=value.name, type=contribution.type, shape=contribution.shape)
            contribution = self._linker.node("Identity", [contribution], own, f"{value.name}/cotangent")
        conform(contribution, value, label, HINT)
        self._parts.setdefault(value, []).append(contribution)

    def values(self) -> list[ir.Value]:
        """The values that a contribution reached."""
        return list(self._parts)

    def total(self, value: ir.Value) -> ir.Value | None:
        """The cotangent, or None where nothing arrived; several contributions are added by a tree."""
        parts = self._parts.get(value)
        if parts is None:
            return None
        while len(parts) > 1:
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [p[0] if len(p) == 1 else add(self._linker, p, value) for p in pairs]
        self._parts[value] = parts
        return parts[0]


def pull(step: Step, incoming: Sequence[ir.Value | None], linker: Linker) -> list[tuple[ir.Value, ir.Value]]:
    """Apply a step's rule; returns (value, contribution) pairs."""
    apply = reverse_structural if step.form.kind == "structural" else pull_back
    return apply(step, incoming, linker)


def reverse(steps: Sequence[Step], seeds: Mapping[ir.Value, ir.Value], linker: Linker, pull: Pull = pull) -> Cotangents:
    """Pull the seeds back through the steps; the result holds a cotangent for every value that one reached."""
    cotangents = Cotangents(linker, seeds)
    for step in reversed(steps):
        incoming = [cotangents.total(v) for v in step.outputs]
        if all([ct is None for ct in incoming]):
            continue
        label = f"{step.origin}: rule '{step.form.rule}'"
        for value, contribution in pull(step, incoming, linker):
            cotangents.add(value, contribution, label)
    return cotangents
