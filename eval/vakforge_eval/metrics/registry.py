"""All metrics, in the order of a report.

Each is declared beside its function: a new one is one file, and one line here.
"""

from __future__ import annotations

from vakforge_eval.metrics import bargein, interruption, latency, overlap, setup, transport
from vakforge_eval.metrics.spec import MetricSpec

__all__ = ["METRICS", "definitions"]

METRICS: tuple[MetricSpec, ...] = (
    *latency.LATENCY_METRICS,
    *setup.SETUP_METRICS,
    *setup.TURN_METRICS,
    *bargein.STOP_METRICS,
    *interruption.RESPONSE_METRICS,
    *interruption.DISTURBANCE_METRICS,
    *overlap.FLOOR_METRICS,
    *transport.TRANSPORT_METRICS,
    *transport.SELF_METRICS,
    *setup.WITNESS_METRICS,
)


def definitions() -> dict[str, str]:
    """Return the definition version of every metric by name."""
    return {spec.name: spec.definition for spec in METRICS}
