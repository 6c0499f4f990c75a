# Gives an op of one's own a derivative of one's own: rounding to a grid, with a gradient that goes straight through.
"""A rule for a custom op: `python examples/custom_rule.py`."""

import numpy as np
import onnx.parser
import onnxruntime
from onnxscript import opset21 as op
from onnxscript import script
from onnxscript.values import Opset

import gradgen

# my.ops::ToGrid is a function of the model, so onnxruntime runs it. Its body is flat almost everywhere: differentiated
# through it, the gradient would be zero.
MODEL = """
<ir_version: 10, opset_import: ["" : 21, "my.ops" : 1]>
quantized (float[N,3] x, float[3] w) => (float loss)
{
    q = my.ops.ToGrid <step = 0.25> (w)
    product = Mul(x, q)
    loss = ReduceSum <keepdims = 0> (product)
}
<domain: "my.ops", opset_import: ["" : 21]>
ToGrid <step> (value) => (result)
{
    size = Constant <value_float: float = @step> ()
    scaled = Div(value, size)
    rounded = Round(scaled)
    result = Mul(rounded, size)
}
"""


@gradgen.vjp_rule("my.ops", "ToGrid")
@script(Opset("my.rules", 1), default_opset=op)
def to_grid_vjp(dresult, value):
    """dvalue = dresult between −1 and 1, and 0 outside: what lies outside is not pulled further out."""
    inside = op.LessOrEqual(op.Abs(value), op.CastLike(1.0, value))
    dvalue = dresult * op.CastLike(inside, dresult)
    return dvalue


def gradient(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The gradient of the loss with respect to w."""
    model = gradgen.grad(onnx.parser.parse_model(MODEL), wrt=["w"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["grad_w"], {"x": x, "w": w})[0]


if __name__ == "__main__":
    x = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
    print(gradient(x, np.array([0.3, -0.6, 1.7], np.float32)))
