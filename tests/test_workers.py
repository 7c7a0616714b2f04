"""Tests that must not run beside each other share a worker."""

from __future__ import annotations

import pytest

GROUPED = """
    import pytest

    @pytest.mark.parametrize("n", range(12))
    @pytest.mark.xdist_group("one")
    def test_grouped(n, worker_id):
        with open("workers.txt", "a") as file:
            file.write(worker_id + "\\n")

    @pytest.mark.parametrize("n", range(12))
    def test_other(n):
        pass
"""


def test_a_group_has_one_worker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(GROUPED)
    result = pytester.runpytest_subprocess(
        "-n", "2", "--dist", "loadgroup", "-p", "no:vakforge_probe.pytest_plugin"
    )
    result.assert_outcomes(passed=24)
    workers = (pytester.path / "workers.txt").read_text().split()
    assert len(workers) == 12
    assert len(set(workers)) == 1
