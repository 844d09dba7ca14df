"""The command line, called in this process."""

from __future__ import annotations

import pytest

from ragen import cli


def call(capsys: pytest.CaptureFixture[str], *tokens: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of `ragen TOKENS`."""
    with pytest.raises(SystemExit) as exit_:
        cli.main(list(tokens))
    out, err = capsys.readouterr()
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, out, err
