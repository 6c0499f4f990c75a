"""The generator: rule tables and rules in, registry, function library, tests and coverage out."""
