"""Generates the stubs of a checkout, before setuptools collects the files of the package."""

import sys
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
if (HERE.parent.parent / "proto").is_dir():  # a source distribution has the stubs
    sys.path.insert(0, str(HERE))
    from generate import generate

    generate(cli=False)
setup()
