# Parts of random graphs that no sample describes: ops at which a gradient stops, and those of random_graph_control.
from __future__ import annotations

from random_graph_control import CONTROL
from random_graph_grower import Grower, Part

from gradgen.samples import RANGE

STEPS = ("Floor", "Ceil", "Round", "Sign", "IsNaN", "IsInf", "Shape", "Size")
COMPARISONS = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")


def _step(op: str) -> Part:
    def part(grower: Grower) -> None:
        grower.emit(op, [grower.pick()], pooled=True)

    return part


def _comparison(op: str) -> Part:
    def part(grower: Grower) -> None:
        value = grower.pick()
        grower.emit(op, [value, grower.supply(value.array.shape, *RANGE)], pooled=True)

    return part


def _logic(op: str) -> Part:
    def part(grower: Grower) -> None:
        shape = grower.pick().array.shape
        grower.emit(op, [grower.condition(shape) for _ in range(1 if op == "Not" else 2)], pooled=True)

    return part


def _arg(op: str) -> Part:
    def part(grower: Grower) -> None:
        value = grower.pick()
        if value.array.ndim == 0:
            value = grower.fit(value, [1])
        grower.emit(op, [value], pooled=True, axis=int(grower.choices.randrange(value.array.ndim)))

    return part


def _nonzero(grower: Grower) -> None:
    value = grower.pick()
    # Of a scalar, onnxruntime says that there is one index, and the standard that there is none.
    grower.emit("NonZero", [value if value.array.ndim else grower.fit(value, [1])], pooled=True)


def _hardmax(grower: Grower) -> None:
    grower.emit("Hardmax", [grower.fit(grower.pick(), [2, 3])], pooled=True)


STOPPING: dict[str, Part] = {
    **{op: _step(op) for op in STEPS},
    **{op: _comparison(op) for op in COMPARISONS},
    **{op: _logic(op) for op in ("And", "Or", "Xor", "Not")},
    **{op: _arg(op) for op in ("ArgMax", "ArgMin")},
    "Hardmax": _hardmax,
    "NonZero": _nonzero,
}
PARTS: dict[str, Part] = {**STOPPING, **CONTROL}
__all__ = ["PARTS", "STOPPING"]
