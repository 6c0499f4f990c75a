# Where a gradient graph is cut: beside all other cuts, on random graphs; random nodes stay on the first side.
"""Tests of gradgen.transforms.partition."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import pytest

from gradgen.transforms.partition import kept_values, operands, size_of


@pytest.mark.parametrize("drawn", [False, True])
def test_a_draw_that_only_the_backward_pass_reads_is_made_forward(drawn):
    def value(name):
        return ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([8]))

    x, given, y, noise, back = map(value, ["x", "ct", "y", "noise", "back"])
    nodes = [
        ir.Node("", "Exp", [x], outputs=[y]),
        ir.Node("", "RandomNormalLike", [x], outputs=[noise]),
        ir.Node("", "Mul", [given, noise], outputs=[back]),
    ]
    graph = ir.Graph([x, given], [y, back], nodes=nodes)
    kept = kept_values(graph, [y], [given], [back], {x, given, y}, lambda n: drawn and n.op_type == "RandomNormalLike")
    assert kept == ([noise] if drawn else [])


@pytest.mark.parametrize("seed", range(30))
def test_the_kept_values_take_the_fewest_bytes(seed):
    """All ways of running the free nodes at once or later are tried."""
    rng = np.random.default_rng(seed)
    start = [ir.Value(name=f"x{i}", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1])) for i in range(2)]
    given = ir.Value(name="ct", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1]))
    nodes: list[ir.Node] = []

    def node(inputs, name):
        size = int(rng.integers(1, 9)) * 100
        out = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([size]))
        nodes.append(ir.Node("", "Sum", inputs, outputs=[out], name=name))
        return out

    def some(values, most):
        return [values[i] for i in rng.choice(len(values), min(len(values), int(rng.integers(1, most + 1))), False)]

    forward = list(start)
    for i in range(4):
        forward.append(node(some(forward, 2), f"f{i}"))
    last = node(forward[2:], "y")
    free = []
    for i in range(8):
        free.append(node(some([*forward[2:], *free], 2), f"m{i}"))
    back = given
    for i in range(4):
        back = node([back, *some(free, 2), *(some(forward[2:], 1) if rng.random() < 0.2 else [])], f"b{i}")
    graph = ir.Graph([*start, given], [last, back], nodes=nodes)
    kept = kept_values(graph, [last], [given], [back], {*start, given, last}, lambda n: False)

    fixed = {n for n in nodes if n.name[0] in "fy"}
    later = {n for n in nodes if n.name[0] == "b"}
    open_nodes = [n for n in nodes if n.name[0] == "m"]
    best = None
    for chosen in itertools.product([False, True], repeat=len(open_nodes)):
        at_once = fixed | {n for n, c in zip(open_nodes, chosen, strict=True) if c}
        if any(v.producer() not in at_once for n in at_once for v in operands(n) if v.producer() is not None):
            continue
        used = {n for n in open_nodes if n not in at_once} | later
        crossing = {v for n in used for v in operands(n) if v.producer() in at_once and v is not last}
        # A free node whose result nobody reads is not run at all.
        total = sum(map(size_of, crossing))
        best = total if best is None else min(best, total)
    assert sum(map(size_of, kept)) <= best
    known = {*start, given, last, *kept}
    pending, seen = [back.producer()], set()
    while pending:  # what is kept is enough: no forward node has to run later
        here = pending.pop()
        if here in seen:
            continue
        seen.add(here)
        assert here not in fixed
        pending.extend(v.producer() for v in operands(here) if v not in known)
