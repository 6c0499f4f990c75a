"""A linker that moves along a graph, and knows the order of the nodes that it has found and put there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import onnx_ir as ir

from gradgen.engine.link import Linker


class Rewriter(Linker):
    """Moves from node to node of a graph, and puts nodes in front of where it is.

    Attributes:
        places: of each node that was found or put, in lexicographic order. One at (…, n) has those that were put in
            front of it at (…, n − 1, k), k growing, and those behind it at (…, n, −k): what is put later is nearer.
        put: the nodes that it has put, the first one first.
    """

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.places: dict[ir.Node, tuple[int, ...]] = {node: (i,) for i, node in enumerate(self.graph)}
        self.put: list[ir.Node] = []
        self._behind = False

    def append(self, node: ir.Node) -> None:
        """Put a node at the rewriter's place."""
        assert self._anchor is not None, "a rewriter is somewhere in its graph"
        self.put.append(node)
        if self._behind:
            self.graph.insert_after(self._anchor, node)
            self.places[node] = (*self.places[self._anchor], -len(self.put))
            return
        super().append(node)
        *outer, last = self.places[self._anchor]
        self.places[node] = (*outer, last - 1, len(self.put))

    def before(self, node: ir.Node) -> AbstractContextManager[None]:
        """Put nodes in front of another one of the graph's for a while."""
        return self._at(node, behind=False)

    def behind(self, node: ir.Node) -> AbstractContextManager[None]:
        """Put nodes right behind another one of the graph's for a while."""
        return self._at(node, behind=True)

    @contextmanager
    def _at(self, node: ir.Node, behind: bool) -> Iterator[None]:
        was = self._anchor, self._behind
        self._anchor, self._behind = node, behind
        try:
            yield
        finally:
            self._anchor, self._behind = was

    def precedes(self, value: ir.Value, node: ir.Node) -> bool:
        """Whether a value, of this graph or one around it, is there before a node of this graph."""
        producer = value.producer()
        if producer is None or producer.graph is not self.graph:
            return True
        return producer in self.places and self.places[producer] < self.places[node]
