"""The house rules of scripts/README.md, held against the code."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from decodelab import columns, study

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
TRANSPORT = {
    "host",
    "host_local",
    "host_ssh",
    "known_hosts",
    "own_thread",
    "ssh_agent",
    "ssh_alias",
    "ssh_auth",
    "ssh_chain",
    "ssh_errors",
    "ssh_keyfile",
    "ssh_link",
    "steady",
    "transports",
}
MEASURING = TRANSPORT | {
    "agent_client",
    "backend_ask",
    "client_zipapp",
    "host_trouble",
    "hostcheck",
    "orders",
    "start_orders",
    "follow",
    "progress",
}
# The doors between the wings: what turns a plan into a measurement, or the store into a receipt.
MAY_MEASURE = MEASURING | {
    "launch",
    "stop_queue",
    "check_hosts",
    "status",
    "smoke",
    "fetch_raw",
    "probe_backends",
}
CARGO_FORMATS = {"log_lines", "race", "record", "start_cause", "start_stages"}
BANNED_NAMES = {"utils", "util", "helpers", "common", "misc"}


def python_files(*folders: str) -> list[Path]:
    return [p for folder in folders for p in sorted((SCRIPTS / folder).glob("*.py"))]


def imported(path: Path) -> set[str]:
    """Dotted names of everything a file imports, wherever in the file."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def of_package(names: set[str], package: str) -> set[str]:
    return {n.split(".")[1] for n in names if n.startswith(f"{package}.")}


@pytest.mark.parametrize("path", python_files("decodelab", "."), ids=lambda p: p.stem)
def test_reading_never_imports_measuring(path: Path) -> None:
    modules = {p.stem for p in python_files("decodelab")}
    used = of_package(imported(path), "decodelab") & modules & MEASURING
    assert not used or path.stem in MAY_MEASURE, f"{path.name} imports {used}"


@pytest.mark.parametrize("path", python_files("decodelab"), ids=lambda p: p.stem)
def test_library_knows_only_formats_of_cargo(path: Path) -> None:
    modules = {p.stem for p in python_files("cargo")}
    assert of_package(imported(path), "cargo") & modules <= CARGO_FORMATS


@pytest.mark.parametrize(
    "path", python_files("cargo", "sim"), ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_what_leaves_home_stands_alone(path: Path) -> None:
    own = {path.parent.name}
    optional = {"httpx"} if path.parent.name == "cargo" else set()
    roots = {name.split(".")[0] for name in imported(path)}
    assert roots <= set(sys.stdlib_module_names) | own | optional


@pytest.mark.parametrize(
    "path", python_files("cargo", "sim"), ids=lambda p: f"{p.parent.name}/{p.stem}"
)
def test_what_leaves_home_parses_on_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))


PROFILER = python_files("cargo/profiler", "cargo/profiler/decodelab_profiler")


@pytest.mark.parametrize("path", PROFILER, ids=lambda p: p.stem)
def test_the_profiler_knows_nothing_but_itself(path: Path) -> None:
    """It is loaded into a server's processes, of whatever Python: not even the rest of the cargo is there."""
    roots = {name.split(".")[0] for name in imported(path)}
    assert roots <= set(sys.stdlib_module_names)
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    assert ast.get_docstring(tree), f"{path} says nothing about itself"
    assert path.stem not in BANNED_NAMES


def test_only_one_file_imports_fabric() -> None:
    users = [
        p.name for p in python_files("decodelab", ".", "cargo", "sim") if "fabric" in imported(p)
    ]
    assert len(users) <= 1


@pytest.mark.parametrize(
    "path",
    python_files("decodelab", ".", "cargo", "sim"),
    ids=lambda p: f"{p.parent.name}/{p.stem}",
)
def test_no_junk_drawer(path: Path) -> None:
    assert path.stem not in BANNED_NAMES
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), (
        f"{path} says nothing about itself"
    )


def test_no_python_where_snakemake_would_trip_over_it() -> None:
    assert not list((SCRIPTS.parent / "workflow").rglob("*.py"))


def test_the_rules_promise_the_tables_that_are_made() -> None:
    """The names stand twice, so that parsing the Snakefile need not load the reading wing."""
    assert set(study.TABLES) == set(columns.COLUMNS)
