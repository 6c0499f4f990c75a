"""Trains the weights of examples/digits_cnn.onnx in plain numpy, on scikit-learn's 8 x 8 digits, for make_models.py."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Arrays = dict[str, np.ndarray]


def windows(x: np.ndarray) -> np.ndarray:
    """The 3 x 3 neighbourhoods of x [N, C, H, W], zero-padded: [N, H, W, C * 9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = sliding_window_view(padded, (3, 3), axis=(2, 3))
    return view.transpose(0, 2, 3, 1, 4, 5).reshape(x.shape[0], x.shape[2], x.shape[3], -1)


def convolve(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return (windows(x) @ weight.reshape(len(weight), -1).T).transpose(0, 3, 1, 2)


def pool(x: np.ndarray) -> np.ndarray:
    n, c, h, w = x.shape
    return x.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5))


def unpool(x: np.ndarray, pooled: np.ndarray, cotangent: np.ndarray) -> np.ndarray:
    """Hands each cotangent to the places that hold its maximum, in equal parts."""
    mask = x == pooled.repeat(2, axis=2).repeat(2, axis=3)
    n, c, h, w = x.shape
    count = mask.reshape(n, c, h // 2, 2, w // 2, 2).sum(axis=(3, 5))
    return mask * (cotangent / count).repeat(2, axis=2).repeat(2, axis=3)


def loss_and_gradients(p: Arrays, image: np.ndarray, label: np.ndarray) -> tuple[float, np.ndarray, Arrays]:
    """Mean cross-entropy, logits, and the gradient of the loss to every parameter."""
    kept, x = [], image
    for i in (1, 2):
        active = np.maximum(convolve(x, p[f"conv{i}.weight"]) + p[f"conv{i}.bias"][:, None, None], 0)
        pooled = pool(active)
        kept.append((i, x, active, pooled))
        x = pooled
    features = x.reshape(len(x), -1)
    logits = features @ p["fc.weight"].T + p["fc.bias"]
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(label))

    cotangent = np.exp(log_probabilities)
    cotangent[rows, label] -= 1
    cotangent /= len(label)
    gradients = {"fc.weight": cotangent.T @ features, "fc.bias": cotangent.sum(axis=0)}
    cotangent = (cotangent @ p["fc.weight"]).reshape(x.shape)
    for i, entered, active, pooled in reversed(kept):
        cotangent = unpool(active, pooled, cotangent) * (active > 0)
        weight = p[f"conv{i}.weight"]
        columns = windows(entered).reshape(-1, weight[0].size)
        flat = cotangent.transpose(0, 2, 3, 1).reshape(-1, len(weight))
        gradients[f"conv{i}.weight"] = (flat.T @ columns).reshape(weight.shape)
        gradients[f"conv{i}.bias"] = flat.sum(axis=0)
        cotangent = convolve(cotangent, weight[:, :, ::-1, ::-1].transpose(1, 0, 2, 3))
    return -float(log_probabilities[rows, label].mean()), logits, gradients


def initial_parameters(rng: np.random.Generator) -> Arrays:
    def layer(name: str, *shape: int) -> Arrays:
        scale = (2 / np.prod(shape[1:])) ** 0.5
        return {f"{name}.weight": rng.standard_normal(shape) * scale, f"{name}.bias": np.zeros(shape[0])}

    return {**layer("conv1", 8, 1, 3, 3), **layer("conv2", 16, 8, 3, 3), **layer("fc", 10, 64)}


def train(epochs: int = 20, batch: int = 64, rate: float = 3e-3) -> tuple[Arrays, float, np.ndarray, np.ndarray]:
    """Adam on four fifths of the digits: parameters, accuracy on the rest, and 16 held-out images with their labels."""
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(0)
    digits = load_digits()
    image = (digits.images[:, None] / 16).astype(np.float64)
    label = digits.target.astype(np.int64)
    order = rng.permutation(len(label))
    held_out, order = order[: len(order) // 5], order[len(order) // 5 :]

    parameters = initial_parameters(rng)
    mean = {name: np.zeros_like(value) for name, value in parameters.items()}
    square = {name: np.zeros_like(value) for name, value in parameters.items()}
    step = 0
    for _ in range(epochs):
        rng.shuffle(order)
        for start in range(0, len(order), batch):
            chosen = order[start : start + batch]
            _, _, gradients = loss_and_gradients(parameters, image[chosen], label[chosen])
            step += 1
            for name, gradient in gradients.items():
                mean[name] = 0.9 * mean[name] + 0.1 * gradient
                square[name] = 0.999 * square[name] + 0.001 * gradient**2
                update = mean[name] / (1 - 0.9**step) / (np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8)
                parameters[name] = parameters[name] - rate * update
    logits = loss_and_gradients(parameters, image[held_out], label[held_out])[1]
    accuracy = float((logits.argmax(axis=1) == label[held_out]).mean())
    return parameters, accuracy, image[held_out[:16]].astype(np.float32), label[held_out[:16]]
