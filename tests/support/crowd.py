"""A module with twelve environments."""

from __future__ import annotations

from tests.support.corridor import Corridor

for _number in range(12):
    globals()[f"Crowd{_number}"] = type(f"Crowd{_number}", (Corridor,), {"__module__": __name__})
