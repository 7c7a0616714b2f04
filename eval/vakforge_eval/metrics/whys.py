"""Why a step showed nothing, or not enough: the words for it, wherever people read them."""

from __future__ import annotations

from vakforge_eval.timeline.values import Reason

__all__ = ["why"]

_REASONS = {
    Reason.NOT_APPLICABLE: "has nothing of the kind",
    Reason.NOT_OBSERVABLE: "asks for what the protocol does not show",
    Reason.NO_TEXT: "got a reply without any text",
    Reason.NO_AUDIO: "got no audio",
    Reason.NOT_AUDIBLE: "got audio that is too quiet to be heard",
    Reason.NOISE_TOO_HIGH: "met noise of the agent that hides its speech",
    Reason.NO_SPEECH_STRETCH: "got no stretch of speech that is long enough",
    Reason.SINGLE_MESSAGE: "got its audio in one message",
    Reason.CONTINUOUS_STREAM: "met a stream that sends silence too",
    Reason.NO_GREETING: "met an agent that does not greet",
    Reason.CALL_FAILED: "was still open when the call failed",
    Reason.CUT_OFF: "was still open when watching ended",
    Reason.UNNAMED_AUDIO: "met audio of which nothing tells to which response it belongs",
    Reason.CORRUPT_AUDIO: "met audio that cannot be decoded",
    Reason.HALF_DUPLEX: "met an agent that does not listen while it speaks",
    Reason.STOP_AMBIGUOUS: "got words of which nothing tells whether they are new",
    Reason.AGENT_SILENT: "met silence",
    Reason.ANCHOR_MISSED: "came at another moment than meant",
    Reason.NATURAL_END: "met a reply that ended by itself",
    Reason.INDETERMINATE: "lies too near to the limit for the error of the measurement",
    Reason.ECHO: "met what may be the caller's own echo",
    Reason.TOO_FEW: "has too few values",
}
_LEFT_OUT = {
    "no_agent_speech": "was left out, since the agent did not speak so long",
    "no_tool_call": "was left out, since the agent did not call the tool",
}
_WORDS: dict[str, str] = {
    **{reason.value: words for reason, words in _REASONS.items()},
    **_LEFT_OUT,
    "silent": _REASONS[Reason.AGENT_SILENT],
    "ended": _REASONS[Reason.NATURAL_END],
}


def why(name: str) -> str:
    """Return in words, with the step as their subject, what `name` says of it.

    Parameters
    ----------
    name
        A `Reason`, the outcome of a void event, or the reason why a step was left out. A name that
        is not known, as a capture may hold, is returned with spaces for its underscores.
    """
    return _WORDS.get(name, name.replace("_", " "))
