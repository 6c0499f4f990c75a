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
    # arithmetic.toml, [Sub]
    Row(
        "",
        "Sub",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        forms=(Form("sub_vjp", "compiled", "gradgen.rules.arithmetic", ("dC", "A", "B"), ("dA", "dB")),),
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
    # arithmetic.toml, [Div]
    Row(
        "",
        "Div",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        forms=(
            Form(
                "div_vjp__constant",
                "compiled",
                "gradgen.rules.arithmetic",
                ("dC", "A", "B"),
                ("dA",),
                when="size(B) == 1 and const(B) != 0",
            ),
            Form("div_vjp", "compiled", "gradgen.rules.arithmetic", ("dC", "A", "B"), ("dA", "dB")),
        ),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Neg]
    Row(
        "",
        "Neg",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("neg_vjp", "compiled", "gradgen.rules.arithmetic", ("dY",), ("dX",)),),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Abs]
    Row(
        "",
        "Abs",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("abs_vjp", "compiled", "gradgen.rules.arithmetic", ("dY", "X"), ("dX",)),),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Exp]
    Row(
        "",
        "Exp",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("exp_vjp", "compiled", "gradgen.rules.arithmetic", ("doutput", "output"), ("dinput",)),),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Log]
    Row(
        "",
        "Log",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("log_vjp", "compiled", "gradgen.rules.arithmetic", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Sqrt]
    Row(
        "",
        "Sqrt",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("sqrt_vjp", "compiled", "gradgen.rules.arithmetic", ("dY", "Y"), ("dX",)),),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Reciprocal]
    Row(
        "",
        "Reciprocal",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("reciprocal_vjp", "compiled", "gradgen.rules.arithmetic", ("dY", "X"), ("dX",)),),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Pow]
    Row(
        "",
        "Pow",
        1,
        inputs=("X", "Y"),
        outputs=("Z",),
        forms=(
            Form(
                "pow_vjp__one",
                "compiled",
                "gradgen.rules.arithmetic",
                ("dZ", "X"),
                ("dX",),
                when="size(Y) == 1 and const(Y) == 1",
            ),
            Form(
                "pow_vjp__two",
                "compiled",
                "gradgen.rules.arithmetic",
                ("dZ", "X"),
                ("dX",),
                when="size(Y) == 1 and const(Y) == 2",
            ),
            Form(
                "pow_vjp__three",
                "compiled",
                "gradgen.rules.arithmetic",
                ("dZ", "X"),
                ("dX",),
                when="size(Y) == 1 and const(Y) == 3",
            ),
            Form(
                "pow_vjp__half",
                "compiled",
                "gradgen.rules.arithmetic",
                ("dZ", "X", "Z"),
                ("dX",),
                when="size(Y) == 1 and const(Y) == 0.5",
            ),
            Form(
                "pow_vjp__minus_one",
                "compiled",
                "gradgen.rules.arithmetic",
                ("dZ", "X"),
                ("dX",),
                when="size(Y) == 1 and const(Y) == -1",
            ),
            Form(
                "pow_vjp__integer",
                "compiled",
                "gradgen.rules.arithmetic",
                ("dZ", "X", "Y"),
                ("dX",),
                when="size(Y) == 1 and const(Y) % 1 == 0 and const(Y) >= 1",
            ),
            Form("pow_vjp", "compiled", "gradgen.rules.arithmetic", ("dZ", "X", "Y", "Z"), ("dX", "dY")),
        ),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Mod]
    Row(
        "",
        "Mod",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        forms=(Form("mod_vjp", "compiled", "gradgen.rules.arithmetic", ("dC", "A", "B", "C"), ("dA", "dB")),),
        ignores=("fmod",),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Where]
    Row(
        "",
        "Where",
        1,
        inputs=("condition", "X", "Y"),
        outputs=("output",),
        forms=(
            Form("where_vjp", "compiled", "gradgen.rules.arithmetic", ("doutput", "condition", "X", "Y"), ("dX", "dY")),
        ),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Sum]
    Row(
        "",
        "Sum",
        1,
        inputs=("data_0*",),
        outputs=("sum",),
        forms=(Form("sum_vjp", "traced", "gradgen.rules.arithmetic", ("dsum", "data_0"), ("ddata_0",)),),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Mean]
    Row(
        "",
        "Mean",
        1,
        inputs=("data_0*",),
        outputs=("mean",),
        forms=(Form("mean_vjp", "traced", "gradgen.rules.arithmetic", ("dmean", "data_0"), ("ddata_0",)),),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Max]
    Row(
        "",
        "Max",
        1,
        inputs=("data_0*",),
        outputs=("max",),
        forms=(Form("max_vjp", "traced", "gradgen.rules.arithmetic", ("dmax", "data_0", "max"), ("ddata_0",)),),
        module="gradgen.rules.arithmetic",
    ),
    # arithmetic.toml, [Min]
    Row(
        "",
        "Min",
        1,
        inputs=("data_0*",),
        outputs=("min",),
        forms=(Form("min_vjp", "traced", "gradgen.rules.arithmetic", ("dmin", "data_0", "min"), ("ddata_0",)),),
        module="gradgen.rules.arithmetic",
    ),
    # nondiff.toml, [Floor]
    Row(
        "",
        "Floor",
        1,
        inputs=("X",),
        outputs=("Y",),
        zero=("X",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Ceil]
    Row(
        "",
        "Ceil",
        1,
        inputs=("X",),
        outputs=("Y",),
        zero=("X",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Round]
    Row(
        "",
        "Round",
        1,
        inputs=("X",),
        outputs=("Y",),
        zero=("X",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Sign]
    Row(
        "",
        "Sign",
        1,
        inputs=("input",),
        outputs=("output",),
        zero=("input",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Hardmax]
    Row(
        "",
        "Hardmax",
        1,
        inputs=("input",),
        outputs=("output",),
        zero=("input",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Equal]
    Row(
        "",
        "Equal",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        zero=("A", "B"),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Greater]
    Row(
        "",
        "Greater",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        zero=("A", "B"),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [GreaterOrEqual]
    Row(
        "",
        "GreaterOrEqual",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        zero=("A", "B"),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Less]
    Row(
        "",
        "Less",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        zero=("A", "B"),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [LessOrEqual]
    Row(
        "",
        "LessOrEqual",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        zero=("A", "B"),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [IsNaN]
    Row(
        "",
        "IsNaN",
        1,
        inputs=("X",),
        outputs=("Y",),
        zero=("X",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [IsInf]
    Row(
        "",
        "IsInf",
        1,
        inputs=("X",),
        outputs=("Y",),
        zero=("X",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [And]
    Row(
        "",
        "And",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Or]
    Row(
        "",
        "Or",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Not]
    Row(
        "",
        "Not",
        1,
        inputs=("X",),
        outputs=("Y",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Xor]
    Row(
        "",
        "Xor",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [BitShift]
    Row(
        "",
        "BitShift",
        1,
        inputs=("X", "Y"),
        outputs=("Z",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [BitwiseAnd]
    Row(
        "",
        "BitwiseAnd",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [BitwiseOr]
    Row(
        "",
        "BitwiseOr",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [BitwiseXor]
    Row(
        "",
        "BitwiseXor",
        1,
        inputs=("A", "B"),
        outputs=("C",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [BitwiseNot]
    Row(
        "",
        "BitwiseNot",
        1,
        inputs=("X",),
        outputs=("Y",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [ArgMax]
    Row(
        "",
        "ArgMax",
        1,
        inputs=("data",),
        outputs=("reduced",),
        zero=("data",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [ArgMin]
    Row(
        "",
        "ArgMin",
        1,
        inputs=("data",),
        outputs=("reduced",),
        zero=("data",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [NonZero]
    Row(
        "",
        "NonZero",
        1,
        inputs=("X",),
        outputs=("Y",),
        zero=("X",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [NonMaxSuppression]
    Row(
        "",
        "NonMaxSuppression",
        1,
        inputs=("boxes", "scores", "max_output_boxes_per_class", "iou_threshold", "score_threshold"),
        outputs=("selected_indices",),
        zero=("boxes", "scores", "iou_threshold", "score_threshold"),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Shape]
    Row(
        "",
        "Shape",
        1,
        inputs=("data",),
        outputs=("shape",),
        zero=("data",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Size]
    Row(
        "",
        "Size",
        1,
        inputs=("data",),
        outputs=("size",),
        zero=("data",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [SequenceLength]
    Row(
        "",
        "SequenceLength",
        1,
        inputs=("input_sequence",),
        outputs=("length",),
        zero=("input_sequence",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [OptionalHasElement]
    Row(
        "",
        "OptionalHasElement",
        1,
        inputs=("input",),
        outputs=("output",),
        zero=("input",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [Constant]
    Row(
        "",
        "Constant",
        1,
        inputs=(),
        outputs=("output",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [ConstantOfShape]
    Row(
        "",
        "ConstantOfShape",
        1,
        inputs=("input",),
        outputs=("output",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [EyeLike]
    Row(
        "",
        "EyeLike",
        1,
        inputs=("input",),
        outputs=("output",),
        zero=("input",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [HannWindow]
    Row(
        "",
        "HannWindow",
        1,
        inputs=("size",),
        outputs=("output",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [HammingWindow]
    Row(
        "",
        "HammingWindow",
        1,
        inputs=("size",),
        outputs=("output",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [BlackmanWindow]
    Row(
        "",
        "BlackmanWindow",
        1,
        inputs=("size",),
        outputs=("output",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [MelWeightMatrix]
    Row(
        "",
        "MelWeightMatrix",
        1,
        inputs=("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"),
        outputs=("output",),
        zero=("lower_edge_hertz", "upper_edge_hertz"),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [RandomNormal]
    Row(
        "",
        "RandomNormal",
        1,
        inputs=(),
        outputs=("output",),
        module="gradgen.rules.nondiff",
        random=True,
    ),
    # nondiff.toml, [RandomUniform]
    Row(
        "",
        "RandomUniform",
        1,
        inputs=(),
        outputs=("output",),
        module="gradgen.rules.nondiff",
        random=True,
    ),
    # nondiff.toml, [RandomNormalLike]
    Row(
        "",
        "RandomNormalLike",
        1,
        inputs=("input",),
        outputs=("output",),
        zero=("input",),
        module="gradgen.rules.nondiff",
        random=True,
    ),
    # nondiff.toml, [RandomUniformLike]
    Row(
        "",
        "RandomUniformLike",
        1,
        inputs=("input",),
        outputs=("output",),
        zero=("input",),
        module="gradgen.rules.nondiff",
        random=True,
    ),
    # nondiff.toml, [Bernoulli]
    Row(
        "",
        "Bernoulli",
        1,
        inputs=("input",),
        outputs=("output",),
        zero=("input",),
        module="gradgen.rules.nondiff",
        random=True,
    ),
    # nondiff.toml, [Multinomial]
    Row(
        "",
        "Multinomial",
        1,
        inputs=("input",),
        outputs=("output",),
        zero=("input",),
        module="gradgen.rules.nondiff",
        random=True,
    ),
    # nondiff.toml, [StringConcat]
    Row(
        "",
        "StringConcat",
        1,
        inputs=("X", "Y"),
        outputs=("Z",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [StringNormalizer]
    Row(
        "",
        "StringNormalizer",
        1,
        inputs=("X",),
        outputs=("Y",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [StringSplit]
    Row(
        "",
        "StringSplit",
        1,
        inputs=("X",),
        outputs=("Y", "Z"),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [RegexFullMatch]
    Row(
        "",
        "RegexFullMatch",
        1,
        inputs=("X",),
        outputs=("Y",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [TfIdfVectorizer]
    Row(
        "",
        "TfIdfVectorizer",
        1,
        inputs=("X",),
        outputs=("Y",),
        module="gradgen.rules.nondiff",
    ),
    # nondiff.toml, [ImageDecoder]
    Row(
        "",
        "ImageDecoder",
        1,
        inputs=("encoded_stream",),
        outputs=("image",),
        module="gradgen.rules.nondiff",
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
    # window.toml, [Split]
    Row(
        "",
        "Split",
        1,
        inputs=("input", "split"),
        outputs=("outputs*",),
        forms=(
            Form(
                "split_vjp",
                "traced",
                "gradgen.rules.window",
                ("doutputs", "input", "split"),
                ("dinput",),
                attributes=("axis", "num_outputs"),
            ),
        ),
        module="gradgen.rules.window",
    ),
    # window.toml, [Slice]
    Row(
        "",
        "Slice",
        1,
        inputs=("data", "starts", "ends", "axes", "steps"),
        outputs=("output",),
        forms=(
            Form(
                "slice_vjp",
                "traced",
                "gradgen.rules.window",
                ("doutput", "data", "starts", "ends", "axes", "steps"),
                ("ddata",),
            ),
        ),
        module="gradgen.rules.window",
    ),
    # window.toml, [Tile]
    Row(
        "",
        "Tile",
        1,
        inputs=("input", "repeats"),
        outputs=("output",),
        forms=(Form("tile_vjp", "traced", "gradgen.rules.window", ("doutput", "input", "repeats"), ("dinput",)),),
        module="gradgen.rules.window",
    ),
    # window.toml, [Compress]
    Row(
        "",
        "Compress",
        1,
        inputs=("input", "condition"),
        outputs=("output",),
        forms=(
            Form(
                "compress_vjp",
                "traced",
                "gradgen.rules.window",
                ("doutput", "input", "condition"),
                ("dinput",),
                attributes=("axis",),
            ),
        ),
        module="gradgen.rules.window",
    ),
)
