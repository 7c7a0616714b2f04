"""The collector's work while calls are measured."""

from __future__ import annotations

import gc

from vakforge_probe.heap import frozen_heap


def test_what_existed_is_left_alone_until_the_last_block_ends() -> None:
    before = gc.get_freeze_count()
    first, second = frozen_heap(), frozen_heap()
    first.__enter__()
    assert gc.get_freeze_count() > before + 10_000
    # Full collections have next to nothing left to look at.
    assert len(gc.get_objects()) < 10_000
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_freeze_count() > before + 10_000
    second.__exit__(None, None, None)
    assert gc.get_freeze_count() == before


def test_what_others_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        with frozen_heap():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
