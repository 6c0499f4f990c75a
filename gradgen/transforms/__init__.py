"""Transforms of models: derivatives of other kinds, and what changes how a derivative is computed."""
