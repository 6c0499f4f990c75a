"""The rows of the rule tables as the engine reads them. Do not edit: run `python tools/generate.py`."""

from gradgen.engine.rows import Form, Row

LIBRARIES = [
    "activation.onnxtxt",
    "arithmetic.onnxtxt",
    "dropout.onnxtxt",
    "library.onnxtxt",
    "linalg.onnxtxt",
    "pool.onnxtxt",
    "shape.onnxtxt",
    "trig.onnxtxt",
]

ROWS = (
    # activation.toml, [Relu]
    Row(
        "",
        "Relu",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("relu_vjp", "compiled", "gradgen.rules.activation", ("dY", "Y"), ("dX",)),),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [LeakyRelu]
    Row(
        "",
        "LeakyRelu",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form(
                "leakyrelu_vjp__max",
                "compiled",
                "gradgen.rules.activation",
                ("dY", "Y"),
                ("dX",),
                attributes=("alpha",),
                when="alpha >= 0 and alpha <= 1",
            ),
            Form("leakyrelu_vjp", "compiled", "gradgen.rules.activation", ("dY", "X"), ("dX",), attributes=("alpha",)),
        ),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [PRelu]
    Row(
        "",
        "PRelu",
        1,
        inputs=("X", "slope"),
        outputs=("Y",),
        forms=(Form("prelu_vjp", "compiled", "gradgen.rules.activation", ("dY", "X", "slope"), ("dX", "dslope")),),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Elu]
    Row(
        "",
        "Elu",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form("elu_vjp__unit", "compiled", "gradgen.rules.activation", ("dY", "X"), ("dX",), when="alpha == 1"),
            Form("elu_vjp", "compiled", "gradgen.rules.activation", ("dY", "X"), ("dX",), attributes=("alpha",)),
        ),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Selu]
    Row(
        "",
        "Selu",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form(
                "selu_vjp", "compiled", "gradgen.rules.activation", ("dY", "X"), ("dX",), attributes=("alpha", "gamma")
            ),
        ),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Celu]
    Row(
        "",
        "Celu",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("celu_vjp", "compiled", "gradgen.rules.activation", ("dY", "X"), ("dX",), attributes=("alpha",)),),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Softplus]
    Row(
        "",
        "Softplus",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("softplus_vjp", "compiled", "gradgen.rules.activation", ("dY", "X"), ("dX",)),),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Softsign]
    Row(
        "",
        "Softsign",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("softsign_vjp", "compiled", "gradgen.rules.activation", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [HardSigmoid]
    Row(
        "",
        "HardSigmoid",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form(
                "hardsigmoid_vjp", "compiled", "gradgen.rules.activation", ("dY", "Y"), ("dX",), attributes=("alpha",)
            ),
        ),
        ignores=("beta",),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [HardSwish]
    Row(
        "",
        "HardSwish",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("hardswish_vjp", "compiled", "gradgen.rules.activation", ("dY", "X"), ("dX",)),),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Mish]
    Row(
        "",
        "Mish",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("mish_vjp", "compiled", "gradgen.rules.activation", ("dY", "X"), ("dX",)),),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Gelu]
    Row(
        "",
        "Gelu",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form("gelu_vjp", "traced", "gradgen.rules.activation", ("dY", "X"), ("dX",), attributes=("approximate",)),
        ),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Sigmoid]
    Row(
        "",
        "Sigmoid",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("sigmoid_vjp", "compiled", "gradgen.rules.activation", ("dY", "Y"), ("dX",)),),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Swish]
    Row(
        "",
        "Swish",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form("swish_vjp", "compiled", "gradgen.rules.activation", ("dY", "X", "Y"), ("dX",), attributes=("alpha",)),
        ),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [ThresholdedRelu]
    Row(
        "",
        "ThresholdedRelu",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form(
                "thresholdedrelu_vjp",
                "compiled",
                "gradgen.rules.activation",
                ("dY", "X"),
                ("dX",),
                attributes=("alpha",),
            ),
        ),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Shrink]
    Row(
        "",
        "Shrink",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(
            Form(
                "shrink_vjp",
                "compiled",
                "gradgen.rules.activation",
                ("doutput", "input"),
                ("dinput",),
                attributes=("lambd",),
            ),
        ),
        ignores=("bias",),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Clip]
    Row(
        "",
        "Clip",
        1,
        inputs=("input", "min", "max"),
        outputs=("output",),
        forms=(
            Form(
                "clip_vjp",
                "traced",
                "gradgen.rules.activation",
                ("doutput", "input", "min", "max", "output"),
                ("dinput", "dmin", "dmax"),
            ),
        ),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [Softmax]
    Row(
        "",
        "Softmax",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(
            Form(
                "softmax_vjp",
                "compiled",
                "gradgen.rules.activation",
                ("doutput", "output"),
                ("dinput",),
                attributes=("axis",),
            ),
        ),
        module="gradgen.rules.activation",
    ),
    # activation.toml, [LogSoftmax]
    Row(
        "",
        "LogSoftmax",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(
            Form(
                "logsoftmax_vjp",
                "compiled",
                "gradgen.rules.activation",
                ("doutput", "output"),
                ("dinput",),
                attributes=("axis",),
            ),
        ),
        module="gradgen.rules.activation",
    ),
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
        forms=(Form("div_vjp", "compiled", "gradgen.rules.arithmetic", ("dC", "A", "B"), ("dA", "dB")),),
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
    # control.toml, [If]
    Row(
        "",
        "If",
        1,
        inputs=("cond",),
        outputs=("outputs*",),
        forms=(Form("if_vjp", "structural", "gradgen.rules.control", (), ()),),
        module="gradgen.rules.control",
    ),
    # control_loop.toml, [Loop]
    Row(
        "",
        "Loop",
        1,
        inputs=("M", "cond", "v_initial*"),
        outputs=("v_final_and_scan_outputs*",),
        forms=(Form("loop_vjp", "structural", "gradgen.rules.control_loop", (), ()),),
        module="gradgen.rules.control_loop",
    ),
    # control_scan.toml, [Scan]
    Row(
        "",
        "Scan",
        1,
        inputs=("initial_state_and_scan_inputs*",),
        outputs=("final_state_and_scan_outputs*",),
        forms=(Form("scan_vjp", "structural", "gradgen.rules.control_scan", (), ()),),
        module="gradgen.rules.control_scan",
    ),
    # conv.toml, [Conv]
    Row(
        "",
        "Conv",
        1,
        inputs=("X", "W", "B"),
        outputs=("Y",),
        forms=(
            Form(
                "conv_vjp__pointwise",
                "traced",
                "gradgen.rules.conv",
                ("dY", "X", "W"),
                ("dX", "dW", "dB"),
                attributes=("group",),
                when="all_eq(kernel_shape, 1) and all_eq(strides, 1) and all_eq(pads, 0) and group == 1",
            ),
            Form(
                "conv_vjp",
                "traced",
                "gradgen.rules.conv",
                ("dY", "X", "W"),
                ("dX", "dW", "dB"),
                attributes=("kernel_shape", "strides", "pads", "dilations", "group", "auto_pad"),
            ),
        ),
        defaults="conv_defaults",
        module="gradgen.rules.conv",
    ),
    # conv.toml, [ConvTranspose]
    Row(
        "",
        "ConvTranspose",
        1,
        inputs=("X", "W", "B"),
        outputs=("Y",),
        forms=(
            Form(
                "conv_transpose_vjp",
                "traced",
                "gradgen.rules.conv",
                ("dY", "X", "W"),
                ("dX", "dW", "dB"),
                attributes=(
                    "kernel_shape",
                    "strides",
                    "pads",
                    "dilations",
                    "group",
                    "auto_pad",
                    "output_padding",
                    "output_shape",
                ),
            ),
        ),
        defaults="conv_transpose_defaults",
        module="gradgen.rules.conv",
    ),
    # conv.toml, [Col2Im]
    Row(
        "",
        "Col2Im",
        1,
        inputs=("input", "image_shape", "block_shape"),
        outputs=("output",),
        forms=(
            Form(
                "col2im_vjp",
                "traced",
                "gradgen.rules.conv",
                ("doutput", "input", "block_shape"),
                ("dinput",),
                attributes=("strides", "pads", "dilations"),
            ),
        ),
        defaults="col2im_defaults",
        module="gradgen.rules.conv",
    ),
    # dropout.toml, [Dropout]
    Row(
        "",
        "Dropout",
        1,
        inputs=("data", "ratio", "training_mode"),
        outputs=("output", "mask"),
        forms=(
            Form(
                "dropout_vjp__inference",
                "compiled",
                "gradgen.rules.dropout",
                ("doutput",),
                ("ddata",),
                when="not given(training_mode) or const(training_mode) == False",
            ),
            Form(
                "dropout_vjp",
                "traced",
                "gradgen.rules.dropout",
                ("doutput", "ratio", "training_mode", "mask"),
                ("ddata",),
            ),
        ),
        zero=("ratio",),
        ignores=("seed",),
        module="gradgen.rules.dropout",
        random=True,
    ),
    # index.toml, [Gather]
    Row(
        "",
        "Gather",
        1,
        inputs=("data", "indices"),
        outputs=("output",),
        forms=(
            Form(
                "gather_vjp__known",
                "traced",
                "gradgen.rules.index",
                ("doutput", "data", "indices"),
                ("ddata",),
                attributes=("axis",),
                when="known(indices)",
            ),
            Form(
                "gather_vjp__few",
                "traced",
                "gradgen.rules.index",
                ("doutput", "data", "indices"),
                ("ddata",),
                attributes=("axis",),
                when="axis == 0 and rank(data) == 2 and dim(data, 0) > 0 and dim(data, 0) <= 64 and dim(data, 1) > 0",
            ),
            Form(
                "gather_vjp",
                "traced",
                "gradgen.rules.index",
                ("doutput", "data", "indices"),
                ("ddata",),
                attributes=("axis",),
            ),
        ),
        module="gradgen.rules.index",
    ),
    # index.toml, [GatherElements]
    Row(
        "",
        "GatherElements",
        1,
        inputs=("data", "indices"),
        outputs=("output",),
        forms=(
            Form(
                "gather_elements_vjp",
                "traced",
                "gradgen.rules.index",
                ("doutput", "data", "indices"),
                ("ddata",),
                attributes=("axis",),
            ),
        ),
        module="gradgen.rules.index",
    ),
    # index.toml, [ScatterElements]
    Row(
        "",
        "ScatterElements",
        1,
        inputs=("data", "indices", "updates"),
        outputs=("output",),
        forms=(
            Form(
                "scatter_elements_vjp",
                "traced",
                "gradgen.rules.index",
                ("doutput", "data", "indices", "updates", "output"),
                ("ddata", "dupdates"),
                attributes=("axis", "reduction"),
            ),
        ),
        module="gradgen.rules.index",
    ),
    # index.toml, [GatherND]
    Row(
        "",
        "GatherND",
        1,
        inputs=("data", "indices"),
        outputs=("output",),
        forms=(
            Form(
                "gather_nd_vjp",
                "traced",
                "gradgen.rules.index",
                ("doutput", "data", "indices"),
                ("ddata",),
                attributes=("batch_dims",),
            ),
        ),
        module="gradgen.rules.index",
    ),
    # index.toml, [ScatterND]
    Row(
        "",
        "ScatterND",
        1,
        inputs=("data", "indices", "updates"),
        outputs=("output",),
        forms=(
            Form(
                "scatter_nd_vjp",
                "traced",
                "gradgen.rules.index",
                ("doutput", "data", "indices", "updates", "output"),
                ("ddata", "dupdates"),
                attributes=("reduction",),
            ),
        ),
        module="gradgen.rules.index",
    ),
    # index.toml, [Unique]
    Row(
        "",
        "Unique",
        1,
        inputs=("X",),
        outputs=("Y", "indices", "inverse_indices", "counts"),
        forms=(
            Form("unique_vjp", "traced", "gradgen.rules.index", ("dY", "X", "indices"), ("dX",), attributes=("axis",)),
        ),
        ignores=("sorted",),
        module="gradgen.rules.index",
    ),
    # index.toml, [TensorScatter@24]
    Row(
        "",
        "TensorScatter",
        24,
        inputs=("past_cache", "update", "write_indices"),
        outputs=("present_cache",),
        forms=(
            Form(
                "tensor_scatter_vjp",
                "traced",
                "gradgen.rules.index",
                ("dpresent_cache", "past_cache", "update", "write_indices"),
                ("dpast_cache", "dupdate"),
                attributes=("axis", "mode"),
            ),
        ),
        module="gradgen.rules.index",
    ),
    # linalg.toml, [MatMul]
    Row(
        "",
        "MatMul",
        1,
        inputs=("A", "B"),
        outputs=("Y",),
        forms=(Form("matmul_vjp", "traced", "gradgen.rules.linalg", ("dY", "A", "B"), ("dA", "dB")),),
        module="gradgen.rules.linalg",
    ),
    # linalg.toml, [Gemm]
    Row(
        "",
        "Gemm",
        1,
        inputs=("A", "B", "C"),
        outputs=("Y",),
        forms=(
            Form(
                "gemm_vjp",
                "traced",
                "gradgen.rules.linalg",
                ("dY", "A", "B", "C"),
                ("dA", "dB", "dC"),
                attributes=("alpha", "beta", "transA", "transB"),
            ),
        ),
        module="gradgen.rules.linalg",
    ),
    # linalg.toml, [Einsum]
    Row(
        "",
        "Einsum",
        1,
        inputs=("Inputs*",),
        outputs=("Output",),
        forms=(
            Form(
                "einsum_vjp",
                "traced",
                "gradgen.rules.linalg",
                ("dOutput", "Inputs"),
                ("dInputs",),
                attributes=("equation",),
            ),
        ),
        module="gradgen.rules.linalg",
    ),
    # linalg.toml, [Det]
    Row(
        "",
        "Det",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("det_vjp", "traced", "gradgen.rules.linalg", ("dY", "X"), ("dX",)),),
        module="gradgen.rules.linalg",
    ),
    # linalg.toml, [Trilu]
    Row(
        "",
        "Trilu",
        1,
        inputs=("input", "k"),
        outputs=("output",),
        forms=(
            Form("trilu_vjp", "compiled", "gradgen.rules.linalg", ("doutput", "k"), ("dinput",), attributes=("upper",)),
        ),
        module="gradgen.rules.linalg",
    ),
    # loss.toml, [SoftmaxCrossEntropyLoss]
    Row(
        "",
        "SoftmaxCrossEntropyLoss",
        1,
        inputs=("scores", "labels", "weights"),
        outputs=("output", "log_prob"),
        forms=(
            Form(
                "softmaxcrossentropyloss_vjp",
                "traced",
                "gradgen.rules.loss",
                ("doutput", "dlog_prob", "labels", "weights", "output", "log_prob"),
                ("dscores", "dweights"),
                attributes=("reduction", "ignore_index"),
            ),
        ),
        module="gradgen.rules.loss",
    ),
    # loss.toml, [NegativeLogLikelihoodLoss]
    Row(
        "",
        "NegativeLogLikelihoodLoss",
        1,
        inputs=("input", "target", "weight"),
        outputs=("loss",),
        forms=(
            Form(
                "negativeloglikelihoodloss_vjp",
                "traced",
                "gradgen.rules.loss",
                ("dloss", "input", "target", "weight", "loss"),
                ("dinput", "dweight"),
                attributes=("reduction", "ignore_index"),
            ),
        ),
        module="gradgen.rules.loss",
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
    # norm.toml, [BatchNormalization]
    Row(
        "",
        "BatchNormalization",
        1,
        inputs=("X", "scale", "B", "input_mean", "input_var"),
        outputs=("Y", "running_mean", "running_var"),
        forms=(
            Form(
                "batch_normalization_vjp",
                "traced",
                "gradgen.rules.norm",
                ("dY", "drunning_mean", "drunning_var", "X", "scale", "B", "input_mean", "input_var"),
                ("dX", "dscale", "dB", "dinput_mean", "dinput_var"),
                attributes=("epsilon", "momentum", "training_mode"),
            ),
        ),
        module="gradgen.rules.norm",
    ),
    # norm.toml, [LayerNormalization]
    Row(
        "",
        "LayerNormalization",
        1,
        inputs=("X", "Scale", "B"),
        outputs=("Y", "Mean", "InvStdDev"),
        forms=(
            Form(
                "layer_normalization_vjp__saved",
                "traced",
                "gradgen.rules.norm",
                ("dY", "X", "Scale", "B", "InvStdDev"),
                ("dX", "dScale", "dB"),
                attributes=("axis", "epsilon"),
                when="dtype(X) == 'float' and stash_type == 1",
            ),
            Form(
                "layer_normalization_vjp",
                "traced",
                "gradgen.rules.norm",
                ("dY", "dMean", "dInvStdDev", "X", "Scale", "B"),
                ("dX", "dScale", "dB"),
                attributes=("axis", "epsilon"),
            ),
        ),
        module="gradgen.rules.norm",
    ),
    # norm.toml, [GroupNormalization]
    Row(
        "",
        "GroupNormalization",
        1,
        inputs=("X", "scale", "bias"),
        outputs=("Y",),
        forms=(
            Form(
                "group_normalization_vjp",
                "traced",
                "gradgen.rules.norm",
                ("dY", "X", "scale"),
                ("dX", "dscale", "dbias"),
                attributes=("epsilon", "num_groups"),
            ),
        ),
        ignores=("stash_type",),
        module="gradgen.rules.norm",
        like={"Y": "X"},
    ),
    # norm.toml, [InstanceNormalization]
    Row(
        "",
        "InstanceNormalization",
        1,
        inputs=("input", "scale", "B"),
        outputs=("output",),
        forms=(
            Form(
                "instance_normalization_vjp",
                "traced",
                "gradgen.rules.norm",
                ("doutput", "input", "scale"),
                ("dinput", "dscale", "dB"),
                attributes=("epsilon",),
            ),
        ),
        module="gradgen.rules.norm",
    ),
    # norm.toml, [RMSNormalization]
    Row(
        "",
        "RMSNormalization",
        1,
        inputs=("X", "scale"),
        outputs=("Y",),
        forms=(
            Form(
                "rms_normalization_vjp",
                "traced",
                "gradgen.rules.norm",
                ("dY", "X", "scale"),
                ("dX", "dscale"),
                attributes=("axis", "epsilon"),
            ),
        ),
        ignores=("stash_type",),
        module="gradgen.rules.norm",
        like={"Y": "X"},
    ),
    # norm.toml, [LpNormalization]
    Row(
        "",
        "LpNormalization",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(
            Form(
                "lp_normalization_vjp",
                "traced",
                "gradgen.rules.norm",
                ("doutput", "input"),
                ("dinput",),
                attributes=("axis", "p"),
            ),
        ),
        module="gradgen.rules.norm",
    ),
    # norm.toml, [LRN]
    Row(
        "",
        "LRN",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form(
                "lrn_vjp",
                "traced",
                "gradgen.rules.norm",
                ("dY", "X"),
                ("dX",),
                attributes=("size", "alpha", "beta", "bias"),
            ),
        ),
        module="gradgen.rules.norm",
    ),
    # pad.toml, [Pad]
    Row(
        "",
        "Pad",
        1,
        inputs=("data", "pads", "constant_value", "axes"),
        outputs=("output",),
        forms=(
            Form(
                "pad_vjp",
                "traced",
                "gradgen.rules.pad",
                ("doutput", "data", "pads", "constant_value", "axes"),
                ("ddata", "dconstant_value"),
                attributes=("mode",),
            ),
        ),
        module="gradgen.rules.pad",
    ),
    # pool.toml, [MaxPool]
    Row(
        "",
        "MaxPool",
        1,
        inputs=("X",),
        outputs=("Y", "Indices"),
        forms=(
            Form(
                "max_pool_vjp__unpool",
                "compiled",
                "gradgen.rules.pool",
                ("dY", "X", "Indices"),
                ("dX",),
                attributes=("kernel_shape", "strides"),
                when="strides == kernel_shape and all_eq(dilations, 1) and all_eq(pads, 0) and auto_pad == 'NOTSET' and ceil_mode == 0 and storage_order == 0 and dtype(X) == 'float' and rank(X) == 3 and dim(X, 2) % kernel_shape[0] == 0",
            ),
            Form(
                "max_pool_vjp__unpool",
                "compiled",
                "gradgen.rules.pool",
                ("dY", "X", "Indices"),
                ("dX",),
                attributes=("kernel_shape", "strides"),
                when="strides == kernel_shape and all_eq(dilations, 1) and all_eq(pads, 0) and auto_pad == 'NOTSET' and ceil_mode == 0 and storage_order == 0 and dtype(X) == 'float' and rank(X) == 4 and dim(X, 2) % kernel_shape[0] == 0 and dim(X, 3) % kernel_shape[1] == 0",
            ),
            Form(
                "max_pool_vjp__unpool",
                "compiled",
                "gradgen.rules.pool",
                ("dY", "X", "Indices"),
                ("dX",),
                attributes=("kernel_shape", "strides"),
                when="strides == kernel_shape and all_eq(dilations, 1) and all_eq(pads, 0) and auto_pad == 'NOTSET' and ceil_mode == 0 and storage_order == 0 and dtype(X) == 'float' and rank(X) == 5 and dim(X, 2) % kernel_shape[0] == 0 and dim(X, 3) % kernel_shape[1] == 0 and dim(X, 4) % kernel_shape[2] == 0",
            ),
            Form(
                "max_pool_vjp",
                "traced",
                "gradgen.rules.pool",
                ("dY", "X", "Indices"),
                ("dX",),
                attributes=("storage_order",),
            ),
        ),
        defaults="pool_defaults",
        module="gradgen.rules.pool",
    ),
    # pool.toml, [MaxUnpool]
    Row(
        "",
        "MaxUnpool",
        1,
        inputs=("X", "I", "output_shape"),
        outputs=("output",),
        forms=(Form("max_unpool_vjp", "traced", "gradgen.rules.pool", ("doutput", "X", "I", "output"), ("dX",)),),
        ignores=("kernel_shape", "strides", "pads"),
        module="gradgen.rules.pool",
    ),
    # pool.toml, [AveragePool]
    Row(
        "",
        "AveragePool",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form(
                "average_pool_vjp__tiles",
                "traced",
                "gradgen.rules.pool",
                ("dY", "X"),
                ("dX",),
                attributes=("kernel_shape",),
                when="strides == kernel_shape and all_eq(dilations, 1) and all_eq(pads, 0) and auto_pad == 'NOTSET' and ceil_mode == 0 and rank(X) <= 5",
            ),
            Form(
                "average_pool_vjp__dense",
                "traced",
                "gradgen.rules.pool",
                ("dY", "X"),
                ("dX",),
                attributes=("kernel_shape", "pads", "count_include_pad"),
                when="all_eq(strides, 1) and all_eq(dilations, 1) and auto_pad == 'NOTSET' and rank(X) <= 5",
            ),
            Form(
                "average_pool_vjp",
                "traced",
                "gradgen.rules.pool",
                ("dY", "X"),
                ("dX",),
                attributes=(
                    "kernel_shape",
                    "strides",
                    "dilations",
                    "pads",
                    "auto_pad",
                    "ceil_mode",
                    "count_include_pad",
                ),
            ),
        ),
        defaults="pool_defaults",
        module="gradgen.rules.pool",
    ),
    # pool.toml, [GlobalAveragePool]
    Row(
        "",
        "GlobalAveragePool",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("global_average_pool_vjp", "compiled", "gradgen.rules.pool", ("dY", "X"), ("dX",)),),
        module="gradgen.rules.pool",
    ),
    # pool.toml, [GlobalMaxPool]
    Row(
        "",
        "GlobalMaxPool",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(Form("global_max_pool_vjp", "compiled", "gradgen.rules.pool", ("dY", "X"), ("dX",)),),
        module="gradgen.rules.pool",
    ),
    # pool.toml, [LpPool]
    Row(
        "",
        "LpPool",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form(
                "lp_pool_vjp",
                "traced",
                "gradgen.rules.pool",
                ("dY", "X", "Y"),
                ("dX",),
                attributes=("kernel_shape", "strides", "dilations", "pads", "auto_pad", "ceil_mode", "p"),
            ),
        ),
        defaults="pool_defaults",
        module="gradgen.rules.pool",
    ),
    # pool.toml, [GlobalLpPool]
    Row(
        "",
        "GlobalLpPool",
        1,
        inputs=("X",),
        outputs=("Y",),
        forms=(
            Form("global_lp_pool_vjp", "traced", "gradgen.rules.pool", ("dY", "X", "Y"), ("dX",), attributes=("p",)),
        ),
        module="gradgen.rules.pool",
    ),
    # recurrent.toml, [RNN]
    Row(
        "",
        "RNN",
        1,
        inputs=("X", "W", "R", "B", "sequence_lens", "initial_h"),
        outputs=("Y", "Y_h"),
        forms=(
            Form(
                "rnn_vjp",
                "traced",
                "gradgen.rules.recurrent",
                ("dY", "dY_h", "X", "W", "R", "B", "sequence_lens", "initial_h", "Y"),
                ("dX", "dW", "dR", "dB", "dinitial_h"),
                attributes=("activations", "activation_alpha", "activation_beta", "clip", "direction", "layout"),
            ),
        ),
        ignores=("hidden_size",),
        module="gradgen.rules.recurrent",
    ),
    # recurrent.toml, [GRU]
    Row(
        "",
        "GRU",
        1,
        inputs=("X", "W", "R", "B", "sequence_lens", "initial_h"),
        outputs=("Y", "Y_h"),
        forms=(
            Form(
                "gru_vjp",
                "traced",
                "gradgen.rules.recurrent",
                ("dY", "dY_h", "X", "W", "R", "B", "sequence_lens", "initial_h", "Y"),
                ("dX", "dW", "dR", "dB", "dinitial_h"),
                attributes=(
                    "activations",
                    "activation_alpha",
                    "activation_beta",
                    "clip",
                    "direction",
                    "layout",
                    "linear_before_reset",
                ),
            ),
        ),
        ignores=("hidden_size",),
        module="gradgen.rules.recurrent",
    ),
    # recurrent.toml, [LSTM]
    Row(
        "",
        "LSTM",
        1,
        inputs=("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"),
        outputs=("Y", "Y_h", "Y_c"),
        forms=(
            Form(
                "lstm_vjp",
                "traced",
                "gradgen.rules.recurrent",
                ("dY", "dY_h", "dY_c", "X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P", "Y"),
                ("dX", "dW", "dR", "dB", "dinitial_h", "dinitial_c", "dP"),
                attributes=(
                    "activations",
                    "activation_alpha",
                    "activation_beta",
                    "clip",
                    "direction",
                    "layout",
                    "input_forget",
                ),
            ),
        ),
        ignores=("hidden_size",),
        module="gradgen.rules.recurrent",
    ),
    # reduce.toml, [ReduceSum]
    Row(
        "",
        "ReduceSum",
        1,
        inputs=("data", "axes"),
        outputs=("reduced",),
        forms=(
            Form(
                "reduce_sum_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dreduced", "data", "axes"),
                ("ddata",),
                attributes=("keepdims",),
            ),
        ),
        ignores=("noop_with_empty_axes",),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [ReduceMean]
    Row(
        "",
        "ReduceMean",
        1,
        inputs=("data", "axes"),
        outputs=("reduced",),
        forms=(
            Form(
                "reduce_mean_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dreduced", "data", "axes", "reduced"),
                ("ddata",),
                attributes=("keepdims", "noop_with_empty_axes"),
            ),
        ),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [ReduceMax]
    Row(
        "",
        "ReduceMax",
        1,
        inputs=("data", "axes"),
        outputs=("reduced",),
        forms=(
            Form(
                "reduce_extremum_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dreduced", "data", "axes", "reduced"),
                ("ddata",),
                attributes=("keepdims", "noop_with_empty_axes"),
            ),
        ),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [ReduceMin]
    Row(
        "",
        "ReduceMin",
        1,
        inputs=("data", "axes"),
        outputs=("reduced",),
        forms=(
            Form(
                "reduce_extremum_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dreduced", "data", "axes", "reduced"),
                ("ddata",),
                attributes=("keepdims", "noop_with_empty_axes"),
            ),
        ),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [ReduceProd]
    Row(
        "",
        "ReduceProd",
        1,
        inputs=("data", "axes"),
        outputs=("reduced",),
        forms=(
            Form(
                "reduce_prod_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dreduced", "data", "axes"),
                ("ddata",),
                attributes=("keepdims", "noop_with_empty_axes"),
            ),
        ),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [ReduceL1]
    Row(
        "",
        "ReduceL1",
        1,
        inputs=("data", "axes"),
        outputs=("reduced",),
        forms=(
            Form(
                "reduce_l1_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dreduced", "data", "axes"),
                ("ddata",),
                attributes=("keepdims",),
            ),
        ),
        ignores=("noop_with_empty_axes",),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [ReduceL2]
    Row(
        "",
        "ReduceL2",
        1,
        inputs=("data", "axes"),
        outputs=("reduced",),
        forms=(
            Form(
                "reduce_l2_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dreduced", "data", "axes", "reduced"),
                ("ddata",),
                attributes=("keepdims",),
            ),
        ),
        ignores=("noop_with_empty_axes",),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [ReduceLogSum]
    Row(
        "",
        "ReduceLogSum",
        1,
        inputs=("data", "axes"),
        outputs=("reduced",),
        forms=(
            Form(
                "reduce_log_sum_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dreduced", "data", "axes"),
                ("ddata",),
                attributes=("keepdims", "noop_with_empty_axes"),
            ),
        ),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [ReduceLogSumExp]
    Row(
        "",
        "ReduceLogSumExp",
        1,
        inputs=("data", "axes"),
        outputs=("reduced",),
        forms=(
            Form(
                "reduce_log_sum_exp_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dreduced", "data", "axes", "reduced"),
                ("ddata",),
                attributes=("keepdims",),
            ),
        ),
        ignores=("noop_with_empty_axes",),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [ReduceSumSquare]
    Row(
        "",
        "ReduceSumSquare",
        1,
        inputs=("data", "axes"),
        outputs=("reduced",),
        forms=(
            Form(
                "reduce_sum_square_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dreduced", "data", "axes"),
                ("ddata",),
                attributes=("keepdims",),
            ),
        ),
        ignores=("noop_with_empty_axes",),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [CumSum]
    Row(
        "",
        "CumSum",
        1,
        inputs=("x", "axis"),
        outputs=("y",),
        forms=(
            Form(
                "cum_sum_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dy", "axis"),
                ("dx",),
                attributes=("exclusive", "reverse"),
            ),
        ),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [TopK]
    Row(
        "",
        "TopK",
        1,
        inputs=("X", "K"),
        outputs=("Values", "Indices"),
        forms=(
            Form(
                "top_k_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("dValues", "X", "Indices"),
                ("dX",),
                attributes=("axis",),
            ),
        ),
        ignores=("largest", "sorted"),
        module="gradgen.rules.reduce",
    ),
    # reduce.toml, [OneHot]
    Row(
        "",
        "OneHot",
        1,
        inputs=("indices", "depth", "values"),
        outputs=("output",),
        forms=(
            Form(
                "one_hot_vjp",
                "traced",
                "gradgen.rules.reduce",
                ("doutput", "indices", "depth", "values"),
                ("dvalues",),
                attributes=("axis",),
            ),
        ),
        zero=("indices", "depth"),
        module="gradgen.rules.reduce",
    ),
    # resize.toml, [Resize]
    Row(
        "",
        "Resize",
        1,
        inputs=("X", "roi", "scales", "sizes"),
        outputs=("Y",),
        forms=(
            Form(
                "resize_vjp",
                "traced",
                "gradgen.rules.resize",
                ("dY", "X", "roi", "scales", "sizes"),
                ("dX",),
                attributes=(
                    "antialias",
                    "axes",
                    "coordinate_transformation_mode",
                    "cubic_coeff_a",
                    "exclude_outside",
                    "extrapolation_value",
                    "keep_aspect_ratio_policy",
                    "mode",
                    "nearest_mode",
                ),
            ),
        ),
        none={"roi": "the region is treated as fixed", "scales": "the output's size depends on it"},
        module="gradgen.rules.resize",
    ),
    # sampling.toml, [GridSample]
    Row(
        "",
        "GridSample",
        1,
        inputs=("X", "grid"),
        outputs=("Y",),
        forms=(
            Form(
                "grid_sample_vjp",
                "traced",
                "gradgen.rules.sampling",
                ("dY", "X", "grid"),
                ("dX", "dgrid"),
                attributes=("mode", "padding_mode", "align_corners"),
            ),
        ),
        module="gradgen.rules.sampling",
    ),
    # sampling.toml, [AffineGrid]
    Row(
        "",
        "AffineGrid",
        1,
        inputs=("theta", "size"),
        outputs=("grid",),
        forms=(
            Form(
                "affine_grid_vjp",
                "traced",
                "gradgen.rules.sampling",
                ("dgrid", "theta", "size"),
                ("dtheta",),
                attributes=("align_corners",),
            ),
        ),
        module="gradgen.rules.sampling",
    ),
    # sampling.toml, [RoiAlign]
    Row(
        "",
        "RoiAlign",
        1,
        inputs=("X", "rois", "batch_indices"),
        outputs=("Y",),
        forms=(
            Form(
                "roi_align_vjp",
                "traced",
                "gradgen.rules.sampling",
                ("dY", "X", "rois", "batch_indices"),
                ("dX", "drois"),
                attributes=(
                    "coordinate_transformation_mode",
                    "mode",
                    "output_height",
                    "output_width",
                    "sampling_ratio",
                    "spatial_scale",
                ),
            ),
        ),
        module="gradgen.rules.sampling",
    ),
    # sampling.toml, [MaxRoiPool]
    Row(
        "",
        "MaxRoiPool",
        1,
        inputs=("X", "rois"),
        outputs=("Y",),
        forms=(
            Form(
                "max_roi_pool_vjp",
                "traced",
                "gradgen.rules.sampling",
                ("dY", "X", "rois"),
                ("dX",),
                attributes=("pooled_shape", "spatial_scale"),
            ),
        ),
        zero=("rois",),
        module="gradgen.rules.sampling",
    ),
    # sampling.toml, [DeformConv]
    Row(
        "",
        "DeformConv",
        1,
        inputs=("X", "W", "offset", "B", "mask"),
        outputs=("Y",),
        forms=(
            Form(
                "deform_conv_vjp",
                "traced",
                "gradgen.rules.sampling",
                ("dY", "X", "W", "offset", "B", "mask"),
                ("dX", "dW", "doffset", "dB", "dmask"),
                attributes=("strides", "dilations", "pads", "group", "offset_group"),
            ),
        ),
        ignores=("kernel_shape",),
        defaults="deform_conv_defaults",
        module="gradgen.rules.sampling",
    ),
    # sequence.toml, [SequenceConstruct]
    Row(
        "",
        "SequenceConstruct",
        1,
        inputs=("inputs*",),
        outputs=("output_sequence",),
        forms=(Form("sequenceconstruct_vjp", "structural", "gradgen.rules.sequence", (), ()),),
        module="gradgen.rules.sequence",
    ),
    # sequence.toml, [SequenceEmpty]
    Row(
        "",
        "SequenceEmpty",
        1,
        inputs=(),
        outputs=("output",),
        module="gradgen.rules.sequence",
    ),
    # sequence.toml, [SequenceAt]
    Row(
        "",
        "SequenceAt",
        1,
        inputs=("input_sequence", "position"),
        outputs=("tensor",),
        forms=(Form("sequenceat_vjp", "structural", "gradgen.rules.sequence", (), ()),),
        module="gradgen.rules.sequence",
    ),
    # sequence.toml, [SequenceInsert]
    Row(
        "",
        "SequenceInsert",
        1,
        inputs=("input_sequence", "tensor", "position"),
        outputs=("output_sequence",),
        forms=(Form("sequenceinsert_vjp", "structural", "gradgen.rules.sequence", (), ()),),
        module="gradgen.rules.sequence",
    ),
    # sequence.toml, [SequenceErase]
    Row(
        "",
        "SequenceErase",
        1,
        inputs=("input_sequence", "position"),
        outputs=("output_sequence",),
        forms=(Form("sequenceerase_vjp", "structural", "gradgen.rules.sequence", (), ()),),
        module="gradgen.rules.sequence",
    ),
    # sequence.toml, [SplitToSequence]
    Row(
        "",
        "SplitToSequence",
        1,
        inputs=("input", "split"),
        outputs=("output_sequence",),
        forms=(Form("splittosequence_vjp", "structural", "gradgen.rules.sequence", (), ()),),
        module="gradgen.rules.sequence",
    ),
    # sequence.toml, [ConcatFromSequence]
    Row(
        "",
        "ConcatFromSequence",
        1,
        inputs=("input_sequence",),
        outputs=("concat_result",),
        forms=(Form("concatfromsequence_vjp", "structural", "gradgen.rules.sequence", (), ()),),
        module="gradgen.rules.sequence",
    ),
    # sequence.toml, [Optional]
    Row(
        "",
        "Optional",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("optional_vjp", "structural", "gradgen.rules.sequence", (), ()),),
        module="gradgen.rules.sequence",
    ),
    # sequence.toml, [OptionalGetElement]
    Row(
        "",
        "OptionalGetElement",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("optionalgetelement_vjp", "structural", "gradgen.rules.sequence", (), ()),),
        module="gradgen.rules.sequence",
    ),
    # sequence.toml, [SequenceMap]
    Row(
        "",
        "SequenceMap",
        1,
        inputs=("input_sequence", "additional_inputs*"),
        outputs=("out_sequence*",),
        forms=(Form("sequencemap_vjp", "structural", "gradgen.rules.sequence", (), ()),),
        module="gradgen.rules.sequence",
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
        forms=(Form("expand_vjp", "traced", "gradgen.rules.shape", ("doutput", "input", "shape"), ("dinput",)),),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [ReverseSequence]
    Row(
        "",
        "ReverseSequence",
        1,
        inputs=("input", "sequence_lens"),
        outputs=("Y",),
        forms=(
            Form(
                "reverse_sequence_vjp",
                "compiled",
                "gradgen.rules.shape",
                ("dY", "sequence_lens"),
                ("dinput",),
                attributes=("batch_axis", "time_axis"),
            ),
        ),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [SpaceToDepth]
    Row(
        "",
        "SpaceToDepth",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(
            Form(
                "space_to_depth_vjp",
                "compiled",
                "gradgen.rules.shape",
                ("doutput",),
                ("dinput",),
                attributes=("blocksize",),
            ),
        ),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [SpaceToDepth@28]
    Row(
        "",
        "SpaceToDepth",
        28,
        inputs=("input",),
        outputs=("output",),
        forms=(
            Form(
                "space_to_depth_vjp__modes",
                "traced",
                "gradgen.rules.shape",
                ("doutput",),
                ("dinput",),
                attributes=("blocksize", "mode"),
            ),
        ),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [DepthToSpace]
    Row(
        "",
        "DepthToSpace",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(
            Form(
                "depth_to_space_vjp",
                "traced",
                "gradgen.rules.shape",
                ("doutput", "input"),
                ("dinput",),
                attributes=("blocksize", "mode"),
            ),
        ),
        module="gradgen.rules.shape",
    ),
    # shape.toml, [Range]
    Row(
        "",
        "Range",
        1,
        inputs=("start", "limit", "delta"),
        outputs=("output",),
        forms=(
            Form(
                "range_vjp",
                "compiled",
                "gradgen.rules.shape",
                ("doutput", "start", "limit", "delta", "output"),
                ("dstart", "ddelta"),
            ),
        ),
        zero=("limit",),
        ignores=("stash_type",),
        module="gradgen.rules.shape",
    ),
    # signal.toml, [DFT]
    Row(
        "",
        "DFT",
        1,
        inputs=("input", "dft_length", "axis"),
        outputs=("output",),
        forms=(
            Form(
                "dft_vjp",
                "traced",
                "gradgen.rules.signal",
                ("doutput", "input", "dft_length", "axis"),
                ("dinput",),
                attributes=("inverse", "onesided"),
            ),
        ),
        module="gradgen.rules.signal",
    ),
    # signal.toml, [STFT]
    Row(
        "",
        "STFT",
        1,
        inputs=("signal", "frame_step", "window", "frame_length"),
        outputs=("output",),
        forms=(
            Form(
                "stft_vjp",
                "traced",
                "gradgen.rules.signal",
                ("doutput", "signal", "frame_step", "window", "frame_length"),
                ("dsignal", "dwindow"),
                attributes=("onesided",),
            ),
        ),
        module="gradgen.rules.signal",
    ),
    # trig.toml, [Sin]
    Row(
        "",
        "Sin",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("sin_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Cos]
    Row(
        "",
        "Cos",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("cos_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Tan]
    Row(
        "",
        "Tan",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("tan_vjp", "compiled", "gradgen.rules.trig", ("doutput", "output"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Asin]
    Row(
        "",
        "Asin",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("asin_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Acos]
    Row(
        "",
        "Acos",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("acos_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Atan]
    Row(
        "",
        "Atan",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("atan_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Sinh]
    Row(
        "",
        "Sinh",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("sinh_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Cosh]
    Row(
        "",
        "Cosh",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("cosh_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Tanh]
    Row(
        "",
        "Tanh",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("tanh_vjp", "compiled", "gradgen.rules.trig", ("doutput", "output"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Asinh]
    Row(
        "",
        "Asinh",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("asinh_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Acosh]
    Row(
        "",
        "Acosh",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("acosh_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Atanh]
    Row(
        "",
        "Atanh",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("atanh_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
    ),
    # trig.toml, [Erf]
    Row(
        "",
        "Erf",
        1,
        inputs=("input",),
        outputs=("output",),
        forms=(Form("erf_vjp", "compiled", "gradgen.rules.trig", ("doutput", "input"), ("dinput",)),),
        module="gradgen.rules.trig",
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
