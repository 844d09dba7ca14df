"""A process that ends another one whose interpreter stands still. watchdog.py runs it as a script, which loads nothing else.

    python -I -S sentry.py PID TICKS TICK_S LOG

Every byte on stdin is a sign that the interpreter of process PID runs; the end of stdin is the end of the watch. After TICKS
ticks without one, a line goes to LOG and stderr, the process is asked by SIGUSR2 for the stacks of its threads (faulthandler
answers, which needs no interpreter), and killed. Ticks in which the process was paused (Ctrl-Z, SIGSTOP, a debugger) do not
count, nor does time in which both were: it is ticks that are counted, not the clock.
"""

import os
import select
import signal
import sys
import time
from contextlib import suppress

STACKS_S = 1.0  # to write the stacks of all threads


def main() -> None:
    """Watch until stdin ends."""
    pid, limit, tick_s, log = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    silent = 0
    while silent < limit:
        if select.select([0], [], [], tick_s)[0]:
            if not os.read(0, 4096):
                return
            silent = 0
        elif not is_paused(pid):
            silent += 1
    reason = f"the interpreter has not run for {limit * tick_s:g} s, twice trainer.stall_timeout_s"
    text = f"\nerror: {reason}; what every thread was doing follows\n"
    with open(log, "a", encoding="utf-8") as file:
        file.write(text)
    sys.stderr.write(text)
    with suppress(ProcessLookupError):  # it has ended after all
        os.kill(pid, signal.SIGUSR2)
        time.sleep(STACKS_S)
        os.kill(pid, signal.SIGKILL)


def is_paused(pid: int) -> bool:
    """Whether the process is stopped or traced, as far as the system tells."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] in "Tt"
    except OSError:  # a system without /proc
        return False


if __name__ == "__main__":
    main()
