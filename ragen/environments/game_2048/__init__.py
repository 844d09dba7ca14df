"""2048, the sliding tiles that merge: see docs/environments/game_2048.md."""
