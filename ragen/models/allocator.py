"""Memory that has been freed stays with the process, so that the next tensor of that size need not be asked of the system."""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Tell glibc not to hand freed blocks back to the system; returns whether there is a glibc to tell.

    By default every tensor of some MiB is mapped anew, and the system clears each of its pages on first touch: about a tenth of
    an update's time on a CPU. The most memory that is in use at one time does not change.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library, such as musl
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, NEVER)) and bool(mallopt(M_TRIM_THRESHOLD, NEVER))
