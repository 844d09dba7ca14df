"""Does an environment keep the contract of text_env.py? Behind `ragen envs check NAME`, and in the tests of every environment."""

from ragen.environments.checker.report import Finding, Outcome, Report
from ragen.environments.checker.run import check, check_environment

__all__ = [
    "Finding",
    "Outcome",
    "Report",
    "check",
    "check_environment",
]
