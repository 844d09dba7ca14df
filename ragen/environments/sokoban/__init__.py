"""Sokoban: see docs/environments/sokoban.md."""
