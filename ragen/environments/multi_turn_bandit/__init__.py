"""The bandit with many pulls: see docs/environments/multi_turn_bandit.md."""
