"""The catalogues and the template: complete, alike in both languages, words only."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import jinja2
import jinja2.nodes
import pytest
import yaml

from decodelab import report_labels, report_render, words
from decodelab.markdown import Md
from decodelab.vocabulary import METRICS, QUESTION_KINDS, VERDICTS
from decodelab.words import MissingWords, Words

CATALOGUES = {language: words.load(language) for language in words.LANGUAGES}
TEXTS = {language: catalogue._texts for language, catalogue in CATALOGUES.items()}
SCRIPTS = Path(words.__file__).parents[1]
TEMPLATES = {
    path.name: path.read_text(encoding="utf-8") for path in words.CATALOGUES.glob("*.md.j2")
}
CHINESE = re.compile(r"[\u3000-\u303f\u3400-\u9fff\uff00-\uffef]")


def test_both_languages_have_the_same_keys() -> None:
    assert list(TEXTS["zh"]) == list(TEXTS["en"])


def test_both_languages_fill_the_same_places() -> None:
    for key, text in TEXTS["zh"].items():
        assert words.places(text) == words.places(TEXTS["en"][key]), key


def test_every_key_is_text() -> None:
    """YAML reads some bare words (on, off, no) as truth values: such a key would be lost."""

    def keys(tree: dict[Any, Any]) -> list[object]:
        return list(tree) + [
            k for branch in tree.values() if isinstance(branch, dict) for k in keys(branch)
        ]

    for language in words.LANGUAGES:
        tree = yaml.safe_load((words.CATALOGUES / f"{language}.yaml").read_text(encoding="utf-8"))
        assert all(isinstance(key, str) for key in keys(tree))


def test_no_chinese_in_the_english_catalogue() -> None:
    assert [key for key, text in TEXTS["en"].items() if CHINESE.search(text)] == []


def test_chinese_is_translated() -> None:
    """A Chinese text without a Chinese character is a name, a unit or punctuation, nothing more."""
    untranslated = {
        key: text
        for key, text in TEXTS["zh"].items()
        if not CHINESE.search(text) and re.search(r"[a-z]{3,} [a-z]{3,}", text)
    }
    assert set(untranslated) <= {
        "row.smi_records",
        "metric.prompt_tokens",
        "metric.cached_tokens",
        "metric.completion_tokens",
        "metric.reasoning_tokens",
        "metric.input_tps",
        "definition.input_tps",
    }


@pytest.mark.parametrize("language", words.LANGUAGES)
def test_every_verdict_of_every_kind_has_its_words(language: str) -> None:
    for verdict in VERDICTS:
        assert f"verdict.{verdict}" in TEXTS[language]
        assert f"explain.any.{verdict}" in TEXTS[language]
        for kind in QUESTION_KINDS:
            assert f"answer.{kind}.{verdict}" in TEXTS[language]
            assert f"explain.{kind}.{verdict}" in TEXTS[language]


@pytest.mark.parametrize("kind", QUESTION_KINDS)
def test_no_two_verdicts_share_a_sentence(kind: str) -> None:
    for language in words.LANGUAGES:
        for place in ("answer", "explain"):
            said = [TEXTS[language][f"{place}.{kind}.{verdict}"] for verdict in VERDICTS]
            assert len(set(said)) == len(VERDICTS)


def test_every_metric_has_a_name_in_words() -> None:
    """Two names are what people call them; any other label that is the column's name is missing."""
    for metric in METRICS:
        label = report_labels.metric_label(CATALOGUES["zh"], metric)
        assert metric not in label or metric in ("decode_rate", "goodput"), metric


def said_in_code() -> set[str]:
    """Keys that the library names in full (an f-string's key is held by its family's own test)."""
    keys = set()
    for path in SCRIPTS.glob("decodelab/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "say"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                keys.add(str(node.args[0].value))
    return keys | set(said_in_templates())


def test_every_key_that_is_asked_for_is_there() -> None:
    asked = said_in_code()
    assert len(asked) > 50
    assert asked - set(TEXTS["zh"]) == set()


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_holds_no_arithmetic_no_judgement_and_no_words(name: str) -> None:
    """Truth tests, `loop.*` and two filters that lay out a table's row; nothing else is worked out."""
    tree = jinja2.Environment().parse(TEMPLATES[name])
    nodes = jinja2.nodes
    banned = (nodes.BinExpr, nodes.UnaryExpr, nodes.Compare, nodes.Concat, nodes.CondExpr)
    worked_out = [
        node
        for kind in (*banned, nodes.Test)
        for node in tree.find_all(kind)
        if not isinstance(node, nodes.And | nodes.Or | nodes.Not)
    ]
    assert worked_out == []
    filters = {node.name for node in tree.find_all(nodes.Filter)}
    assert filters <= set(report_render.FILTERS)
    own = {macro.name for macro in tree.find_all(nodes.Macro)}
    called = {node.node.name for node in tree.find_all(nodes.Call) if hasattr(node.node, "name")}
    assert called <= own | {"say"}
    text = "".join(node.data for node in tree.find_all(nodes.TemplateData))
    assert re.findall(r"\w+", text) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "{{ a + b }}",
        "{{ a / b }}",
        "{% if a > b %}{% endif %}",
        "{{ 'x' if a else 'y' }}",
        "{% if a is defined %}{% endif %}",
        "{{ a | round }}",
        "a word",
    ],
)
def test_the_check_of_templates_can_fail(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TEMPLATES, "wrong", wrong)
    with pytest.raises(AssertionError):
        test_a_template_holds_no_arithmetic_no_judgement_and_no_words("wrong")


def said_in_templates() -> list[str]:
    return [key for text in TEMPLATES.values() for key in re.findall(r'say\("([^"]+)"', text)]


def test_no_prose_in_the_code_of_the_report() -> None:
    """A text that a reader sees stands in the catalogues: code holds keys, marks and docstrings."""
    for path in SCRIPTS.glob("decodelab/report*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        told = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef)
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                columns = (
                    "_" in node.value or "\\s" in node.value or id(node) in told
                )  # lists of names, patterns, docstrings
                prose = CHINESE.search(node.value) or re.search(
                    r"[A-Za-z]{2,} [a-z]{2,} [a-z]{2,}", node.value
                )
                assert columns or not prose, f"{path.name}:{node.lineno}: {node.value!r}"


def test_numbers_are_rounded_in_one_place() -> None:
    """No other file of the report and its figures formats a float."""
    names = [*SCRIPTS.glob("decodelab/report*.py"), SCRIPTS / "decodelab" / "words.py"]
    for path in names:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
                spec = ast.unparse(node.format_spec)
                assert "f" not in spec.strip("f'\"") or spec == "''", f"{path.name}: {spec}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "round", path.name


def test_values_are_escaped_in_a_sentence() -> None:
    catalogue = Words("en", {"a": "say {x} and {y:code}", "b": "{x} first"})
    assert catalogue.say("a", x="*a*", y="`b`") == "say \\*a\\* and `` `b` ``"
    assert catalogue.say("a", x=Md("*a*"), y="b") == "say *a* and `b`"
    assert catalogue.say("b", x="# no heading") == "\\# no heading first"


def test_a_missing_word_is_an_error() -> None:
    catalogue = Words("en", {"a": "say {x}"})
    with pytest.raises(MissingWords, match=r"en\.yaml has no text for 'nothing'"):
        catalogue.say("nothing")
    with pytest.raises(MissingWords, match="needs the value 'x'"):
        catalogue.say("a")
    with pytest.raises(FileNotFoundError, match="there are: en, zh"):
        words.load("fr")


def test_chinese_closes_up_and_latin_keeps_its_space() -> None:
    catalogue = Words("zh", {"a": "按 {x} 排名"})
    assert catalogue.say("a", x="成功率") == "按成功率排名"
    assert catalogue.say("a", x="TTFT") == "按 TTFT 排名"


def test_a_text_written_in_one_language_serves_both() -> None:
    assert CATALOGUES["en"].pick({"zh": "只有中文"}) == "只有中文"
    assert CATALOGUES["en"].pick({"zh": "中文", "en": "English"}) == "English"
    assert CATALOGUES["en"].pick("as it is") == "as it is"
    assert CATALOGUES["en"].pick(None) is None
