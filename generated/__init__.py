"""What the generator wrote: registry, function library, coverage. Do not edit: run `python tools/generate.py`."""
