# Shows which pixels speak for a digit: the gradient of one logit with respect to the image, times the image.
"""The input gradient of a classifier: `python examples/saliency.py`."""

from pathlib import Path

import numpy as np
import onnxruntime

import gradgen

HERE = Path(__file__).parent
SHADES = " .:-=+*#%@"


def saliency(images: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Gradient times input of the logit of each label; images [N, 1, 8, 8], result [N, 8, 8]."""
    model = gradgen.vjp(HERE / "digits_cnn.onnx", wrt=["image"], of=["logits"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    one_hot = np.eye(10, dtype=np.float32)[labels]
    # The model's own inputs stay as they are: `label` belongs to the loss, which nobody asks for here.
    feeds = {"image": images, "label": labels, "grad_logits": one_hot}
    (gradient,) = session.run(["grad_image"], feeds)
    return (gradient * images)[:, 0]


def drawn(image: np.ndarray) -> list[str]:
    """A picture in characters, dark where the values are large; negative ones are blank."""
    levels = np.clip(image / max(image.max(), 1e-9), 0, 1) * (len(SHADES) - 1)
    return ["".join(SHADES[round(v)] * 2 for v in row) for row in levels]


if __name__ == "__main__":
    sample = np.load(HERE / "digits_sample.npz")
    first = np.unique(sample["label"], return_index=True)[1][[2, 4]]
    images, labels = sample["image"][first], sample["label"][first]
    for image, label, attribution in zip(images, labels, saliency(images, labels), strict=True):
        print(f"a {label}, and what speaks for it")
        for left, right in zip(drawn(image[0]), drawn(attribution), strict=True):
            print(f"|{left}|{right}|")
