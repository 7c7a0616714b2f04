"""YAML without its traps: bounded before it is built, and every value knows its line.

The event stream is read, never a loader: no tag is resolved, no alias followed, no object built.
Plain scalars mean what they look like: null, true, false, decimal numbers, else text. What YAML
1.1 would silently read as something else (``no``, ``1:30``, ``0123``, ``.inf``) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn

import yaml

from vakforge_probe.errors import ConfigError
from vakforge_probe.limits import Limits

__all__ = ["Path", "Source", "dotted", "read_yaml"]

Path = tuple[str | int, ...]
"""Keys and indices from the root of a document."""

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "false": False}
_INT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,18}(?:e[+-]?[0-9]{1,2})?")
_SURPRISES = tuple(
    (re.compile(pattern), why)
    for pattern, why in (
        (r"(?i:yes|no|on|off|true|false)", "YAML 1.1 takes it for a truth value"),
        (r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", "YAML 1.1 takes it for base 60"),
        (r"[-+]?0(?:[0-9_]+|[xob][0-9a-fA-F_]+)", "YAML 1.1 takes it for an octal or other number"),
        (r"[-+]?[0-9][0-9_]*_[0-9_]*", "YAML 1.1 takes it for a number"),
        (r"[-+]?\.(?i:inf|nan)", "it is no finite number"),
        (r"[-+]?(?:[0-9]+\.?|[0-9]*\.[0-9]+)(?:[eE][-+]?[0-9]+)?", "it is an unclear number"),
        (r"<<|=", "merge keys and value keys are not supported"),
    )
)


@dataclass(frozen=True, slots=True)
class Source:
    """A read document: plain data and the line of every key and item."""

    file: str
    data: Any
    lines: dict[Path, int] = field(repr=False)

    def error(
        self, path: Path, message: str, *, value: object = None, nearest: str | None = None
    ) -> ConfigError:
        """Return the error for what stands at `path` (or for the nearest thing around it)."""
        known = path
        while known and known not in self.lines:
            known = known[:-1]
        return ConfigError(
            message,
            file=self.file,
            line=self.lines.get(known, 1),
            key=dotted(path) or None,
            value=value,
            nearest=nearest,
        )


def dotted(path: Path) -> str:
    """Return a path as people write it: ``scenarios[0].steps[2].at``."""
    out = ""
    for part in path:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else part
    return out


def read_yaml(data: bytes, file: str, limits: Limits) -> Source:
    """Return the one document in `data`.

    Raises
    ------
    ConfigError
        On anything but plain, unambiguous data within the limits; it names the line.
    """
    if len(data) > limits.max_yaml_bytes:
        raise ConfigError(f"is larger than {limits.max_yaml_bytes} bytes", file=file)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ConfigError("is not UTF-8", file=file, line=line) from error
    try:
        return _Builder(text, file, limits).source()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = None if mark is None else mark.line + 1
        raise ConfigError(f"is not YAML: {error.problem}", file=file, line=where) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"is not YAML: {error}", file=file) from error


class _Builder:
    """Builds data from events by recursion that the depth limit bounds."""

    def __init__(self, text: str, file: str, limits: Limits) -> None:
        self._file, self._limits = file, limits
        self._lines: dict[Path, int] = {}
        self._n_nodes = 0
        # The C parser is not used: its errors carry no problem text for some inputs.
        self._events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)

    def source(self) -> Source:
        """Return the whole document."""
        self._next()
        start = self._next()
        if isinstance(start, yaml.StreamEndEvent):
            raise ConfigError("is empty", file=self._file)
        value = self._node(self._next(), ())
        self._next()
        extra = self._next()
        if not isinstance(extra, yaml.StreamEndEvent):
            self._refuse(extra, (), "a second document in the file")
        return Source(self._file, value, self._lines)

    def _next(self) -> yaml.Event:
        return next(self._events)

    def _node(self, event: yaml.Event, path: Path) -> Any:
        self._admit(event, path)
        self._lines.setdefault(path, _line(event))
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return self._mapping(path)

    def _admit(self, event: yaml.Event, path: Path) -> None:
        self._n_nodes += 1
        if self._n_nodes > self._limits.max_yaml_nodes:
            self._refuse(event, path, f"more than {self._limits.max_yaml_nodes} values")
        if len(path) > self._limits.max_yaml_depth:
            self._refuse(event, path, f"nested deeper than {self._limits.max_yaml_depth}")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            self._refuse(event, path, "YAML anchors and aliases are not supported")
        if getattr(event, "tag", None) is not None:
            self._refuse(event, path, "YAML tags are not supported")

    def _sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            items.append(self._node(event, (*path, len(items))))
        return items

    def _mapping(self, path: Path) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            key = self._key(event, path)
            here = (*path, key)
            if key in items:
                self._refuse(event, here, "the key stands twice")
            self._lines[here] = _line(event)
            items[key] = self._node(self._next(), here)
        return items

    def _key(self, event: yaml.Event, path: Path) -> str:
        self._admit(event, path)
        if not isinstance(event, yaml.ScalarEvent):
            self._refuse(event, path, "a key must be text")
        key = self._scalar(event, path)
        if not isinstance(key, str):
            self._refuse(event, path, f"a key must be text, so write it in quotes: {event.value!r}")
        return key

    def _scalar(self, event: yaml.ScalarEvent, path: Path) -> Any:
        text: str = event.value
        if not event.implicit[0]:
            return text
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if _INT.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text)
        for pattern, why in _SURPRISES:
            if pattern.fullmatch(text):
                self._refuse(event, path, f"write {text!r} in quotes: unquoted, {why}")
        return text

    def _refuse(self, event: yaml.Event, path: Path, message: str) -> NoReturn:
        raise ConfigError(message, file=self._file, line=_line(event), key=dotted(path) or None)


def _line(event: yaml.Event) -> int:
    mark = event.start_mark
    assert mark is not None  # noqa: S101 - the parser marks every event that it yields
    return mark.line + 1
