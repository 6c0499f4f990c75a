# What calls share: registries that threads make together, compiling beside running, and the store of specialised rules.
"""Tests of the state that outlives a call, and of what a call costs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from onnx import helper, parser

import gradgen
from gradgen.engine.given import with_given
from gradgen.engine.link import Linker
from gradgen.engine.registry import Registry, Templates, once, registered
from gradgen.generator.compile import Compiler
from gradgen.rules import arithmetic
from gradgen.rules.lang import traced

EXP = parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) { y = Exp(x) }""")


def together(fn: Callable[[], object], count: int = 8) -> list:
    barrier = threading.Barrier(count)

    def run(_: int) -> object:
        barrier.wait()
        return fn()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_threads_that_ask_at_once_get_one_registry():
    @once
    def make() -> object:
        time.sleep(0.05)
        return object()

    assert len({id(found) for found in together(make)}) == 1
    assert isinstance(registered(), Registry) and registered() is registered()


def test_rows_that_threads_add_are_all_there():
    registry, count = Registry(), iter(range(100))

    def add() -> None:
        for _ in range(5):
            options = {"inputs": ["x"], "outputs": ["y"], "linear": False, "registry": registry}
            gradgen.register_vjp("my", "Op", traced("dx")(lambda dy: dy), version=next(count) + 1, **options)

    together(add)
    assert [registry.find("my", "Op", k).since for k in range(1, 41)] == list(range(1, 41))


def test_compiling_leaves_the_module_of_a_rule_alone():
    before, modules = dict(vars(arithmetic)), set(sys.modules)
    seen = []

    def watch() -> None:
        while not done.is_set():
            seen.append(vars(arithmetic)["op"] is before["op"])

    done = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        found = together(lambda: Compiler().proto(arithmetic.mul_vjp).SerializeToString(), 4)
    finally:
        done.set()
        watcher.join()
    assert len(set(found)) == 1 and all(seen)
    assert dict(vars(arithmetic)) == before and not [m for m in set(sys.modules) - modules if "mul_vjp" in m]


def test_the_store_of_specialised_rules_forgets_the_oldest():
    store = Templates(limit=3)
    for k in range(5):
        store[k] = str(k)
    assert list(store) == [2, 3, 4]


def test_a_call_about_a_function_finds_what_was_specialised_before():
    registry = Registry()
    assert with_given(registry) is with_given(registry)
    assert with_given(registry).templates is registry.templates
    nodes = [helper.make_node("Exp", ["x"], ["y"])]
    types = {"x": helper.make_tensor_type_proto(1, [3])}
    gradgen.gradient_of_nodes(nodes, ["x"], "y", types=types, registry=registry)
    known = dict(registry.templates)
    assert known
    gradgen.gradient_of_nodes(nodes, ["x"], "y", types=types, registry=registry)
    assert dict(registry.templates) == known


def test_a_row_that_is_added_later_is_found_beside_the_internal_op():
    registry = Registry()
    extended = with_given(registry)
    options = {"inputs": ["x"], "outputs": ["y"], "registry": registry}
    gradgen.register_vjp("my", "Op", traced("dx")(lambda dy: dy), **options)
    assert extended.find("my", "Op", 1) is registry.find("my", "Op", 1) is not None
    assert registry.find("gradgen.internal", "Given", 1) is None


def questions(draws: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a derivative of a loop with so many draws asks whether a node draws."""
    lines = "\n".join(f"v{k + 1} = Dropout(v{k}, ratio, training)" for k in range(draws))
    model = parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[3] x, int64 n, bool going) => (float[3] y) <float ratio = {{0.5}}, bool training = {{1}}> {{
          y = Loop(n, going, x) <body = b (int64 i, bool c, float[3] v0) => (bool d, float[3] v{draws}) {{
            d = Identity(c)
            {lines}
          }}>
        }}"""
    )
    asked, plain = 0, Linker.draws

    def count(self, node):
        nonlocal asked
        asked += 1
        return plain(self, node)

    monkeypatch.setattr(Linker, "draws", count)
    gradgen.vjp(model, wrt=["x"])
    monkeypatch.setattr(Linker, "draws", plain)
    return asked


def test_the_cost_of_draws_in_a_loop_grows_with_their_number(monkeypatch):
    assert questions(80, monkeypatch) < 2.3 * questions(40, monkeypatch)
