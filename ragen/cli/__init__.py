"""The command line: arguments in, tables or JSON out. Heavy packages are imported by the command that needs them."""

from ragen.cli.main import app, main

__all__ = ["app", "main"]
