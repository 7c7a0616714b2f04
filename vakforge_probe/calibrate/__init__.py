"""The probe measured against the reference agent: all that is scored beside the agent's truth."""

from vakforge_probe.calibrate.duplex import DUPLEX, Duplex, Verdict, compare_duplex
from vakforge_probe.calibrate.latency import LATENCIES, compare, labelled
from vakforge_probe.calibrate.log import Truth, TruthValue, read_truth
from vakforge_probe.calibrate.rows import AGENT_LATE_NS, Row, Summary, summarize

__all__ = [
    "AGENT_LATE_NS",
    "DUPLEX",
    "LATENCIES",
    "Duplex",
    "Row",
    "Summary",
    "Truth",
    "TruthValue",
    "Verdict",
    "compare",
    "compare_duplex",
    "labelled",
    "read_truth",
    "summarize",
]
