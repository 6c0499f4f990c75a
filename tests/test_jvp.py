"""Jacobian-vector products against float64 differences of the primal."""

import pytest
from forward_mode import directions, model_of, prefixed, wide, wide_run

import gradgen
from gradgen.differences import directional


@pytest.mark.parametrize("name", ["mlp_static", "cnn_dynamic", "encoder_static", "transformer_dynamic"])
def test_models(name: str) -> None:
    model, feeds, wrt = model_of(name)
    point, v = wide(feeds), directions(feeds, wrt, 1)
    want = directional(wide_run(model), point, v, {"loss": 1.0})
    found = wide_run(gradgen.jvp(model, wrt=wrt))({**point, **prefixed("tangent_", v)})
    assert list(found) == ["loss", "tangent_loss"]
    assert abs(found["tangent_loss"] - want.value) <= 1e-6 * abs(want.value) + 3 * want.error
