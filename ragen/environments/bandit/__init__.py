"""The two-armed bandit: see docs/environments/bandit.md."""
