"""What every advantage estimator must keep, and what one may promise beyond that, as checks on small random rollouts.

The subject is the whole way from recorded trajectories to samples, with the estimator in its middle: observation tokens, segments
and lost trajectories exist only there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from ragen.credit.config import AdvantageConfig
from ragen.credit.samples import assign_credit
from ragen.environments.checker.report import Report
from ragen.testing.estimators.always import ALWAYS
from ragen.testing.estimators.promises import PROMISED, PROMISES, check_promises, promises_of
from ragen.testing.estimators.subject import AssignCredit, Subject
from ragen.testing.run import OnFinding, run_checks

__all__ = ["PROMISES", "AssignCredit", "check_estimator", "promises_of"]


def check_estimator(
    config: AdvantageConfig,
    *,
    promises: Iterable[str] | None = None,
    assign: AssignCredit = assign_credit,
    on_finding: OnFinding | None = None,
) -> Report:
    """Check the estimator that `config` names, one of ours or "module:function" of one's own.

    `promises` are names of PROMISES; left out, they are those of our estimator, or "critic" for one of one's own that needs it.
    Raises ConfigError for settings or promises that there are not.
    """
    config.check()
    if promises is not None:
        chosen = frozenset(promises)
    elif config.is_plugin:
        chosen = frozenset({"critic"} if config.needs_critic else ())
    else:
        chosen = promises_of(config)
    check_promises(chosen)
    subject = Subject(config=config, promises=chosen, assign=assign)
    checks = [*ALWAYS.items(), *((name, check) for name, check in PROMISED.items() if name in chosen)]
    return run_checks(subject, checks, name=config.estimator, options=asdict(config), on_finding=on_finding)
