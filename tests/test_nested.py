"""Random nests of Loop, Scan and If: first and second order against float64 differences, with and without shapes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from loops import check
from onnx import TensorProto, helper

OPS = {"Mul": 2, "Add": 2, "Sub": 2, "Sin": 1, "Tanh": 1, "Identity": 1, "Ceil": 1}


class Nest:
    """Writes a model of vectors of two elements; every name is used once.

    Args:
        seed: of all choices.
        shapes: whether bodies state the shapes of their inputs and outputs (a Scan always does).
    """

    def __init__(self, seed, shapes):
        self.random = random.Random(seed)
        self.shapes = shapes
        self.count = 0

    def name(self, stem="v"):
        self.count += 1
        return f"{stem}{self.count}"

    def info(self, name, stated=True):
        return helper.make_tensor_value_info(name, TensorProto.DOUBLE, [2] if stated or self.shapes else None)

    def node(self, nodes, op, inputs, outputs=1, **attributes):
        names = [self.name() for _ in range(outputs)]
        nodes.append(helper.make_node(op, inputs, names, name=self.name("n"), **attributes))
        return names

    def copies(self, nodes, values, count):
        """`count` of the values, each copied by a node, as results of a body have to be."""
        return [self.node(nodes, "Identity", [self.random.choice(values)])[0] for _ in range(count)]

    def write(self, nodes, scope, depth, count):
        """Append nodes that read the scope and what they compute; returns the new values."""
        new = []
        for _ in range(count):
            seen = scope + 2 * new
            if depth and self.random.random() < 0.35:
                new += self.random.choice([self.branch, self.loop, self.loop, self.scan])(nodes, seen, depth - 1)
            else:
                op = self.random.choice(list(OPS))
                new += self.node(nodes, op, [self.random.choice(seen) for _ in range(OPS[op])])
        return new

    def branch(self, nodes, scope, depth):
        results, bodies = self.random.randint(1, 2), []
        for _ in range(2):
            inner = []
            values = self.write(inner, scope, depth, self.random.randint(1, 3))
            outputs = self.copies(inner, values, results)
            bodies.append(helper.make_graph(inner, self.name("g"), [], [self.info(o, False) for o in outputs]))
        condition = self.random.choice(["c0", "c1"])
        return self.node(nodes, "If", [condition], results, then_branch=bodies[0], else_branch=bodies[1])

    def loop(self, nodes, scope, depth):
        states, slices = self.random.randint(1, 3), self.random.randint(0, 2)
        step, go, carried, inner = self.name("i"), self.name("go"), [self.name("s") for _ in range(states)], []
        inputs = [
            helper.make_tensor_value_info(step, TensorProto.INT64, []),
            helper.make_tensor_value_info(go, TensorProto.BOOL, []),
        ]
        inputs += [self.info(s, False) for s in carried]
        (number,) = self.node(inner, "Cast", [step], to=TensorProto.DOUBLE)
        (factor,) = self.node(inner, "Add", [number, "x"])
        if self.random.random() < 0.3:
            (largest,) = self.node(inner, "ReduceMax", [self.random.choice(scope + carried)], keepdims=0)
            (more,) = self.node(inner, "Less", [largest, "limit"])
        else:
            (more,) = self.node(inner, "Identity", [go])
        values = self.write(inner, scope + carried + [factor], depth, self.random.randint(1, 4))
        outputs = self.copies(inner, values + carried, states + slices)
        results = [helper.make_tensor_value_info(more, TensorProto.BOOL, []), *(self.info(o, False) for o in outputs)]
        body = helper.make_graph(inner, self.name("g"), inputs, results)
        first = [self.random.choice(["m0", "m1"]), "", *(self.random.choice(scope) for _ in carried)]
        return self.summed(nodes, self.node(nodes, "Loop", first, states + slices, body=body), states)

    def scan(self, nodes, scope, depth):
        states, slices, read = self.random.randint(0, 3), self.random.randint(1, 2), self.random.randint(1, 2)
        formals, inner = [self.name("s") for _ in range(states + read)], []
        values = self.write(inner, scope + formals, depth, self.random.randint(1, 4))
        outputs = self.copies(inner, values + formals, states + slices)
        body = helper.make_graph(
            inner, self.name("g"), [self.info(f) for f in formals], [self.info(o) for o in outputs]
        )
        first = [
            *(self.random.choice(scope) for _ in range(states)),
            *(self.random.choice(["p", "q"]) for _ in range(read)),
        ]
        ways = [[self.random.randint(0, 1) for _ in range(k)] for k in (read, slices)]
        found = self.node(
            nodes, "Scan", first, states + slices, body=body, num_scan_inputs=read,
            scan_input_directions=ways[0], scan_output_directions=ways[1],
        )  # fmt: skip
        return self.summed(nodes, found, states)

    def summed(self, nodes, found, states):
        return found[:states] + [self.node(nodes, "ReduceSum", [y, "axis"], keepdims=0)[0] for y in found[states:]]

    def model(self):
        nodes = []
        values = self.write(nodes, ["x", "w"], 3, self.random.randint(2, 4))
        outputs = self.copies(nodes, values[-3:], 2)
        kinds = {"c0": TensorProto.BOOL, "c1": TensorProto.BOOL, "m0": TensorProto.INT64, "m1": TensorProto.INT64}
        inputs = [
            self.info("x"), self.info("w"),
            *(helper.make_tensor_value_info(n, TensorProto.DOUBLE, [3, 2]) for n in ("p", "q")),
            *(helper.make_tensor_value_info(n, kind, []) for n, kind in kinds.items()),
        ]  # fmt: skip
        stored = [
            helper.make_tensor("axis", TensorProto.INT64, [1], [0]),
            helper.make_tensor("limit", TensorProto.DOUBLE, [], [0.9]),
        ]
        graph = helper.make_graph(nodes, "nest", inputs, [self.info(o) for o in outputs], stored)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("shapes", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_a_random_nest(seed, shapes):
    """At least one trip: without one, onnxruntime gives a scan output of unstated size the size 0."""
    proto = Nest(seed, shapes).model()
    rng = np.random.default_rng(seed)
    feeds = {
        **{n: rng.uniform(-1, 1, 2) for n in ("x", "w")}, **{n: rng.uniform(-1, 1, (3, 2)) for n in ("p", "q")},
        **{n: rng.random() < 0.5 for n in ("c0", "c1")}, "m0": rng.integers(1, 3), "m1": np.int64(2),
    }  # fmt: skip
    check(proto, feeds)
