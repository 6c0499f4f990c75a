"""Runs the generator: `python tools/generate.py [--check] [--rules F --table F --out DIR]`."""

from gradgen.generator.main import main

if __name__ == "__main__":
    main()
