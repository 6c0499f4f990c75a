"""Runs the command line: `python -m gradgen`."""

from gradgen.cli import main

main()
