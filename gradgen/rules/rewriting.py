"""Rewrites the linked backward graph by named patterns that span the rules of several nodes, each one linear pass.

A pattern sees only nodes that gradgen has linked. Forward nodes stay as they are but for `rules/rows.py`, which gives
batches of rows one axis in the whole graph and makes a product and its bias one Gemm, as onnxruntime does.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from gradgen.engine.rewriter import Rewriter
from gradgen.engine.surgery import Outputs, count_uses, is_linked, is_read, is_unread, remove_node
from gradgen.rules.rows import as_matrices

Pattern = Callable[[ir.Node, Any], ir.Value | None]
Registered = dict[str, list[tuple[Pattern, frozenset[str]]]]
# By op: the patterns, and the ops one of which a node has to read from.
PATTERNS: Registered = {}
FIRST: Registered = {}  # of those: what batches are not made matrices through
LAST: Registered = {}  # what the others would not see through

PASSES = 4
# In the order in which the patterns for one op are tried.
MODULES = tuple(f"gradgen.rules.rewrites{part}" for part in ("_linear", "", "_stacks", "_sums"))


def pattern(
    *op_types: str, reads: tuple[str, ...] = (), first: bool = False, last: bool = False
) -> Callable[[Pattern], Pattern]:
    """Register a pattern for nodes of these types that read from a node of one of the types `reads`, if there are any.

    `fn(node, linker)` returns the value that takes the place of the node's result, or None. A pattern that is `first`
    is tried before batches of rows become matrices too; one that is `last` applies when no other does any more.
    """

    def register(fn: Pattern) -> Pattern:
        for op_type in op_types:
            for registered in ([FIRST] if first else []) + [LAST if last else PATTERNS]:
                registered.setdefault(op_type, []).append((fn, frozenset(reads)))
        return fn

    return register


def rewrite(graph: ir.Graph, linker: Any) -> bool:
    """Apply every pattern to every linked node, in order; a few times, since one can make room for another.

    Returns whether any applied.
    """
    for module in MODULES:  # they import this one
        importlib.import_module(module)
    passes = _Passes(graph, linker)
    applied = passes.apply(FIRST)
    if as_matrices(graph, passes.place, passes.outputs):
        passes, applied = _Passes(graph, linker), True
    for _ in range(PASSES):
        if not passes.apply(PATTERNS):
            break
        applied = True
    return passes.apply(LAST) or applied


class _Passes:
    """Passes over a graph that nothing else changes meanwhile."""

    def __init__(self, graph: ir.Graph, linker: Any):
        self._graph = graph
        self.outputs = Outputs(graph)
        self.place = Rewriter.along(linker, graph)
        # Those that a pattern may be for, in order, and how many of the nodes put since then are among them.
        self._nodes = [node for node in self.place.places if _is_candidate(node)]
        self._known = 0
        # Nodes that none of a set of patterns was for, by the id of that, with what they read then.
        self._idle: defaultdict[int, dict[ir.Node, Sequence[ir.Value | None]]] = defaultdict(dict)

    def apply(self, registered: Registered) -> bool:
        """One pass of patterns over the linked nodes, in order; whether any applied."""
        applied, graph, place, idle = False, self._graph, self.place, self._idle[id(registered)]
        for node in self._nodes:
            patterns = registered.get(node.op_type)
            if patterns is None or node.graph is not graph or idle.get(node) is node.inputs:
                continue
            read = [p.op_type for v in node.inputs if v is not None and (p := v.producer()) is not None]
            tried = [fn for fn, reads in patterns if not reads or not reads.isdisjoint(read)]
            if not tried:
                idle[node] = node.inputs
                continue
            if not is_read(node.outputs[0]):
                continue
            place.move(node)
            for fn in tried:
                value = fn(node, place)
                if value is not None and _replace(node.outputs[0], value, self.outputs):
                    _drop(node, graph)
                    applied = True
                    break
        self._nodes += [node for node in place.put[self._known :] if _is_candidate(node)]
        self._nodes.sort(key=place.places.__getitem__)
        self._known = len(place.put)
        return applied


def _is_candidate(node: ir.Node) -> bool:
    return (node.op_type in PATTERNS or node.op_type in LAST) and not node.domain and is_linked(node)


def _replace(old: ir.Value, new: ir.Value, outputs: Outputs) -> bool:
    """Let a value take another's place; False where that is a public output and the new one is not free to be."""
    if old.is_graph_output():
        if new.is_graph_output() or not is_linked(new.producer()):
            return False
        old.name, new.name = f"{old.name}/replaced", old.name
        new.type, new.shape = old.type, old.shape
        outputs.replace(old, new)
    old.replace_all_uses_with(new)
    return True


def _drop(node: ir.Node, graph: ir.Graph) -> None:
    """Remove a node that nobody reads any more, and what only it read."""
    pending = [node]
    while pending:
        dead = pending.pop()
        if dead.graph is not graph or not is_linked(dead) or not is_unread(dead):
            continue
        producers = {p for v in dead.inputs if v is not None and (p := v.producer()) is not None}
        remove_node(dead)
        pending.extend(producers)


def only_reader(value: ir.Value) -> bool:
    """Whether a value has one use, so that what computes it goes when that use does."""
    return count_uses(value) == 1 and not value.is_graph_output()


def own_producer(value: ir.Value | None, op_types: tuple[str, ...]) -> ir.Node | None:
    """The linked node of one of these types that computes a value which nothing else reads."""
    node = value.producer() if value is not None else None
    if node is None or value is None or node.domain or node.op_type not in op_types:
        return None
    return node if is_linked(node) and only_reader(value) else None
