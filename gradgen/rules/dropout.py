"""Rules of Dropout."""

from __future__ import annotations

from gradgen.rules.lang import op, traced, vjp


@vjp
def dropout_vjp__inference(doutput):
    """ddata = doutput."""
    ddata = op.Identity(doutput)
    return ddata


@traced("ddata")
def dropout_vjp(doutput, ratio, training_mode, mask):
    """ddata = doutput·mask / (1 − ratio·training_mode); without training the mask is 1 everywhere."""
    if training_mode is None:
        return doutput
    dropped = op.CastLike(0.5 if ratio is None else ratio, doutput)
    kept = 1.0 - dropped * op.CastLike(training_mode, doutput)
    return doutput * op.CastLike(mask, doutput) / kept
