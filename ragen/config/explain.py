"""What Hydra and OmegaConf found wrong, said in one line: key, value, what is allowed, near match."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ragen.config import schema
from ragen.errors import ConfigError, boundary, near_match

# Where the refused value stands in OmegaConf's messages; it has no attribute of its own.
_VALUE = re.compile(r"Value '(?P<a>.*)' (?:of type|is not a valid)|value: (?P<b>.*)")


@contextmanager
def one_line(source: str) -> Iterator[None]:
    """Turn every exception of the libraries into a one-line ConfigError; `source` names what is being read."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        with boundary(ConfigError, source):
            yield
    except ConfigError as error:
        cause = error.__cause__
        if isinstance(cause, HydraException | OmegaConfBaseException):
            raise ConfigError(_explain(cause, source)) from cause
        raise


def _explain(cause: BaseException, source: str) -> str:
    from hydra.errors import MissingConfigException
    from omegaconf.errors import OmegaConfBaseException

    if isinstance(cause, MissingConfigException) and cause.missing_cfg_file:
        options = list(cause.options or [])
        hint = near_match(str(cause.missing_cfg_file).rpartition("/")[2], options)
        return f"{source}: defaults: there is no {cause.missing_cfg_file!r} (known: {', '.join(options) or 'none'}){hint}"
    inner = cause.__cause__ if isinstance(cause.__cause__, OmegaConfBaseException) else cause
    # An override speaks for itself; only what stands in a file needs the file's name.
    prefix = f"{source}: " if inner is cause else ""
    return prefix + (_about_key(inner) or " ".join(str(inner).split()))


def _about_key(cause: BaseException) -> str:
    """The message about one key, or an empty string if the error names none. When an error of a file is wrapped, the key is left
    only in the text, so both forms are read."""
    message = str(cause)
    in_text = re.search(r"full_key: (\S+)", message)
    key = getattr(cause, "full_key", None) or (in_text.group(1) if in_text else "")
    if not key:
        return ""
    hint = schema.type_of(key)
    if hint is None:
        return schema.unknown(key)
    if "missing mandatory value" in message:
        return f"{key}: must be given"
    if "Interpolation" in message:
        return f"{key}: {message.splitlines()[0]}"
    found = _VALUE.search(message)
    value = "null" if "is not Optional" in message else (found["a"] or found["b"]) if found else ""
    return f"{key}={value}: must be {schema.in_words(hint)}" if value else f"{key}: must be {schema.in_words(hint)}"
