"""The shape of a config: the JSON schema's verdict as clear mistakes, and its defaults.

In: the config as given. Out: mistakes (all of them), a copy without the wrong parts, or the
defaults filled in. The schema, workflow/schemas/config.schema.yaml, is the manual; it says it all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from decodelab import mistakes
from decodelab.mistakes import Mistake

SCHEMA_FILE = Path(__file__).resolve().parents[2] / "workflow/schemas/config.schema.yaml"
Place = Callable[[mistakes.Path], str]
Schema = Mapping[str, Any]
Error = Any  # jsonschema.ValidationError, whose fields the types take for unset


@cache
def schema() -> dict[str, Any]:
    # The C loader is ten times faster, and every step reads this.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    document: dict[str, Any] = yaml.load(SCHEMA_FILE.read_text(encoding="utf-8"), loader)
    return document


@cache
def _validator() -> Any:
    # JSON Schema takes 2.0 for an integer; as text, in names and command lines, it is none.
    kinds = jsonschema.Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole)
    strict = jsonschema.validators.extend(jsonschema.Draft202012Validator, type_checker=kinds)
    return strict(schema())


def _is_whole(_checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def resolved(part: Schema) -> dict[str, Any]:
    """A part of the schema with its $ref followed; what stands beside the $ref wins."""
    if "$ref" not in part:
        return dict(part)
    target = schema()["$defs"][part["$ref"].rsplit("/", 1)[1]]
    return {**target, **{k: v for k, v in part.items() if k != "$ref"}}


def mistakes_of(given: Mapping[str, Any], place: Place) -> list[Mistake]:
    validator = _validator()
    errors = sorted(
        validator.iter_errors(given),
        key=lambda e: (list(map(str, e.absolute_path)), str(e.validator)),
    )
    # The validator reports one error per missing key, each of which names all of them.
    found = list(dict.fromkeys(m for error in errors for m in _mistakes(error, place)))
    wrong = {m.path for m in found}
    return [*found, *(m for m in _nul(given, (), place) if m.path not in wrong)]


def _nul(value: Any, path: mistakes.Path, place: Place) -> Iterator[Mistake]:
    """No command line, environment or file name can carry a NUL; the start would fail on it."""
    if isinstance(value, str) and "\0" in value:
        yield Mistake(path, mistakes.shown(value), "a text without NUL", None, place(path))
    items = value.items() if isinstance(value, Mapping) else ()
    for key, below in enumerate(value) if isinstance(value, list) else items:
        at = (*path, key)
        if isinstance(key, str) and "\0" in key:
            yield Mistake(at, mistakes.shown(key), "a name without NUL", None, place(at))
        yield from _nul(below, at, place)


def without(given: Mapping[str, Any], wrong: list[Mistake]) -> dict[str, Any]:
    """A copy without the wrong parts, so that the rest can still be checked for meaning."""
    data = copy.deepcopy(dict(given))
    for path in sorted({m.path for m in wrong}, key=len, reverse=True):
        at: Any = data
        for part in path[:-1]:
            at = at[part] if _has(at, part) else None
        if path and _has(at, path[-1]):
            # A list keeps its length, so that the other paths into it still hold.
            at.pop(path[-1]) if isinstance(at, dict) else at.__setitem__(path[-1], None)
    return data


def _has(at: Any, part: str | int) -> bool:
    return (isinstance(at, dict) and part in at) or (
        isinstance(at, list) and isinstance(part, int) and part < len(at)
    )


def fill_defaults(data: dict[str, Any]) -> None:
    """Every default of the schema that is not said, at every depth; `data` is changed."""
    _fill(data, schema())


def _fill(value: Any, part: Schema) -> None:
    part = resolved(part)
    if isinstance(value, dict):
        for key, below in (part.get("properties") or {}).items():
            below = resolved(below)
            if key not in value and "default" in below:
                value[key] = copy.deepcopy(below["default"])
            if key in value:
                _fill(value[key], below)
        rest = part.get("additionalProperties")
        if isinstance(rest, dict):
            for key in value.keys() - (part.get("properties") or {}).keys():
                _fill(value[key], rest)
    elif isinstance(value, list) and isinstance(part.get("items"), dict):
        for item in value:
            _fill(item, part["items"])


def _mistakes(error: Error, place: Place) -> Iterator[Mistake]:
    path = tuple(error.absolute_path)
    build = _BUILDERS.get(error.validator, _plain)
    for at, found, allowed, hint in build(error, path):
        yield Mistake(at, found, allowed, hint, place(at))


Parts = Iterator[tuple[mistakes.Path, str, str, str | None]]


def _unknown_keys(error: Error, path: mistakes.Path) -> Parts:
    known = list(error.schema.get("properties") or {})
    for key in error.instance:
        if key not in known:
            allowed = mistakes.listed(known)
            hint = mistakes.did_you_mean(key, known) or _control_hint(path, key)
            yield (*path, key), f'unknown key "{key}"', allowed, hint


def _control_hint(path: mistakes.Path, key: str) -> str | None:
    if path == ("control",) and key in schema()["properties"]:
        return "keys of the study are changed in its file; --config gives control keys only"
    if path == () and key in schema()["$defs"]["control"]["properties"]:
        return f"give it with the call: snakemake --config {key}=..."
    return None


def _missing_keys(error: Error, path: mistakes.Path) -> Parts:
    for key in error.validator_value:
        if key not in error.instance:
            text = resolved(error.schema["properties"][key])["description"]
            yield (*path, key), "nothing", f"{key}, which is required", text


def _bad_name(error: Error, path: mistakes.Path) -> Parts:
    # The error is about a key of the mapping; its schema is what `propertyNames` says.
    hint = error.schema.get("hint")
    if hint == "flag":
        hint = f'did you mean "--{str(error.instance).replace("_", "-")}"?'
    yield (
        (*path, str(error.instance)),
        f"the name {mistakes.shown(str(error.instance))}{_length(error)}",
        error.schema["allowed"],
        hint,
    )


def _bad_pattern(error: Error, path: mistakes.Path) -> Parts:
    if "propertyNames" in error.absolute_schema_path:
        yield from _bad_name(error, path)
    else:
        yield from _plain(error, path)


def _bad_choice(error: Error, path: mistakes.Path) -> Parts:
    choices = error.schema.get("enum_text") or error.validator_value
    yield (
        path,
        mistakes.shown(error.instance),
        mistakes.listed(choices),
        mistakes.did_you_mean(error.instance, choices),
    )


def _plain(error: Error, path: mistakes.Path) -> Parts:
    yield path, _found(error), _allowed(error), _hint(error)


def _found(error: Error) -> str:
    """What was found; where only the name of a secret may stand, not the value written instead."""
    if error.schema.get("masked"):
        return "***" + ("" if error.validator == "uniqueItems" else _kind(error))
    return mistakes.shown(error.instance) + _kind(error)


def _kind(error: Error) -> str:
    """For a wrong type: what YAML made of the value."""
    if error.validator == "uniqueItems":
        items = error.instance
        return (
            f", with {mistakes.shown(next(v for n, v in enumerate(items) if v in items[:n]))} twice"
        )
    if error.validator == "maxLength":
        return _length(error)
    if error.validator != "type":
        return ""
    value = error.instance
    kinds = {
        bool: "true or false",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "a mapping",
    }
    return f" ({kinds[type(value)]})" if type(value) in kinds else ""


def _length(error: Error) -> str:
    """For a text that is too long, which is shown cut."""
    return f" ({len(error.instance)} characters)" if error.validator == "maxLength" else ""


_TYPES = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


def _allowed(error: Error) -> str:
    part, limit = error.schema, error.validator_value
    if "allowed" in part:
        return str(part["allowed"])
    unit = f", in {part['unit']}" if part.get("unit") not in (None, "the metric's") else ""
    texts = {
        "minimum": f"a number {_range(part)}{unit}",
        "exclusiveMinimum": f"a number above {limit}{unit}",
        "maximum": f"a number {_range(part)}{unit}",
        "minItems": f"a list of at least {limit} item{'s' if limit != 1 else ''}",
        "maxItems": f"a list of at most {limit} items",
        "uniqueItems": "each item once",
        "minProperties": f"at least {limit} entr{'ies' if limit != 1 else 'y'}",
        "minLength": "a text that is not empty",
    }
    if error.validator in texts:
        return texts[error.validator]
    kinds = [limit] if isinstance(limit, str) else limit
    return " or ".join(_TYPES.get(k, str(k)) for k in kinds)


def _range(part: Schema) -> str:
    ends = [f"from {part['minimum']}"] if "minimum" in part else []
    return " ".join([*ends, *([f"to {part['maximum']}"] if "maximum" in part else [])])


def _hint(error: Error) -> str | None:
    masked, hint = error.schema.get("masked"), error.schema.get("hint")
    if masked or hint or error.validator != "type":
        return str(hint) if hint else None
    kinds, value = _as_list(error.validator_value), error.instance
    if "integer" in kinds and isinstance(value, float) and value.is_integer():
        return f"write {mistakes.cut(str(int(value)))}, without a point"
    if "string" in kinds:
        if isinstance(value, bool):
            return "YAML reads yes, no, on and off as true and false; write the word in quotes"
        if isinstance(value, int | float):
            return f'write it in quotes: "{mistakes.shown(value)}"'
    return None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


_BUILDERS: dict[str, Callable[[Error, mistakes.Path], Parts]] = {
    "additionalProperties": _unknown_keys,
    "required": _missing_keys,
    "pattern": _bad_pattern,
    "maxLength": _bad_pattern,
    "enum": _bad_choice,
}
