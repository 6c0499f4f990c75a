"""Hessian-vector products against float64 differences of the gradient."""

import pytest
from forward_mode import check_hvp, model_of


@pytest.mark.parametrize("name", ["mlp_static", "cnn_dynamic", "encoder_static", "transformer_dynamic"])
def test_models(name: str) -> None:
    check_hvp(*model_of(name))
