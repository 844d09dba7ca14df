"""Invariants that any advantage estimator, policy loss, KL term or filter must keep, as checks of one's own function or of ours.

A reward curve does not show a wrong estimator; most published faults of this kind break one of these. Each check answers with a
finding by name; `ragen check-algorithm my_pkg.my_algo:my_estimator` runs them from the command line. What they are, and which
published faults they catch: docs/algorithms/invariants.md.
"""
