# Models as functions of JAX, PyTorch and SciPy: values and derivatives beside those of the libraries themselves.
"""Tests of gradgen.interop; those of a library that is not installed are skipped."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import gradgen
from gradgen import interop


def library(name: str):
    return pytest.importorskip(name, reason=f"needs {name}: extra {name.partition('.')[0]}")


@pytest.fixture(scope="module")
def torch():
    return library("torch")


@pytest.fixture(scope="module")
def jax():
    found = library("jax")
    found.config.update("jax_enable_x64", True)
    return found


@pytest.fixture(scope="module")
def optimize():
    return library("scipy.optimize")


def model(text: str, **initializers: np.ndarray) -> onnx.ModelProto:
    proto = parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in initializers.items())
    return proto


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


W, U = draw(3, 4), draw(4, 2)
LAYERS = "h = MatMul(x, w)\n t = Tanh(h)\n y = MatMul(t, u)"
TWO_LAYERS = model(f"g (double[N,3] x) => (double[N,2] y) {{ {LAYERS} }}", w=W, u=U)
WITH_SHAPE = model(f"g (double[N,3] x) => (double[N,2] y, int64[2] s) {{ {LAYERS}\n s = Shape(y) }}", w=W, u=U)
CLASSIFIER = model(
    f"g (double[N,3] x, int64[N] label) => (double loss) {{ {LAYERS}\n loss = SoftmaxCrossEntropyLoss(y, label) }}",
    w=W,
    u=U,
)
DROPOUT = model(
    """g (float[N] x) => (float[N] y) {
    on = Constant <value_int = 1> ()
    training = Cast <to = 9> (on)
    half = Constant <value_float = 0.5> ()
    d = Dropout(x, half, training)
    y = Mul(d, d) }"""
)
X = draw(5, 3)


def test_nothing_is_imported_before_it_is_used():
    code = "import sys, gradgen.interop; print({'jax', 'torch', 'scipy', 'onnxruntime'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_a_library_that_is_missing_is_named_with_the_way_to_install_it(name):
    code = f"""import sys
sys.modules["{name}"] = None
import gradgen.interop
gradgen.interop.{name}_function"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: gradgen.interop needs {name}, which cannot be imported")
    assert f'pip install -e ".[{name}]"' in last


# PyTorch


def test_torch_gradients_are_those_of_torch(torch):
    f = interop.torch_function(TWO_LAYERS, wrt=["x", "w", "u"])
    assert (f.inputs, f.outputs) == (["x", "w", "u"], ["y"])
    tensors = [torch.tensor(a, requires_grad=True) for a in (X, W, U)]
    own = [torch.tensor(a, requires_grad=True) for a in (X, W, U)]
    y, want = f(*tensors), torch.tanh(own[0] @ own[1]) @ own[2]
    torch.testing.assert_close(y, want)
    seed = torch.tensor(draw(5, 2, seed=2))
    y.backward(seed)
    want.backward(seed)
    for found, expected in zip(tensors, own, strict=True):
        torch.testing.assert_close(found.grad, expected.grad)


def test_torch_numeric_checks_to_second_order(torch):
    f = interop.torch_function(WITH_SHAPE, wrt=["x", "w"])
    tensors = [torch.tensor(a, requires_grad=True) for a in (X, W)]
    assert torch.autograd.gradcheck(lambda x, w: f(x, w)[0], tensors)
    assert torch.autograd.gradgradcheck(lambda x, w: f(x, w)[0], tensors)


def test_torch_third_order(torch):
    f = interop.torch_function(model("g (double[3] x) => (double[3] y) { y = Sin(x) }"))
    x = torch.tensor(draw(3), requires_grad=True)
    found = f(x)
    for _ in range(3):
        (found,) = torch.autograd.grad(found.sum(), x, create_graph=True)
    torch.testing.assert_close(found.detach(), -torch.cos(x.detach()))


def test_torch_integers_carry_no_gradient(torch):
    f = interop.torch_function(WITH_SHAPE)
    y, s = f(torch.tensor(X, requires_grad=True))
    assert y.requires_grad and not s.requires_grad and s.tolist() == [5, 2]
    loss = interop.torch_function(CLASSIFIER)(torch.tensor(X, requires_grad=True), torch.tensor([0, 1, 0, 1, 1]))
    loss.backward()


def test_torch_dropout_draws_once(torch):
    f = interop.torch_function(DROPOUT)
    x = torch.randn(500, requires_grad=True)
    y = f(x)
    y.sum().backward()
    dropped = y == 0
    assert 100 < int(dropped.sum()) < 400
    torch.testing.assert_close(x.grad, torch.where(dropped, 0, 8 * x.detach()))
    y = f(x)
    with pytest.raises(gradgen.GradientError, match="would draw again"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_torch_learns(torch):
    f = interop.torch_function(CLASSIFIER, wrt=["w", "u"])
    weights = [torch.nn.Parameter(torch.tensor(f.parameters[n])) for n in ("w", "u")]
    optimiser = torch.optim.Adam(weights, lr=0.1)
    x, label = torch.tensor(draw(20, 3)), torch.arange(20) % 2
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = f(x, label, *weights)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
    assert float(f(x, label)) == pytest.approx(losses[0])  # what is left out has its stored value


def test_torch_errors(torch):
    f = interop.torch_function(CLASSIFIER)
    x = torch.tensor(X)
    with pytest.raises(gradgen.GradientError, match="arguments: 'label' is missing; the model has x, label"):
        f(x)
    with pytest.raises(gradgen.GradientError, match="there is no argument 'y'"):
        f(x, label=x, y=x)
    with pytest.raises(
        gradgen.GradientError, match="argument 'x' is of torch.float64, and the tensor of torch.float32"
    ):
        f(x.float(), torch.tensor([0, 1, 0, 1, 1]))
    with pytest.raises(gradgen.GradientError, match=r"argument 'x' has rank 2, and the tensor has shape \[3\]"):
        f(x[0], torch.tensor([0, 1, 0, 1, 1]))
    with pytest.raises(gradgen.GradientError, match="wrt: 'h' is computed by the model"):
        interop.torch_function(CLASSIFIER, wrt=["h"])


# JAX


def test_jax_gradients_are_those_of_jax(jax):
    f = interop.jax_function(TWO_LAYERS, wrt=["x", "w", "u"])

    def own(x, w, u):
        return jax.numpy.tanh(x @ w) @ u

    np.testing.assert_allclose(f(X, W, U), own(X, W, U), rtol=1e-12)
    np.testing.assert_allclose(jax.jit(f)(X, W, U), own(X, W, U), rtol=1e-12)
    seed = draw(5, 2, seed=2)
    for call in (f, jax.jit(f)):
        found, want = (jax.vjp(g, X, W, U)[1](seed) for g in (call, own))
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_jax_second_order(jax):
    f = interop.jax_function(TWO_LAYERS, wrt=["x", "w"], order=2)

    def own(x, w):
        return (jax.numpy.tanh(x @ w) @ U).sum()

    hessian = jax.jacrev(jax.grad(lambda x, w: f(x, w).sum(), argnums=1), argnums=(0, 1))
    want = jax.jacrev(jax.grad(own, argnums=1), argnums=(0, 1))(X, W)
    for a, b in zip(hessian(X, W), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_jax_sizes_and_integers(jax):
    f = interop.jax_function(WITH_SHAPE)
    for batch in (1, 7):
        y, s = jax.jit(f)(draw(batch, 3))
        assert y.shape == (batch, 2) and s.tolist() == [batch, 2]
    loss = interop.jax_function(CLASSIFIER, wrt=["w"])
    label = jax.numpy.arange(5) % 2
    gradient = jax.jit(jax.grad(lambda w: loss(X, label, w)))(W)

    def own(w):
        score = jax.nn.log_softmax(jax.numpy.tanh(X @ w) @ U)
        return -score[np.arange(5), label].mean()

    np.testing.assert_allclose(gradient, jax.grad(own)(W), rtol=1e-9, atol=1e-12)


def test_jax_vmap(jax):
    f = interop.jax_function(model("g (double[3] x) => (double y) { s = Sin(x)\n y = ReduceSum <keepdims = 0> (s) }"))
    np.testing.assert_allclose(jax.vmap(jax.grad(f))(X), np.cos(X), rtol=1e-12)


def test_jax_shapes_that_depend_on_the_data(jax):
    """Residuals of unknown shapes: the backward pass runs the forward one again."""
    text = """g (double[N] x) => (double y) {
      zero = Constant <value = double {0}> ()
      positive = Greater(x, zero)
      kept = Compress <axis = 0> (x, positive)
      e = Exp(kept)
      y = ReduceSum <keepdims = 0> (e) }"""
    f = interop.jax_function(model(text))
    x = draw(6)
    np.testing.assert_allclose(jax.grad(f)(x), np.where(x > 0, np.exp(x), 0), rtol=1e-9)


def test_jax_wants_to_know_shapes(jax):
    text = "g (double[N] x, int64[1] n) => (double[M] y) { e = Exp(x)\n y = Tile(e, n) }"
    with pytest.raises(gradgen.GradientError, match="the shape of 'y' cannot be inferred .* pass shapes="):
        interop.jax_function(model(text))(draw(3), np.array([2]))
    f = interop.jax_function(model(text), shapes=lambda given: {"y": (2 * given["x"][0],)})
    x, n = draw(3), np.array([2])
    np.testing.assert_allclose(f(x, n), np.tile(np.exp(x), 2), rtol=1e-12)
    np.testing.assert_allclose(jax.grad(lambda x: f(x, n).sum())(x), 2 * np.exp(x), rtol=1e-12)


def test_jax_errors(jax):
    f = interop.jax_function(TWO_LAYERS)
    with pytest.raises(gradgen.GradientError, match=r"argument 'x' has rank 2, and the array has shape \[3\]"):
        f(X[0])
    with pytest.raises(gradgen.GradientError, match="argument 'x' is of float64, and the array of complex128"):
        f(X + 1j)
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(gradgen.GradientError, match="jax_enable_x64"):
            f(X)
    finally:
        jax.config.update("jax_enable_x64", True)


# SciPy

ROSENBROCK = model(
    """g (double[4] x) => (double f) {
    zero = Constant <value_ints = [0]> ()
    one = Constant <value_ints = [1]> ()
    three = Constant <value_ints = [3]> ()
    four = Constant <value_ints = [4]> ()
    a = Slice(x, zero, three)
    b = Slice(x, one, four)
    square = Mul(a, a)
    gap = Sub(b, square)
    gap2 = Mul(gap, gap)
    hundred = Constant <value = double {100.0}> ()
    steep = Mul(gap2, hundred)
    unit = Constant <value = double {1.0}> ()
    rest = Sub(unit, a)
    rest2 = Mul(rest, rest)
    all = Add(steep, rest2)
    f = ReduceSum <keepdims = 0> (all) }"""
)


def test_scipy_rosenbrock(optimize):
    f = interop.scipy_objective(ROSENBROCK)
    np.testing.assert_array_equal(f.x0, np.zeros(4))
    point = draw(4)
    value, gradient = f(point)
    assert value == pytest.approx(optimize.rosen(point))
    np.testing.assert_allclose(gradient, optimize.rosen_der(point), rtol=1e-10)
    found = optimize.minimize(f, f.x0, jac=True, method="BFGS")
    np.testing.assert_allclose(found.x, np.ones(4), atol=1e-5)


def test_scipy_several_variables_and_fixed_inputs(optimize):
    label = np.arange(20) % 2
    f = interop.scipy_objective(CLASSIFIER, wrt=["u", "w"], fixed={"x": draw(20, 3), "label": label})
    assert f.variables == ["u", "w"] and f.shapes == {"u": (4, 2), "w": (3, 4)}
    np.testing.assert_array_equal(f.x0, np.concatenate([U.reshape(-1), W.reshape(-1)]))
    assert {n: a.tolist() for n, a in f.unpack(f.x0).items()} == {"u": U.tolist(), "w": W.tolist()}
    np.testing.assert_array_equal(f.pack(f.unpack(f.x0)), f.x0)
    error = optimize.check_grad(lambda x: f(x)[0], lambda x: f(x)[1], f.x0)
    assert error < 1e-6
    found = optimize.minimize(f, f.x0, jac=True, method="L-BFGS-B", options={"maxiter": 30})
    assert found.fun < 0.7 * f(f.x0)[0]


def test_scipy_float32_gives_float64_vectors():
    f = interop.scipy_objective(
        model("g (float[3] x) => (float y) { s = Mul(x, x)\n y = ReduceSum <keepdims = 0> (s) }")
    )
    value, gradient = f(np.array([1.0, 2, 3]))
    assert value == 14 and gradient.dtype == np.float64
    np.testing.assert_array_equal(gradient, [2, 4, 6])


def test_scipy_start_and_reduce():
    f = interop.scipy_objective(TWO_LAYERS, wrt=["x"], start={"x": X}, fixed={"w": 2 * W}, reduce="sum")
    value, gradient = f(f.x0)
    assert value == pytest.approx((np.tanh(X @ (2 * W)) @ U).sum())
    slope = ((1 - np.tanh(X @ (2 * W)) ** 2) * U.sum(1)) @ (2 * W).T
    np.testing.assert_allclose(gradient, slope.reshape(-1), rtol=1e-9)


def test_scipy_errors():
    def refused(message: str, *arguments, **named):
        with pytest.raises(gradgen.GradientError, match=message):
            interop.scipy_objective(*arguments, **named)

    refused("input 'label' is neither in wrt nor in fixed", CLASSIFIER, start={"x": X})
    refused("fixed: there is no input or initializer 'labels'", CLASSIFIER, fixed={"labels": X})
    refused("fixed: 'x' is in wrt", CLASSIFIER, fixed={"x": X, "label": np.zeros(5, int)})
    refused("the shape of 'x' is not known: give an array in start", CLASSIFIER, fixed={"label": np.zeros(5, int)})
    refused("wrt: 'h' is computed by the model", CLASSIFIER, ["h"], fixed={"x": X, "label": np.zeros(5, int)})
    refused("reduce is None or 'sum'", TWO_LAYERS, reduce="element")
    f = interop.scipy_objective(ROSENBROCK)
    with pytest.raises(gradgen.GradientError, match=r"the vector has 4 elements, and what is given has shape \[3\]"):
        f(np.zeros(3))
    with pytest.raises(gradgen.GradientError, match=r"'x' has shape \[4\], and the array \[2\]"):
        f.pack({"x": np.zeros(2)})
