"""Winograd convolution: products of tiles in place of those of all places and taps, for kernels of three taps an axis.

A tile of two results reads four places of the image. With the matrices below y = Aᵀ[(G·w) ⊙ (Bᵀ·x)] along each axis:
four products for six. (S. Winograd, Arithmetic Complexity of Computations, 1980; A. Lavin and S. Gray, Fast Algorithms
for Convolutional Neural Networks, 2016: F(2, 3) there.) What is here are the cotangents of that.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradgen.rules.lang import op

TAPS, STEP, POINTS = 3, 2, 4
_IMAGE = np.asarray([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float32)  # Bᵀ
_KERNEL = np.asarray([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)  # G
_RESULT = np.asarray([[1, 1, 1, 0], [0, 1, -1, -1]], np.float32)  # Aᵀ


class Tiles:
    """The tiles of a convolution of stride 1, in one group, of float32 images of known sizes in space.

    Args:
        X: the images, the first operand of the convolution.
        W: its kernel.
        pads: in front and behind, for each axis, as Conv has them.
    """

    def __init__(self, X: Any, W: Any, pads: Sequence[int]):
        number, _, *sizes = X.shape
        self.X, self.W, self.rank = X, W, len(sizes)
        # onnxruntime refuses sizes of 0 in space, and the images lie side by side there. One more of zeros changes no sum;
        # it costs what an image costs.
        self.spare = not (isinstance(number, int) and number > 0)
        begin, end = pads[: self.rank], pads[self.rank :]
        results = [n + p + q - TAPS + 1 for n, p, q in zip(sizes, begin, end, strict=True)]
        self.results = results
        self.counts = [-(-n // STEP) for n in results]
        # Where the last tile reaches beyond the result it reads zeros, of the cotangent and of the image.
        self.beyond = [STEP * t - n for t, n in zip(self.counts, results, strict=True)]
        reach = [STEP * t + POINTS - STEP - n - p for t, n, p in zip(self.counts, sizes, begin, strict=True)]
        self.pads = [0, *begin, 0, *reach]
        self.points = POINTS**self.rank

    def of_image(self) -> Any:
        """Bᵀ·x of each tile, [points, channels, tiles of the batch]."""
        return self._transformed(self.X, (self.W.shape[1], *self.X.shape[2:]), _IMAGE, self.pads)

    def of_result(self, ct: Any) -> Any:
        """A·ct of each tile, [points, channels, tiles of the batch]."""
        shape = (self.W.shape[0], *self.results)
        return self._transformed(ct, shape, _RESULT.T, [0] * (self.rank + 2) + self.beyond)

    def kernel_cotangent(self, results: Any, images: Any) -> Any:
        """Gᵀ of the products of the tiles, in the shape of the kernel."""
        products = op.MatMul(results, op.Transpose(images, perm=[0, 2, 1]))
        found = op.MatMul(self._power(_KERNEL.T), op.Reshape(products, [self.points, -1]))
        return op.Reshape(op.Transpose(found, perm=[1, 0]), [*self.W.shape[:2], *[TAPS] * self.rank])

    def image_cotangent(self, results: Any) -> Any:
        """B of the tiles' products with the kernel, summed where they overlap."""
        flat = op.Transpose(op.Reshape(self.W, [-1, TAPS**self.rank]), perm=[1, 0])
        kernel = op.Reshape(op.MatMul(self._power(_KERNEL), flat), [self.points, *self.W.shape[:2]])
        tiles = op.MatMul(op.Transpose(kernel, perm=[0, 2, 1]), results)
        windows = {"strides": [1] + [STEP] * self.rank, "pads": self.pads}
        image = op.ConvTranspose(
            op.Reshape(tiles, [1, self.points, -1, *self.counts]), self._windows(_IMAGE), **windows
        )
        image = op.Reshape(image, [self.W.shape[1], -1, *self.X.shape[2:]])
        if self.spare:
            image = op.Slice(image, [0], [-1], [1])
        return op.Transpose(image, perm=[1, 0, *range(2, self.rank + 2)])

    def _transformed(self, x: Any, shape: Sequence[int], matrix: np.ndarray, pads: list[int]) -> Any:
        # All images of a channel lie side by side, and all channels below each other, as one image of one channel.
        side = op.Transpose(x, perm=[1, 0, *range(2, self.rank + 2)])
        if self.spare:
            side = op.Pad(side, np.asarray([0, 1]), None, np.asarray([1]))
        whole = op.Reshape(side, [1, 1, -1, *shape[1:]])
        tiles = op.Conv(whole, self._windows(matrix), strides=[1] + [STEP] * self.rank, pads=pads)
        return op.Reshape(tiles, [self.points, shape[0], -1])

    def _windows(self, matrix: np.ndarray) -> np.ndarray:
        return self._power(matrix).reshape(self.points, 1, 1, *[matrix.shape[1]] * self.rank)

    def _power(self, matrix: np.ndarray) -> np.ndarray:
        return functools.reduce(np.kron, [matrix] * self.rank)
