"""Memory that NumPy frees stays with the process.

A step allocates and frees tables of megabytes. By default glibc hands each of them back to the
kernel, which then clears every page anew: arithmetic on tables of Gowalla's size takes three times
as long.
"""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> None:
    """Ask glibc to reuse freed memory. Elsewhere, and where it has no such call, do nothing."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_M_TOP_PAD, 64 << 20)
