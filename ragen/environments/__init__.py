"""Environments: Gymnasium's API, text in and text out. Built-in ones are listed here and imported when first used."""

from __future__ import annotations

from ragen.environments.registry import register

register(
    "bandit",
    "ragen.environments.bandit.env:BanditEnv",
    "two arms, a steady one and a risky one; the names hint which is which, one pull ends the episode",
)
