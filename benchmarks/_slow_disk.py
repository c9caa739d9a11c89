"""A disk for one process on which every sync takes a fixed time: a library that replaces `fsync` and `fdatasync`.

It is compiled when it is needed and loaded by `LD_PRELOAD`, so it needs Linux and a C compiler. It syncs nothing to the
real disk, so that a sync takes the same time on any machine.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_SOURCE = """
#include <time.h>

static long syncs;

static int take_time(void)
{
    struct timespec left = {0, MILLISECONDS * 1000000L};
    __atomic_fetch_add(&syncs, 1, __ATOMIC_RELAXED);
    while (nanosleep(&left, &left) != 0) {} /* a signal came */
    return 0;
}

int fsync(int file) { (void)file; return take_time(); }
int fdatasync(int file) { (void)file; return take_time(); }
long slow_disk_syncs(void) { return __atomic_load_n(&syncs, __ATOMIC_RELAXED); }
"""


class NoSlowDisk(Exception):
    """The library cannot be compiled; the text says why."""


def slow_disk(folder: Path, milliseconds: int) -> Mapping[str, str]:
    """Compile the library into `folder`.

    Returns:
        The environment variables for a process with the slow disk.

    Raises:
        NoSlowDisk: This is not Linux, or it has no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not sys.platform.startswith("linux") or compiler is None:
        raise NoSlowDisk("a slow disk needs Linux and a C compiler")
    source, library = folder / "slow_disk.c", folder / "slow_disk.so"
    source.write_text(_SOURCE, encoding="ascii")
    command = [compiler, "-shared", "-fPIC", "-O1", f"-DMILLISECONDS={milliseconds}", str(source), "-o", str(library)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise NoSlowDisk(f"{compiler} failed: {done.stderr.strip().splitlines()[-1:]}")
    return {"LD_PRELOAD": str(library)}


def slow_syncs() -> int | None:
    """Syncs of this process so far; None if it does not use the slow disk."""
    try:
        counted = ctypes.CDLL(None).slow_disk_syncs
    except AttributeError:
        return None
    counted.restype = ctypes.c_long
    return int(counted())
