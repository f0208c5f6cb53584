"""The page config/README.md and the schema say the same, and the schema says everything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from small_config import SMALL

from decodelab import config, configpage, plan, shape, vocabulary

REPO = Path(__file__).resolve().parents[2]
PAGE = REPO / "config/README.md"


def properties(part: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property in the schema as it is written, $defs included."""
    for key, below in part.items():
        if key == "properties":
            for name, value in below.items():
                yield f"{path}.{name}", value
        if isinstance(below, dict) and key not in ("default", "examples"):
            yield from properties(below, f"{path}.{key}")


ALL = dict(properties(shape.schema()))


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(shape.schema())


def test_page_is_made_of_the_schema() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert configpage.page(text) == text, "run: python scripts/make_config_page.py"


def test_page_has_a_line_for_every_key() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = set(re.findall(r"^- \*\*`([^`]+)`\*\*: ", text, re.M))
    written = {path.rsplit(".", 1)[1] for path in ALL} - {"zh", "en"}
    assert shown == written


def test_reference_notices_a_new_key(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = yaml.safe_load(shape.SCHEMA_FILE.read_text(encoding="utf-8"))
    changed["$defs"]["workload"]["properties"]["burst"] = {"type": "integer", "description": "New."}
    monkeypatch.setattr(shape, "schema", lambda: changed)
    text = PAGE.read_text(encoding="utf-8")
    assert configpage.page(text) != text
    assert "- **`burst`**: New." in configpage.page(text)


@pytest.mark.parametrize("path", ALL)
def test_every_key_says_what_it_is(path: str) -> None:
    full = shape.resolved(ALL[path])
    assert full.get("description", "").endswith("."), path
    nested = (
        full.get("properties")
        or isinstance(full.get("additionalProperties"), dict)
        or "items" in full
    )
    assert full.get("examples") or nested, f"{path} has no example"
    kinds = full.get("type")
    numeric = {"number", "integer"} & set(kinds if isinstance(kinds, list) else [kinds])
    if path.rsplit("_", 1)[-1] in ("s", "tps") and numeric:
        assert full.get("unit"), f"{path} has no unit"


@pytest.mark.parametrize("path", ALL)
def test_examples_and_defaults_have_the_right_shape(path: str) -> None:
    part = {**ALL[path], "$defs": shape.schema()["$defs"]}
    values = [*part.get("examples", []), *([part["default"]] if "default" in part else [])]
    for value in values:
        jsonschema.Draft202012Validator(part).validate(value)


def test_objects_are_closed() -> None:
    """A key nobody knows is a mistake everywhere but in the mappings of free names."""
    for part in (shape.schema(), *shape.schema()["$defs"].values()):
        if "properties" in part:
            assert part.get("additionalProperties") is False


def test_choices_are_the_vocabulary() -> None:
    defs = shape.schema()["$defs"]
    assert tuple(defs["server"]["properties"]["engine"]["enum"]) == vocabulary.ENGINES
    assert tuple(defs["variant"]["properties"]["engine"]["enum"]) == vocabulary.ENGINES
    assert tuple(defs["host"]["properties"]["transport"]["enum"]) == vocabulary.TRANSPORTS
    assert tuple(defs["telemetry"]["properties"]["tool"]["enum"]) == vocabulary.TELEMETRY_TOOLS
    assert tuple(defs["workload"]["properties"]["http"]["enum"]) == vocabulary.HTTP_CLIENTS
    assert tuple(defs["question"]["properties"]["kind"]["enum"]) == vocabulary.QUESTION_KINDS
    assert tuple(defs["then"]["properties"]) == vocabulary.VERDICTS
    assert shape.schema()["properties"]["targets"]["default"] == vocabulary.DEFAULT_TARGETS


def test_page_names_every_metric() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in vocabulary.METRICS:
        base = re.sub(r"_(p10|p50|p90|(mean|max)_(all|window))$", "", name)
        assert f"`{base}`" in text or f"`{name}`" in text, name


def test_variants_on_the_page_are_valid() -> None:
    text = PAGE.read_text(encoding="utf-8")
    block = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.S)[0])
    jsonschema.Draft202012Validator({**shape.schema(), "required": []}).validate(block)


def test_workloads_on_the_page_are_well() -> None:
    text = PAGE.read_text(encoding="utf-8")
    block = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", text, re.S)[1])
    assert run_alone(yaml.safe_load(SMALL), block["workloads"]) == len(block["workloads"]) == 6


def test_workloads_in_comments_of_the_real_study_are_well() -> None:
    example = yaml.safe_load((REPO / "config/hosts.local.example.yaml").read_text(encoding="utf-8"))
    text = (REPO / "config/bi100.yaml").read_text(encoding="utf-8")
    more = yaml.safe_load("\n".join(re.findall(r"^  # (\w+: \{prompt: .*)$", text, re.M)))
    assert run_alone(yaml.safe_load(text) | {"hosts": example["hosts"]}, more) == 5


def run_alone(study: dict[str, Any], loads: dict[str, Any]) -> int:
    """How many workloads a study with these in an experiment of their own has more."""
    study["server"]["flags"]["--enable-prefix-caching"] = True
    study["workloads"] |= loads
    study["experiments"] = {"alone": {"runs": {next(iter(study["variants"])): list(loads)}}}
    study.pop("suspects", None)
    study.pop("next_steps", None)
    study.pop("actions", None)
    made = plan.expand(config.complete(study, lambda path: "here", REPO, []), REPO)
    return len({run["workload"] for run in made["runs"]})


def test_every_config_is_listed_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for path in (REPO / "config").glob("*.yaml"):
        assert f"`{path.name}`" in text
    assert str(config.LOCAL_HOSTS.name) in text
