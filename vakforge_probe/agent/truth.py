"""The agent's own account of a call: what was said and heard when, and what each metric must be.

Everything here follows from sample counts, the clips' hard edges and the stamps of what was really
sent (after jitter); no sound is analysed. `marks.py` and `overlaps.py` define what each metric must
be.

What a voice is: the samples inside its clip's voiced spans, all of them. That is exact for the
agent's own clips at their own level, which have hard edges and not 10 ms below -55 dBFS inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from vakforge_eval.timeline.instant import Instant
from vakforge_probe.agent.closing import Closing, Turn, models
from vakforge_probe.agent.ears import Utterance
from vakforge_probe.agent.heard import Span
from vakforge_probe.agent.marks import Account, Ending
from vakforge_probe.agent.player import AudioSent, FlushSent, TextSent
from vakforge_probe.agent.tape import Tape

__all__ = ["Ledger"]


class Ledger:
    """Account of one call, on one output rate.

    Parameters
    ----------
    note
        Takes each object of the log (without connection id).
    is_live, names_responses
        Of the client's player; see `Account`.
    """

    def __init__(
        self,
        tape: Tape,
        rate_hz: int,
        note: Callable[[dict[str, Any]], None],
        *,
        is_live: bool = False,
        names_responses: bool = True,
    ) -> None:
        self._tape, self._note = tape, note
        self._account = Account(rate_hz, is_live, names_responses)
        self._drops_cancelled = names_responses or not is_live
        self._closing = Closing(tape, self._account)
        self._live = self._account.player()

    @property
    def talks_until(self) -> int:
        """When a player that got all that was sent so far has no more of a response (ns)."""
        return self._live.talks_until

    def voice(self, tag: str, voiced: Iterable[Span], planned: int) -> None:
        """Note the audible spans of response `tag` (samples sent), which begins at `planned`."""
        self._account.voiced[tag] = tuple(voiced)
        self._note(
            {
                "type": "voice",
                "response": tag,
                "planned": planned,
                "voiced": [list(s) for s in self._account.voiced[tag]],
            }
        )

    def audio(self, sent: AudioSent) -> None:
        """Note an audio message that was sent."""
        self._account.add(sent)
        self._live.push(sent, sent.at.at)
        self._note(
            {
                "type": "sent",
                "kind": "audio",
                "response": sent.tag,
                "before": sent.at.lo,
                "after": sent.at.hi,
                "late_ns": sent.late_ns,
                "first": sent.first,
                "n": sent.n,
            }
        )

    def text(self, tag: str, at: Instant, late_ns: int) -> None:
        """Note a text message that was sent."""
        self._account.texts.setdefault(tag, TextSent(at, late_ns))
        self._note(
            {
                "type": "sent",
                "kind": "text",
                "response": tag,
                "before": at.lo,
                "after": at.hi,
                "late_ns": late_ns,
            }
        )

    def flush(self, at: Instant, late_ns: int, onset: int) -> None:
        """Note that clients were told to drop what they hold, because of words at `onset`."""
        sent = FlushSent(at, late_ns, onset)
        self._account.steps.append(sent)
        self._live.flush(at.at, sent)
        self._note({"type": "flush", "before": at.lo, "after": at.hi, "onset_sample": onset})

    def ended(self, tag: str, ending: Ending) -> None:
        """Note the end of response `tag`.

        A client plays no more of a cancelled one, unless what it hears is a line whose sound names
        no response.
        """
        self._account.endings[tag] = ending
        if ending.status == "cancelled" and ending.is_told and self._drops_cancelled:
            sent = FlushSent(ending.at, ending.late_ns, ending.onset, tag)
            self._account.steps.append(sent)
            self._live.flush(ending.at.at, sent)
        self._note(
            {
                "type": "ended",
                "response": tag,
                "status": ending.status,
                "is_told": ending.is_told,
                "before": ending.at.lo,
                "after": ending.at.hi,
            }
        )

    def reaction(self, utterance: Utterance, rule: str) -> None:
        """Note what the agent decided on an utterance; the latest decision stands."""
        self._closing.rules[utterance.start] = rule

    def turn(self, turn: Turn) -> None:
        """Note a turn of the caller that is over; its responses may still come."""
        self._closing.turns.append(turn)
        self._note(
            {
                "type": "rule",
                "turn": turn.index,
                "rule": turn.rule,
                "user_end_sample": turn.user_end,
            }
        )

    def utterance(self, n: int, utterance: Utterance) -> None:
        """Note an utterance that has been heard to its end."""
        self._closing.utterances.append(utterance)
        clip = utterance.clip
        spans = [[a, min(b, utterance.end)] for a, b in utterance.spans if a < utterance.end]
        self._note(
            {
                "type": "utterance",
                "n": n,
                "source": utterance.source,
                "clip": clip.id if clip else None,
                "text": clip.text if clip else None,
                "clip_start_sample": utterance.match.start if utterance.match else None,
                "start_sample": utterance.start,
                "end_sample": utterance.end,
                "voiced": spans,
                "user_start": models(self._tape.spoken_start(utterance.start)),
                "user_end": models(self._tape.spoken_end(utterance.end)),
            }
        )

    def close(self) -> None:
        """Note the truth of every turn, of every utterance, and of the whole call."""
        for row in self._closing.rows():
            self._note(row)
