"""The program `rocketpipe`, a module for each group of commands."""

from rocketpipe.cli.program import main

__all__ = ["main"]
