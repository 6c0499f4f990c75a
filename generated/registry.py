"""The rows of the rule tables as the engine reads them. Do not edit: run `python tools/generate.py`."""

from gradgen.engine.rows import Form, Row

LIBRARIES = ["arithmetic.onnxtxt", "library.onnxtxt", "shape.onnxtxt"]

ROWS = (
    # arithmetic.toml, [Add]
    Row(
        "",
        "Add",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        forms=(Form("add_vjp", "compiled", "gradgen.rules.arithmetic", ("dC", "A", "B"), ("dA", "dB")),),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Mul]
    Row(
        "",
        "Mul",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        forms=(Form("mul_vjp", "compiled", "gradgen.rules.arithmetic", ("dC", "A", "B"), ("dA", "dB")),),
        module="gradgen.rules.arithmetic",
    ),
    # shape.toml, [Identity]
    Row(
        "",
        "Identity",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("identity_vjp", "compiled", "gradgen.rules.shape", ("doutput",), ("dinput",)),),
        module="gradgen.rules.shape",
    ),
)
