"""The pacer: one frame per deadline, on absolute deadlines, never two at once.

Deadlines lie on a grid of whole frames, so lateness does not add up. After a stall the missed
frames are not sent in a burst, since a burst is not speech at its real pace: the grid itself moves
by whole frames and the move is reported.
"""

from __future__ import annotations

from collections.abc import Callable

from vakforge_eval.timeline.instant import NS_PER_MS
from vakforge_probe.net.alarm import Alarm

__all__ = ["MAX_LATE_NS", "Pacer"]

MAX_LATE_NS = 10 * NS_PER_MS
"""A frame later than this moves the grid: half of the usual frame, so the nearest grid point of
the frame is then another one."""


class Pacer:
    """Calls `on_frame` at ``first_due_ns + k * frame_ns``, moved by whole frames after stalls.

    Parameters
    ----------
    alarm, now_ns
        The alarm of the loop and the clock it goes by.
    frame_ns
        Duration of a frame (ns, > 0).
    first_due_ns
        Deadline of frame 0. The pacer runs from its making on.
    on_frame
        Called with the frame's number and its deadline.
    on_reanchor
        Called right before `on_frame` of a frame that is more than `MAX_LATE_NS` late, with its
        number, the number of frames by which all *later* deadlines move, and its lateness (ns).
        The next frame then follows between half and one and a half frames later.
    """

    def __init__(
        self,
        alarm: Alarm,
        now_ns: Callable[[], int],
        frame_ns: int,
        first_due_ns: int,
        on_frame: Callable[[int, int], None],
        on_reanchor: Callable[[int, int, int], None],
    ) -> None:
        if frame_ns <= 0:
            raise ValueError("a frame lasts longer than nothing")
        self._alarm, self._now_ns, self._frame_ns = alarm, now_ns, frame_ns
        self._on_frame, self._on_reanchor = on_frame, on_reanchor
        self._next_frame, self._next_due_ns = 0, first_due_ns
        self._stopped = False
        self._handle = alarm.call_at(first_due_ns, self._tick)

    @property
    def next_frame(self) -> int:
        """Number of the frame that comes next."""
        return self._next_frame

    @property
    def next_due_ns(self) -> int:
        """Deadline of the frame that comes next, as planned now."""
        return self._next_due_ns

    def stop(self) -> None:
        """Send no further frame; may be called from a callback and more than once."""
        self._stopped = True
        self._handle.cancel()

    def _tick(self) -> None:
        frame, due_ns = self._next_frame, self._next_due_ns
        late_ns = self._now_ns() - due_ns
        shift = 0
        if late_ns > MAX_LATE_NS:
            shift = max(1, (2 * late_ns + self._frame_ns) // (2 * self._frame_ns))
        self._next_frame, self._next_due_ns = frame + 1, due_ns + (1 + shift) * self._frame_ns
        try:
            if shift:
                self._on_reanchor(frame, shift, late_ns)
            self._on_frame(frame, due_ns)
        finally:
            if not self._stopped:
                self._handle = self._alarm.call_at(self._next_due_ns, self._tick)
