"""The reverse pass: visits the steps backwards and accumulates cotangents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from gradgen.engine.compound import add
from gradgen.engine.link import Linker
from gradgen.engine.plan import Step, pull_back
from gradgen.engine.structural import reverse_structural


class Cotangents:
    """Contributions to the cotangent of each value, merged when they are asked for."""

    def __init__(self, linker: Linker, seeds: Mapping[ir.Value, ir.Value]):
        self._linker = linker
        self._parts: dict[ir.Value, list[ir.Value]] = {v: [seed] for v, seed in seeds.items()}

    def add(self, value: ir.Value, contribution: ir.Value) -> None:
        """Add a contribution; it has the value's type and shape."""
        if contribution.producer() is not None:
            contribution.type = value.type or contribution.type
            if value.shape is not None:
                contribution.shape = value.shape
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


def reverse(steps: Sequence[Step], seeds: Mapping[ir.Value, ir.Value], linker: Linker) -> Cotangents:
    """Pull the seeds back through the steps; the result holds a cotangent for every value that one reached."""
    cotangents = Cotangents(linker, seeds)
    for step in reversed(steps):
        incoming = [cotangents.total(v) for v in step.outputs]
        if all(ct is None for ct in incoming):
            continue
        pull = reverse_structural if step.form.kind == "structural" else pull_back
        for value, contribution in pull(step, incoming, linker):
            cotangents.add(value, contribution)
    return cotangents
