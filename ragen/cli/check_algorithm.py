"""`ragen check-algorithm`: whether an estimator, loss or filter keeps the invariants; ours, or one's own by import path."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Literal

from ragen.cli.output import Json, Options, Repeated, console, print_json

if TYPE_CHECKING:
    from rich.text import Text

    from ragen.credit.config import AdvantageConfig
    from ragen.environments.checker.report import Finding, Report
    from ragen.testing.run import OnFinding

Kind = Literal["estimator", "loss", "kl", "filter"]

_STYLES = {"passed": "green", "failed": "bold red"}


def check_algorithm(
    name: str,
    /,
    *,
    kind: Kind = "estimator",
    promise: Repeated = None,
    option: Options = None,
    as_json: Json = False,
) -> None:
    """Check whether an algorithm's part keeps the invariants; exit code 1 if one is broken, 2 if there is no such part.

    An estimator gets views of trajectories and settings, and answers a Credit for each view. A loss gets log-probs of the policy
    and of the sampler, advantages, and the sample that each token belongs to; a KL term those of policy, sampler and reference;
    both answer a number per token. A filter gets groups and answers the positions of those that are kept.

    Parameters
    ----------
    name
        module:function of your own, or an estimator such as grpo
    kind
        what it is: estimator, loss, kl or filter
    promise
        what it is held to beyond what all must keep, such as centred; may be repeated
    option
        KEY=VALUE, a setting of algorithm.advantage; may be repeated
    as_json
        print the report as JSON
    """
    from ragen.errors import ConfigError

    if option and kind != "estimator":
        raise ConfigError(f"--option: has no effect with --kind {kind}; only an estimator has settings")
    out = console()
    report = _check(
        name, kind, promise, option or [], None if as_json else lambda finding: out.print(_line(finding), soft_wrap=True)
    )
    if as_json:
        print_json({"ok": report.ok, "kind": kind, **asdict(report)})
    else:
        num_broken = sum(finding.outcome == "failed" for finding in report.findings)
        out.print(f"\n{name}: {len(report.findings) - num_broken} kept, {num_broken} broken", highlight=False, markup=False)
    if not report.ok:
        sys.exit(1)


def _check(name: str, kind: Kind, promises: list[str] | None, options: list[str], on_finding: OnFinding | None) -> Report:
    from ragen.credit.plugin import import_function
    from ragen.errors import ConfigError

    if kind == "estimator":
        from ragen.testing.estimators import check_estimator

        return check_estimator(_config(name, options), promises=promises, on_finding=on_finding)
    function = import_function(name, f"{kind} {name!r}")
    if kind == "filter":
        from ragen.testing.filters import check_filter

        unknown = set(promises or ()) - {"by_spread"}
        if unknown:
            raise ConfigError(f"promise {min(unknown)!r}: must be by_spread for a filter")
        return check_filter(function, by_spread=bool(promises), name=name, on_finding=on_finding)
    if promises:
        raise ConfigError(f"--promise: has no effect with --kind {kind}: every one must keep the same")
    from ragen.testing.losses import check_kl_term, check_policy_loss

    return (check_policy_loss if kind == "loss" else check_kl_term)(function, name=name, on_finding=on_finding)


def _config(name: str, options: list[str]) -> AdvantageConfig:
    """The settings, each value read as what its default is."""
    from ragen.credit.config import AdvantageConfig
    from ragen.errors import ConfigError, near_match

    defaults = {field.name: field.default for field in fields(AdvantageConfig) if field.name != "estimator"}
    chosen: dict[str, Any] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals or key not in defaults:
            raise ConfigError(
                f"--option {option}: must be KEY=VALUE with KEY one of {', '.join(defaults)}{near_match(key, defaults)}"
            )
        chosen[key] = _read(option, text, defaults[key])
    return AdvantageConfig(estimator=name, **chosen)


def _read(option: str, text: str, default: Any) -> Any:
    from ragen.errors import ConfigError

    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        return type(default)(text)
    except (KeyError, ValueError):
        kind = "true or false" if isinstance(default, bool) else "a number"
        raise ConfigError(f"--option {option}: must be {kind}") from None


def _line(finding: Finding) -> Text:
    from rich.text import Text

    return Text.assemble(f"{finding.check:<20}", (f"{finding.outcome:<8}", _STYLES[finding.outcome]), finding.detail)
