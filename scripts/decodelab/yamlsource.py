"""Reads a YAML file and keeps what YAML loaders throw away: line numbers and duplicate keys.

In: a file. Out: its data, {key path: line}, and the mistakes of its syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from decodelab.mistakes import Mistake, cut
from decodelab.mistakes import Path as KeyPath


class _Loader(yaml.SafeLoader):
    """SafeLoader without the readings that surprise: dates stay text, and so does 12:30."""


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in pairs
        if not tag.endswith((":timestamp", ":int", ":float"))
    ]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_INTEGER = r"^[-+]?(0|[1-9][0-9_]*)$"
_REAL = r"^[-+]?([0-9]*\.[0-9]+|[0-9]+\.)([eE][-+]?[0-9]+)?$|^[-+]?[0-9]+[eE][-+]?[0-9]+$"
yaml.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(_INTEGER), list("-+0123456789"), _Loader
)
yaml.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(_REAL), list("-+.0123456789"), _Loader
)


@dataclass
class Source:
    """One config file, read."""

    name: str
    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def place(self, path: KeyPath) -> str:
        """file:line of a key path, or of the nearest key above it."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.name}:{self.lines[path]}" if path in self.lines else self.name


def read(path: Path, name: str | None = None) -> Source:
    source = Source(name or str(path))
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
    except OSError as error:
        source.mistakes.append(
            Mistake((), f"{source.name}: {error.strerror}", "a file that can be read")
        )
        return source
    except (UnicodeDecodeError, yaml.reader.ReaderError) as error:
        source.mistakes.append(Mistake((), cut(str(error)), "text in UTF-8", place=source.name))
        return source
    try:
        node = loader.get_single_node()
        source.data = {} if node is None else _build(loader, node, (), source)
    except yaml.MarkedYAMLError as error:
        source.mistakes.append(_syntax(error, source))
    except RecursionError:
        source.mistakes.append(
            Mistake(
                (), "an alias inside its own anchor, or far too deep", "YAML", None, source.name
            )
        )
    finally:
        loader.dispose()
    return source


def _syntax(error: yaml.MarkedYAMLError, source: Source) -> Mistake:
    mark = error.problem_mark or error.context_mark
    place = f"{source.name}:{mark.line + 1}" if mark else source.name
    quotes = 'a text that holds ": " or " #", or inside {} and [] a comma or "?", needs quotes'
    hint = "indent with spaces only" if "\\t" in str(error.problem) else quotes
    return Mistake((), str(error.problem or error.context), "YAML", hint, place)


def _build(loader: _Loader, node: yaml.Node, path: KeyPath, source: Source) -> Any:
    source.lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        return _mapping(loader, node, path, source)
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, item, (*path, n), source) for n, item in enumerate(node.value)]
    return loader.construct_object(node)


def _mapping(
    loader: _Loader, node: yaml.MappingNode, path: KeyPath, source: Source
) -> dict[Any, Any]:
    _duplicates(loader, node, path, source)
    loader.flatten_mapping(node)  # `<<: *base`; what the mapping itself says comes last and wins
    out: dict[Any, Any] = {}
    for key_node, value_node in node.value:
        key = (
            key_node.value
            if isinstance(key_node, yaml.ScalarNode)
            else str(loader.construct_object(key_node, True))
        )
        source.lines[(*path, key)] = key_node.start_mark.line + 1
        out[key] = _build(loader, value_node, (*path, key), source)
    return out


def _duplicates(loader: _Loader, node: yaml.MappingNode, path: KeyPath, source: Source) -> None:
    first: dict[str, int] = {}
    for key_node, _ in node.value:
        line = key_node.start_mark.line + 1
        if key_node.value in first and key_node.tag != "tag:yaml.org,2002:merge":
            source.mistakes.append(
                Mistake(
                    (*path, key_node.value),
                    f"the key a second time (first on line {first[key_node.value]})",
                    "each key once",
                    "YAML would silently keep the last one; remove or rename one of them",
                    f"{source.name}:{line}",
                )
            )
        first.setdefault(
            key_node.value if isinstance(key_node, yaml.ScalarNode) else str(line), line
        )
