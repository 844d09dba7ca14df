"""Typed configuration: `load("bandit", ["trainer.steps=5"])` gives a checked Config."""
