"""Operators without a derivative to pass on: their rows in nondiff.toml say so, and no rule is needed."""
