"""Hugging Face's speech-to-speech, with a client of models for every part but its detector.

Run by the Python that has ``speech-to-speech``: ``python s2s_server.py PORT MODELS_URL``. What it
would fetch when it is run is given to it: its voice activity detector from the wheel of the same
model, and a splitter of sentences.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

HUBCONF = """
dependencies = ["torch"]

def silero_vad(**_):
    import silero_vad
    return silero_vad.load_silero_vad(), None
"""


def main(port: str, models_url: str) -> None:
    """Serve until the process is ended."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCH_HOME"] = folder
        hub = Path(folder) / "hub" / "snakers4_silero-vad_master"
        hub.mkdir(parents=True)
        (hub / "hubconf.py").write_text(HUBCONF)

        import nltk

        nltk.download = lambda *_, **__: True
        nltk.sent_tokenize = lambda text, **_: re.split(r"(?<=[.!?])\s+", text.strip())
        from speech_to_speech.cli import main as serve

        options = {
            "port": port,
            # It takes a moment to free what a call had: the next one needs another place.
            "num_pipelines": "2",
            # As set by itself it thinks while it waits whether the user goes on, and what the
            # models take would not show.
            "min_silence_ms": "500",
            "speculative_reopen_ms": "0",
            "stt": "openai",
            "llm_backend": "chat-completions",
            "tts": "openai",
        }
        for part in ("openai_stt", "responses_api", "openai_tts"):
            options |= {f"{part}_base_url": models_url, f"{part}_api_key": "k"}
        sys.argv[1:] = ["serve", "--no_smart_turn", "--openai_tts_stream"]
        sys.argv += [text for name, value in options.items() for text in (f"--{name}", value)]
        sys.exit(serve())


if __name__ == "__main__":
    main(*sys.argv[1:])
