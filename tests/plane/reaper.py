"""Ends what a test process left running when it died without saying goodbye, by SIGKILL or a crash.

Run as a program of its own. It reads `+PID` and `-PID` lines; when its input closes, whoever wrote them is gone or done, and
each process group still listed is killed. Ordinary ends go through `processes`; the list is empty by then.
"""

import contextlib
import os
import shutil
import signal
import sys
from pathlib import Path


def born(pid: int) -> str:
    """When the process started, in the kernel's own ticks; empty where that cannot be known.

    A process number is given out again in time, so a number alone is not enough to kill by.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def main(directory: str) -> None:
    """Watch standard input; `directory` is removed with the last process, unless nothing had to be killed."""
    watched: dict[int, str] = {}
    for line in sys.stdin:
        pid = int(line[1:])
        if line[0] == "+":
            watched[pid] = born(pid)
        else:
            watched.pop(pid, None)
    for pid, when in watched.items():
        if born(pid) == when:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
    if watched:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1])
