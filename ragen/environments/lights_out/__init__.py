"""Lights Out: see docs/environments/lights_out.md."""
