"""The 2x2x2 Rubik's cube: see docs/environments/rubiks_cube.md."""
