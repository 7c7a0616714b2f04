"""Whom to trust."""

from __future__ import annotations

import ssl
from pathlib import Path

from vakforge_probe.errors import ConfigError

__all__ = ["client_context"]


def client_context(ca_file: Path | None) -> ssl.SSLContext:
    """Return what checks a target's certificate by `ca_file`, or by the system's if None.

    Raises
    ------
    ConfigError
        If it is not a file of certificates.
    """
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(
            f"not a file of certificates: {error.strerror or error}",
            file=None if ca_file is None else str(ca_file),
            key="ca",
        ) from None
