"""The two threads that touch the disk, shared by all captures of the process.

One writes what the calls queued, at the latest every 5 ms; one asks the disk once a second to make
it durable. They are two, since a sync takes up to 10 ms. They are shared, since a thread a call
would wake hundreds of times a second and take the interpreter away from the pacer each time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

__all__ = ["BATCH_S", "SYNC_S", "Client", "Disk"]

BATCH_S = 0.005
"""Pause between two writes; bounds what ``kill -9`` can take."""
SYNC_S = 1.0
"""Bounds what a power cut can take."""


class Client(Protocol):
    """A capture that is being written; neither method may raise."""

    def drain(self) -> None:
        """Write all that is queued."""
        ...

    def sync(self) -> None:
        """Make durable what is written."""
        ...


class Disk:
    """Runs while it has clients; `wake` is the only method meant for an event loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._clients: tuple[Client, ...] = ()
        self._has_work = threading.Event()
        self._has_joined = threading.Event()
        self._threads: dict[str, threading.Thread] = {}

    def attach(self, client: Client) -> None:
        """Serve `client` from now on, starting with a sync."""
        with self._lock:
            self._clients = (*self._clients, client)
            self._start("capture-write", self._write)
            self._start("capture-sync", self._sync)
        self._has_joined.set()

    def detach(self, client: Client) -> None:
        """Stop serving `client`; a running drain or sync of it may still be going on."""
        with self._lock:
            self._clients = tuple(c for c in self._clients if c is not client)
        self.wake()
        self._has_joined.set()

    def wake(self) -> None:
        """Say that something was queued."""
        if not self._has_work.is_set():
            self._has_work.set()

    def _start(self, name: str, run: Callable[[], None]) -> None:
        # One that runs cannot leave any more, since there is a client; in a forked child none runs.
        running = self._threads.get(name)
        if running is None or not running.is_alive():
            self._threads[name] = threading.Thread(target=run, name=name, daemon=True)
            self._threads[name].start()

    def _write(self) -> None:
        while True:
            self._has_work.wait()
            # Cleared first: what is queued during the drain wakes us again.
            self._has_work.clear()
            clients = self._clients
            for client in clients:
                client.drain()
            if not clients and self._leave():
                return
            time.sleep(BATCH_S)

    def _sync(self) -> None:
        while True:
            self._has_joined.wait(SYNC_S)
            self._has_joined.clear()
            clients = self._clients
            for client in clients:
                client.sync()
            if not clients and self._leave():
                return

    def _leave(self) -> bool:
        """Return whether this thread may end, which a client that comes meanwhile forbids."""
        with self._lock:
            if self._clients:
                return False
            del self._threads[threading.current_thread().name]
            return True
