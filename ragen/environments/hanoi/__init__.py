"""The Tower of Hanoi: see docs/environments/hanoi.md."""
