"""Transforms beyond the gradient: models of models, made from what the reverse pass gives."""
