"""Countdown, arithmetic with given numbers: see docs/environments/countdown.md."""
