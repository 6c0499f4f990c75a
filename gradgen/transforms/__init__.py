"""Derivatives beyond the gradient, as models of models."""
