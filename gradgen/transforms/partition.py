"""Divides a gradient graph in two, where the fewest bytes have to be kept: a minimal cut."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet

import onnx_ir as ir

from gradgen.engine.contract import ir_shape
from gradgen.engine.subgraphs import graphs, operands

OPEN_SIZE = 64  # what a free dimension counts as
COMPOUND = 1 << 24  # what a sequence, an optional or a tensor of unknown rank counts as
SMALL = 64  # elements: an integer tensor of a known size up to this costs nothing, as shapes and axes do
_SOURCE, _SINK = "source", "sink"

Draws = Callable[[ir.Node], bool]


def kept_values(
    graph: ir.Graph,
    needed: Sequence[ir.Value],
    given: Sequence[ir.Value],
    results: Sequence[ir.Value],
    held: AbstractSet[ir.Value],
    draws: Draws,
) -> list[ir.Value]:
    """What to keep where a graph is divided into what runs at once and what runs later, when more is given.

    Args:
        graph: the graph.
        needed: values that are computed at once, as is all on which they depend.
        given: inputs that are given later; all that depends on them is computed then.
        results: values that are computed later, whatever they depend on.
        held: values that are there later without being kept.
        draws: whether a node draws random numbers; such a node runs at once.

    Returns:
        The values that cross, in the order in which they are computed. Nodes that neither side asks for lie where these
        take fewest bytes; where that is equal, they run later. Constants, and arithmetic on shapes of what is there,
        are left to both sides.
    """
    fixed = ancestors(needed)
    later = {producer for v in results if (producer := v.producer()) is not None}
    reached = set(given)
    for node in graph:
        if node in later or any(v in reached for v in operands(node)):
            later.add(node)
            reached.update(node.outputs)
    both = _cheap_nodes(graph, later, held, draws)
    costless = {*held, *(v for n in both for v in n.outputs)}
    costless |= {v for n in later for v in operands(n) if v.producer() is None or v.producer() in fixed}
    network = _Network(costless)
    for node in graph:
        if node not in fixed and node not in later and node not in both:
            network.add(node, draws(node))
    for node in later:
        network.end(node)
    at_once = network.source_side()
    later |= {n for n in graph if n not in fixed and n not in both and n not in at_once}
    kept = _crossing(graph, later, both, held)
    both = _cheap_nodes(graph, later, {*held, *(v for v in kept if not is_small(v))}, draws)
    return _crossing(graph, later, both, held)


def _crossing(graph: ir.Graph, later: set[ir.Node], both: set[ir.Node], held: AbstractSet[ir.Value]) -> list[ir.Value]:
    """The values that have to be kept, in the order in which they are computed."""
    needed = set(later)
    for node in reversed(graph):
        if node in needed:
            needed.update(p for v in operands(node) if (p := v.producer()) in both and v not in held)
    read = {v for n in needed for v in operands(n) if v not in held and v.producer() not in needed}
    order = [*graph.inputs, *(v for n in graph for v in n.outputs)]
    return [v for v in order if v in read]


def _cheap_nodes(graph: ir.Graph, later: set[ir.Node], there: AbstractSet[ir.Value], draws: Draws) -> set[ir.Node]:
    """The nodes that cost nothing and need no more than what is there."""
    known, found = set(there), set()
    for node in graph:
        if node not in later and all(v in known for v in operands(node)) and is_cheap(node, draws):
            found.add(node)
            known.update(node.outputs)
    return found


def ancestors(values: Iterable[ir.Value]) -> set[ir.Node]:
    """The nodes on which values depend."""
    found: set[ir.Node] = set()
    pending = [v.producer() for v in values]
    while pending:
        node = pending.pop()
        if node is None or node in found:
            continue
        found.add(node)
        pending.extend(v.producer() for v in operands(node))
    return found


def size_of(value: ir.Value) -> int:
    """About how many bytes a value takes, each free dimension counted as `OPEN_SIZE`."""
    shape = ir_shape(value)
    if not isinstance(value.type, ir.TensorType) or shape is None or value.dtype is None:
        return COMPOUND
    count = math.prod(d if isinstance(d, int) else OPEN_SIZE for d in shape)
    return math.ceil(count * value.dtype.itemsize)


def is_small(value: ir.Value) -> bool:
    """Whether a value is a few integers: a shape, axes, an index."""
    shape = ir_shape(value)
    if not isinstance(value.type, ir.TensorType) or shape is None or value.dtype is None:
        return False
    known = all(isinstance(d, int) for d in shape)
    return known and (value.dtype.is_integer() or value.dtype == ir.DataType.BOOL) and math.prod(shape) <= SMALL  # type: ignore[arg-type]


def is_cheap(node: ir.Node, draws: Draws) -> bool:
    """Whether running a node twice costs nothing: a constant, or arithmetic on shapes."""
    if node.domain or graphs(node) or draws(node):
        return False
    return node.op_type == "Constant" or all(is_small(v) for v in node.outputs if v.name)


class _Network:
    """A flow network over the nodes that may run at once or later, and the values between them.

    A value costs its bytes where its producer runs at once and a reader later. Infinite edges keep a reader behind its
    producer. Values that cost nothing hold no parts together, so that each connected part is cut by itself.
    """

    def __init__(self, costless: AbstractSet[ir.Value]):
        self._costless = costless
        self._edges: dict[object, dict[object, float]] = {_SOURCE: {}, _SINK: {}}
        self._found: set[object] | None = None

    def _edge(self, start: object, end: object, capacity: float) -> None:
        self._edges.setdefault(start, {})[end] = capacity
        self._edges.setdefault(end, {}).setdefault(start, 0)

    def _cost(self, value: ir.Value) -> int:
        return 0 if value in self._costless or is_small(value) else size_of(value)

    def add(self, node: ir.Node, at_once: bool) -> None:
        """A node that may run on either side; `at_once` binds it to the first."""
        if at_once:
            self._edge(_SOURCE, node, math.inf)
        for value in dict.fromkeys(operands(node)):
            producer = value.producer()
            if producer in self._edges:
                self._edge(value, node, math.inf)
                self._edge(node, producer, math.inf)
            elif cost := self._cost(value):
                self._edge(_SOURCE, value, cost)
                self._edge(value, node, math.inf)
        self._edges.setdefault(node, {})
        for value in node.outputs:
            self._edge(node, value, self._cost(value))

    def end(self, node: ir.Node) -> None:
        """A node that runs later."""
        for value in dict.fromkeys(operands(node)):
            if value in self._edges and value.producer() in self._edges:
                self._edge(value, _SINK, math.inf)

    def source_side(self) -> set[object]:
        """What runs at once: as little as a minimal cut allows."""
        if self._found is None:
            self._found = set()
            for part in self._parts():
                self._found |= self._cut(part)
        return self._found

    def _parts(self) -> Iterator[set[object]]:
        """The connected parts of the network without its ends; an edge that costs nothing connects only the ends."""
        seen: set[object] = {_SOURCE, _SINK}
        for start in self._edges:
            if start in seen:
                continue
            part, pending = {start}, [start]
            seen.add(start)
            while pending:
                here = pending.pop()
                for other, capacity in self._edges[here].items():
                    if other not in seen and (capacity or self._edges[other][here]):
                        seen.add(other)
                        part.add(other)
                        pending.append(other)
            yield part

    def _cut(self, part: set[object]) -> set[object]:
        """The source side of a part's minimal cut: augmenting paths by breadth-first search."""
        starts = [n for n in self._edges[_SOURCE] if n in part]
        while True:
            before: dict[object, object] = {}
            pending: deque[object] = deque()
            for node in starts:
                if self._edges[_SOURCE][node] > 0:
                    before[node] = _SOURCE
                    pending.append(node)
            end = None
            while pending and end is None:
                here = pending.popleft()
                for other, capacity in self._edges[here].items():
                    if capacity > 0 and other not in before and other is not _SOURCE:
                        before[other] = here
                        if other is _SINK:
                            end = other
                            break
                        pending.append(other)
            if end is None:
                return set(before)
            path: list[object] = [end]
            while path[-1] is not _SOURCE:
                path.append(before[path[-1]])
            steps = list(zip(path[1:], path, strict=False))
            flow = min(self._edges[a][b] for a, b in steps)
            for a, b in steps:
                self._edges[a][b] -= flow
                self._edges[b][a] += flow
