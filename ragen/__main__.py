"""`python -m ragen` is the command `ragen`."""

from __future__ import annotations

from ragen.cli import main

main()
