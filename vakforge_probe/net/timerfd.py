"""Linux timerfd: a timer on the monotonic clock that is read like a file."""

from __future__ import annotations

import ctypes
import os
import sys
import weakref

from vakforge_eval.timeline.instant import NS_PER_S

__all__ = ["TimerFd"]

_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1


class TimerFd:
    """A kernel timer; readable once its instant has passed, closed with this object.

    Attributes
    ----------
    fd
        The descriptor, to be watched by a selector.
    """

    def __init__(self) -> None:
        self.fd = _create()
        self._close = weakref.finalize(self, os.close, self.fd)

    def close(self) -> None:
        """Close the descriptor; may be repeated."""
        self._close()

    def set(self, ns: int, every_ns: int = 0) -> None:
        """Fire at the instant `ns` (at once if past), then every `every_ns` if that is not 0."""
        # Zero would disarm the timer instead of firing it at once.
        _settime(self.fd, max(ns, 1), every_ns)

    def disarm(self) -> None:
        """Do not fire."""
        _settime(self.fd, 0, 0)

    def expired(self) -> bool:
        """Whether it has fired since it was last asked."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return False
        return True


if sys.version_info >= (3, 13):

    def _create() -> int:
        return os.timerfd_create(_CLOCK_MONOTONIC, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)

    def _settime(fd: int, ns: int, every_ns: int) -> None:
        os.timerfd_settime_ns(fd, flags=_TFD_TIMER_ABSTIME, initial=ns, interval=every_ns)

else:
    _LIBC = ctypes.CDLL(None, use_errno=True)

    class _ItimerSpec(ctypes.Structure):
        _fields_ = (
            ("interval_s", ctypes.c_long),
            ("interval_ns", ctypes.c_long),
            ("value_s", ctypes.c_long),
            ("value_ns", ctypes.c_long),
        )

    def _create() -> int:
        fd = int(_LIBC.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
        if fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        return fd

    def _settime(fd: int, ns: int, every_ns: int) -> None:
        spec = _ItimerSpec(*divmod(every_ns, NS_PER_S), *divmod(ns, NS_PER_S))
        if _LIBC.timerfd_settime(fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
