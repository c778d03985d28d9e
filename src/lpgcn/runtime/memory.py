"""Memory: how much there is, and that what NumPy frees stays with the process.

A step allocates and frees tables of megabytes. By default glibc hands each of them back to the
kernel, which then clears every page anew: arithmetic on tables of Gowalla's size takes three times
as long.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> None:
    """Ask glibc to reuse freed memory. Elsewhere, and where it has no such call, do nothing.

    This is for the whole process and for good: for programs of ours, never for a library's host.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_M_TOP_PAD, 64 << 20)


def available_memory() -> int | None:
    """Bytes that could be had now without taking them from anybody, where the system says so: of
    the machine, or less if this process may not use all of it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    sizes = {name: size for name, _, size in (line.partition(":") for line in lines)}
    found = [int(sizes["MemAvailable"].split()[0]) * 1024] if "MemAvailable" in sizes else []
    control = Path("/sys/fs/cgroup")
    try:
        limit = (control / "memory.max").read_text(encoding="ascii").strip()
        used = (control / "memory.current").read_text(encoding="ascii")
    except OSError:
        limit, used = "max", "0"
    return min([*found, *([] if limit == "max" else [int(limit) - int(used)])], default=None)
