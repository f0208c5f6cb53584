"""The key reference of config/README.md, made of the schema, so that page and schema cannot differ.

In: the schema. Out: Markdown, one line a key: meaning, unit, what is allowed, default, example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from decodelab import shape

BEGIN = (
    "<!-- keys: made by scripts/make_config_page.py from workflow/schemas/config.schema.yaml -->"
)
END = "<!-- end of keys -->"
# Texts and lines are explained on the page once, in words.
PLAIN = ("#/$defs/text", "#/$defs/lines")

Schema = Mapping[str, Any]


def page(text: str) -> str:
    """The page with its key reference made anew."""
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    return f"{head}{BEGIN}\n\n{reference()}\n{END}{tail}"


def reference() -> str:
    blocks = []
    for path, part in sections():
        required = part.get("required") or []
        rows = [line(key, below, key in required) for key, below in part["properties"].items()]
        blocks.append("\n".join([f"### {f'`{path}`' if path else 'Top level'}", "", *rows]))
    return "\n\n".join(blocks) + "\n"


def sections() -> Iterator[tuple[str, Schema]]:
    """(path, part) of every mapping with keys of its own, each form once, in schema order."""
    seen: set[str] = set()
    todo: list[tuple[str, Schema]] = [("", shape.schema())]
    while todo:
        path, part = todo.pop(0)
        yield path, part
        inner = [
            (f"{path}.{key}{suffix}".lstrip("."), below)
            for key, value in part["properties"].items()
            for suffix, below in _inside(value, seen)
        ]
        todo = inner + todo


def _inside(part: Schema, seen: set[str]) -> Iterator[tuple[str, Schema]]:
    """The mappings right below a key: the key's own, those by name, those in a list."""
    full = shape.resolved(part)
    for suffix, below in (
        ("", part),
        (".<name>", full.get("additionalProperties")),
        ("[]", full.get("items")),
    ):
        if not isinstance(below, dict) or below.get("$ref") in (*PLAIN, *seen):
            continue
        inside = shape.resolved(below)
        if inside.get("properties") and part.get("$ref") not in PLAIN:
            if "$ref" in below:
                seen.add(below["$ref"])
            yield suffix, inside


def line(key: str, part: Schema, required: bool) -> str:
    full = shape.resolved(part)
    facts = ["Required."] if required else []
    if full.get("unit"):
        facts.append(f"Unit: {full['unit']}.")
    choices = full.get("enum_text") or full.get("enum")
    if choices:
        facts.append(f"One of {', '.join(f'`{c}`' for c in choices)}.")
    elif full.get("allowed"):
        facts.append(f"Allowed: {full['allowed']}.")
    if "default" in full:
        facts.append(f"Default: `{_flow(full['default'])}`.")
    if full.get("examples"):
        facts.append(f"Example: `{key}: {_flow(full['examples'][0])}`")
    return _angles(" ".join([f"- **`{key}`**: {full['description']}", *facts]))


def _angles(text: str) -> str:
    """`<name>` outside of code would be an HTML tag, and vanish."""
    parts = text.split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))


def _flow(value: Any) -> str:
    text = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, sort_keys=False, width=10**6
    )
    return text.strip().removesuffix("...").strip()
