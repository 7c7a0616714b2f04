"""Kyutai's server for Moshi with a small model of random weights, which is made when it starts.

Run by the Python that has ``moshi``: ``python moshi_server.py PORT``. What it says means nothing;
that it says it by its own code is what it is for. It is slower than real time without a GPU.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import sys
import tempfile
from pathlib import Path

os.environ |= {"NO_TORCH_COMPILE": "1", "NO_CUDA_GRAPH": "1", "HF_HUB_OFFLINE": "1"}

import sentencepiece
import torch
from moshi.models import loaders
from safetensors.torch import save_file

N_PIECES = 500
SMALL = {
    "dim": 64,
    "num_heads": 2,
    "num_layers": 1,
    "text_card": N_PIECES,
    "depformer_dim": 64,
    "depformer_dim_feedforward": 128,
    "depformer_num_heads": 2,
    "depformer_num_layers": 1,
}


def tokenizer(folder: Path) -> Path:
    """Return a tokenizer trained on words that are none."""
    letters, choose = "abcdefghijklmnopqrstuvwxyz", random.Random(1)
    words = ("".join(choose.choices(letters, k=choose.randint(2, 8))) for _ in range(20_000))
    text = folder / "words.txt"
    text.write_text("\n".join(" ".join(row) for row in zip(*[words] * 10, strict=False)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "pieces"), vocab_size=N_PIECES, pad_id=3
    )
    return folder / "pieces.model"


def weights(folder: Path, config: dict[str, object]) -> tuple[Path, Path]:
    """Return files of random weights: of the language model and of the codec."""
    torch.manual_seed(1)
    model = loaders.get_moshi_lm(None, lm_kwargs=config, device="cpu", dtype=torch.bfloat16)
    codec = loaders.get_mimi(None, num_codebooks=8)
    paths = folder / "moshi.safetensors", folder / "mimi.safetensors"
    for path, module in zip(paths, (model, codec), strict=True):
        save_file({k: v.contiguous().clone() for k, v in module.state_dict().items()}, path)
    return paths


def main(port: str) -> None:
    """Serve until the process is ended."""
    loaders._seanet_kwargs["n_filters"] = 4
    loaders._transformer_kwargs["num_layers"] = 1
    torch.cuda.synchronize = lambda *_: None  # its warm-up takes a GPU for granted
    config = {**loaders._lm_kwargs, **SMALL}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stated = folder / "config.json"
        stated.write_text(json.dumps(config))
        moshi, mimi = weights(folder, config)
        options = {"host": "127.0.0.1", "port": port, "static": "none", "device": "cpu",
                   "tokenizer": tokenizer(folder), "config-path": stated,
                   "moshi-weight": moshi, "mimi-weight": mimi}  # fmt: skip
        sys.argv[1:] = [
            str(text) for name, value in options.items() for text in (f"--{name}", value)
        ]
        runpy.run_module("moshi.server", run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
