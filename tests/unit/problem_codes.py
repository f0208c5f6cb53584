"""The codes of problems and doubts that a module gives, as its code has them."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType


def problem_codes(*modules: ModuleType) -> set[str]:
    trees = [ast.parse(Path(str(m.__file__)).read_text(encoding="utf-8")) for m in modules]
    calls = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Call)]
    mine = [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "Problem"]
    return {c.args[0].value for c in mine if isinstance(c.args[0], ast.Constant)}
