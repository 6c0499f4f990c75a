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
    # shape.toml, [Cast]
    Row(
        "",
        "Cast",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("cast_vjp", "compiled", "gradgen.rules.shape", ("doutput", "input"), ("dinput",)),),
        ignores=("to", "saturate", "round_mode"),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [CastLike]
    Row(
        "",
        "CastLike",
        1,
        inputs=("input", "target_type"),
        outputs=("output",),
        forms=(Form("cast_vjp", "compiled", "gradgen.rules.shape", ("doutput", "input"), ("dinput",)),),
        zero=("target_type",),
        ignores=("saturate", "round_mode"),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [Reshape]
    Row(
        "",
        "Reshape",
        1,
        inputs=("data", "shape"),
        outputs=("reshaped",),
        forms=(Form("reshape_vjp", "compiled", "gradgen.rules.shape", ("dreshaped", "data"), ("ddata",)),),
        ignores=("allowzero",),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [Flatten]
    Row(
        "",
        "Flatten",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("flatten_vjp", "compiled", "gradgen.rules.shape", ("doutput", "input"), ("dinput",)),),
        ignores=("axis",),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [Transpose]
    Row(
        "",
        "Transpose",
        1,
        inputs=("data",),
        outputs=("transposed",),
        forms=(
            Form("transpose_vjp", "traced", "gradgen.rules.shape", ("dtransposed",), ("ddata",), attributes=("perm",)),
        ),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [Squeeze]
    Row(
        "",
        "Squeeze",
        1,
        inputs=("data", "axes"),
        outputs=("squeezed",),
        forms=(Form("squeeze_vjp", "traced", "gradgen.rules.shape", ("dsqueezed", "data", "axes"), ("ddata",)),),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [Unsqueeze]
    Row(
        "",
        "Unsqueeze",
        1,
        inputs=("data", "axes"),
        outputs=("expanded",),
        forms=(Form("unsqueeze_vjp", "traced", "gradgen.rules.shape", ("dexpanded", "data", "axes"), ("ddata",)),),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [Expand]
    Row(
        "",
        "Expand",
        1,
        inputs=("input", "shape"),
        outputs=("output",),
        forms=(Form("expand_vjp", "compiled", "gradgen.rules.shape", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.shape",
    ),
    # window.toml, [Concat]
    Row(
        "",
        "Concat",
        1,
        inputs=("inputs*",),
        outputs=("concat_result",),
        forms=(
            Form(
                "concat_vjp",
                "traced",
                "gradgen.rules.window",
                ("dconcat_result", "inputs"),
                ("dinputs",),
                attributes=("axis",),
            ),
        ),
        module="gradgen.rules.window",
    ),
)
