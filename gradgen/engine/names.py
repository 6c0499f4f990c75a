"""Names: unique ones for values and nodes, public ones that never collide."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import onnx_ir as ir

from gradgen.wording import shortened


class Names:
    """All names of a graph and its subgraphs, to which unique ones are added."""

    def __init__(self, taken: Iterable[str] = ()):
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    @classmethod
    def of(cls, graph: ir.Graph) -> Names:
        """The names of all values and nodes of a graph, subgraphs included."""
        from gradgen.engine.subgraphs import every_node, graphs

        names = cls(graph.initializers)
        names._taken.update(v.name for v in graph.inputs if v.name)
        for node in every_node(graph):
            if node.name:
                names._taken.add(node.name)
            names._taken.update([v.name for v in node.outputs if v.name])
            names._taken.update([v.name for v in node.inputs if v is not None and v.name])
            for inner in graphs(node):
                names._taken.update(v.name for v in inner.inputs if v.name)
                names._taken.update(inner.initializers)
        return names

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def add(self, name: str) -> str:
        """Take a name that must be free."""
        self._taken.add(name)
        return name

    def unique(self, base: str, whole: bool = False) -> str:
        """A free name that starts with `base`, shortened if it is very long and need not be `whole`; it is now taken."""
        base = base if whole else shortened(base)
        if base not in self._taken:
            return self.add(base)
        for k in itertools.count(self._next.get(base, 1)):
            name = f"{base}_{k}"
            if name not in self._taken:
                self._next[base] = k + 1
                return self.add(name)
        raise AssertionError


def free_prefix(stem: str, names: Iterable[str], taken: Names, after: str = "") -> str:
    """`<stem>_`, or `<stem>2_`, `<stem>3_`, …: the first with which none of the wanted names is taken.

    `after` is such a prefix, where the search starts.
    """
    wanted = list(names)
    for k in itertools.count(int(after[len(stem) : -1] or 1)):
        prefix = f"{stem}_" if k == 1 else f"{stem}{k}_"
        if not any(prefix + name in taken for name in wanted):
            return prefix
    raise AssertionError
