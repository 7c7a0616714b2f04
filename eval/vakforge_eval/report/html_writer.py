"""report.html: the page as one self-contained file that needs no script and no network."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from vakforge_eval.report.layout import lay_out

__all__ = ["to_html"]

_PACKAGE = "vakforge_eval.report"


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader(_PACKAGE, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def _style() -> str:
    path = resources.files(_PACKAGE) / "templates" / "report.css"
    return path.read_text(encoding="utf-8").replace("\r\n", "\n")


def _policy(style: str) -> str:
    """Return a content policy that allows this one style sheet and nothing else."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def to_html(document: Mapping[str, Any]) -> str:
    """Return the report as one HTML file.

    Every text is escaped by the template engine. The file holds no script and its content policy
    allows none, so that text from a target stays text even if an escape were missing.
    """
    style = _style()
    return (
        _environment()
        .get_template("report.html.j2")
        .render(page=lay_out(document), style=style, policy=_policy(style))
    )
