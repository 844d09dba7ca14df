"""Frozen lake: see docs/environments/frozen_lake.md."""
