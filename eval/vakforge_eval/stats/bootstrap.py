"""Cluster bootstrap: whole clusters are drawn with replacement, from a fixed seed.

Two systems are compared on the *same* draws, so what their clusters share cancels. The draws come
from the raw words of PCG64, whose stream is fixed for ever, not from a distribution method whose
algorithm may change with the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from vakforge_eval.stats.values import Floats

__all__ = ["BOOTSTRAP_SEED", "N_RESAMPLES", "Weights", "draw_weights", "percentile_replicates"]

BOOTSTRAP_SEED = 20261
N_RESAMPLES = 2000
_MAX_CELLS = 4_000_000
"""Cells of one block of the resample matrix: 32 MB, whatever the number of turns."""

Weights = npt.NDArray[np.int64]


@lru_cache(maxsize=8)
def draw_weights(
    n_clusters: int, *, n_resamples: int = N_RESAMPLES, seed: int = BOOTSTRAP_SEED
) -> Weights:
    """Return how often each cluster was drawn, shape ``(n_resamples, n_clusters)``; read only."""
    words = np.random.PCG64(seed).random_raw(n_resamples * n_clusters)
    unit = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    drawn = (unit * n_clusters).astype(np.int64).reshape(n_resamples, n_clusters)
    cells = drawn + n_clusters * np.arange(n_resamples)[:, None]
    counts = np.bincount(cells.ravel(), minlength=n_resamples * n_clusters).astype(np.int64)
    counts.setflags(write=False)
    return counts.reshape(n_resamples, n_clusters)


def percentile_replicates(
    values: Floats, clusters: Sequence[str], names: Sequence[str], weights: Weights, percent: int
) -> Floats:
    """Return the nearest-rank percentile of each resample, NaN where it drew no value.

    Parameters
    ----------
    values, clusters
        The sample and the cluster of each value, shape ``(n,)``.
    names
        The cluster of each column of `weights`; all of `clusters` are in it.
    weights
        Draws, shape ``(n_resamples, len(names))``.
    percent
        Integer in (0, 100].
    """
    column = {name: i for i, name in enumerate(names)}
    order = np.argsort(values, kind="stable")
    index = np.array([column[clusters[i]] for i in order], dtype=np.int64)
    ordered = values[order]
    out = np.full(len(weights), np.nan)
    step = max(1, _MAX_CELLS // max(1, len(values)))
    for first in range(0, len(weights), step):
        cumulated = np.cumsum(weights[first : first + step, index], axis=1)
        total = cumulated[:, -1]
        rank = -(-percent * total // 100)
        place = np.argmax(cumulated >= rank[:, None], axis=1)
        out[first : first + step] = np.where(total > 0, ordered[place], np.nan)
    return out
