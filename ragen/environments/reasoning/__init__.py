"""Problems made and scored by the package reasoning-gym: see docs/environments/reasoning_gym.md and gsm.md."""
