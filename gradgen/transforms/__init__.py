"""Transforms of models beyond the gradient: each is a module, and its call a name in `gradgen`."""
