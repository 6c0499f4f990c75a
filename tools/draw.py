"""Draws docs/gradient.svg: a small model and the gradient model that gradgen makes of it. `python tools/draw.py`."""

from __future__ import annotations

from html import escape
from pathlib import Path

import onnx
import onnx.parser

import gradgen

TARGET = Path(__file__).resolve().parent.parent / "docs" / "gradient.svg"
MODEL = """
<ir_version: 10, opset_import: ["" : 21]>
layer (float[N,3] x, float[3,2] w, float[2] b) => (float[N,2] y)
{
    h = MatMul(x, w)
    s = Add(h, b)
    y = Relu(s)
}
"""
WIDTH, ROW, BOX, HEIGHT = 138, 108, 116, 30
STYLE = """text { font: 13px sans-serif; text-anchor: middle; fill: #222 } .small { font-size: 10px; fill: #555 }
rect { stroke: #777 } .value { fill: #fff; stroke-dasharray: 3 2 } .forward { fill: #dce9f7 }
.backward { fill: #fbe3d3 } line { stroke: #999; marker-end: url(#tip) }"""


class Drawing:
    """Boxes on a grid and arrows between them, as SVG.

    The forward nodes go down the second column, with the inputs that they read on their left; beside each, on the
    right, are the backward nodes that gradgen made of it, and the gradients that they give.
    """

    def __init__(self) -> None:
        self.boxes: list[str] = []
        self.arrows: list[tuple[str, str]] = []
        self.places: dict[str, tuple[float, float]] = {}
        self.size = (0.0, 0.0)

    def box(self, key: str, column: float, row: float, kind: str, label: str, below: str = "") -> None:
        """A box with a label, and a smaller one below it."""
        x, y = 70 + WIDTH * column, 28 + ROW * (row - 1)
        self.places[key] = (x, y)
        self.size = (max(self.size[0], x + 70), max(self.size[1], y + 28))
        self.boxes.append(
            f'<rect class="{kind}" x="{x - BOX / 2}" y="{y - HEIGHT / 2}" width="{BOX}" height="{HEIGHT}" rx="4"/>'
            f'<text x="{x}" y="{y + (-1 if below else 4)}">{escape(label)}</text>'
            + (f'<text class="small" x="{x}" y="{y + 11}">{escape(below)}</text>' if below else "")
        )

    def line(self, source: str, target: str) -> str:
        """An arrow from the edge of one box to the edge of another."""
        (x1, y1), (x2, y2) = self.places[source], self.places[target]
        dx, dy = x2 - x1, y2 - y1
        scale = max(abs(dx) / (BOX / 2), abs(dy) / (HEIGHT / 2))
        start, end = 1 / scale, 1 - 1 / scale - 4 / (dx**2 + dy**2) ** 0.5
        points = [x1 + dx * start, y1 + dy * start, x1 + dx * end, y1 + dy * end]
        return '<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'.format(*points)

    def text(self) -> str:
        """The SVG document."""
        width, height = self.size
        tip = '<defs><marker id="tip" markerWidth="6" markerHeight="6" refX="3" refY="3" orient="auto">'
        tip += '<path d="M0 0L6 3L0 6z" fill="#999"/></marker></defs>'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
        page = f'<rect style="fill:#fff;stroke:none" width="{width}" height="{height}"/>'
        lines = [self.line(s, t) for s, t in self.arrows]
        return "\n".join([head, f"<style>{STYLE}</style>", tip, page, *lines, *self.boxes, "</svg>", ""])


def properties(node: onnx.NodeProto) -> dict[str, str]:
    """A node's metadata: the rule and the forward node that a backward node comes from."""
    return {p.key.removeprefix("gradgen."): p.value for p in node.metadata_props}


def draw(model: onnx.ModelProto) -> Drawing:
    """A gradient model; constants are left out."""
    drawing, graph = Drawing(), model.graph
    forward = [n for n in graph.node if "rule" not in properties(n)]
    maker = {o: n.output[0] for n in graph.node for o in n.output}
    inputs = {i.name for i in graph.input}
    for row, node in enumerate(forward, start=1):
        origin = node.output[0]
        drawing.box(origin, 1, row, "forward", node.op_type)
        for k, read in enumerate(i for i in node.input if i in inputs):
            drawing.box(read, 0, row + 0.38 * k, "value", read)
        column = 2
        for backward in [n for n in graph.node if properties(n).get("node") == origin]:
            drawing.box(
                backward.output[0], column, row + 0.38, "backward", backward.op_type, properties(backward)["rule"]
            )
            column += 1
    last = len(forward) + 1
    drawing.box("grad_y", 4, last, "value", "grad_y")
    for node in graph.node:
        drawing.arrows += [(maker.get(i, i), node.output[0]) for i in node.input if maker.get(i, i) in drawing.places]
    for value in graph.output:
        x, y = drawing.places[maker[value.name]]
        key = f"{value.name} out"
        at = (1, last) if value.name == "y" else ((x - 70) / WIDTH, (y - 28) / ROW + 0.58)
        drawing.box(key, *at, "value", value.name)
        drawing.arrows.append((maker[value.name], key))
    return drawing


def picture() -> str:
    """The content of docs/gradient.svg."""
    return draw(gradgen.vjp(onnx.parser.parse_model(MODEL), wrt=["x", "w", "b"])).text()


if __name__ == "__main__":
    TARGET.write_text(picture(), encoding="utf-8")
    print(f"wrote {TARGET.name}")
