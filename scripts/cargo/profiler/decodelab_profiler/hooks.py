"""A post-import hook: a function is called once for each named module, right after its own code has run.

Only modules that the process itself imports are seen; nothing is imported for its sake. Who only looks whether a
module is there (importlib.util.find_spec) has not imported it: it stays waited for.
"""

import sys
import threading
from typing import Any


class AfterImport:
    """A finder for sys.meta_path: finds as the others do, and lays one more step behind the loading."""

    def __init__(self, names: set, then: Any) -> None:
        self._waiting = set(names)
        self._then = then
        self._finding: set = (
            set()
        )  # (thread, name): a finder that asks all others again meets us once

    def find_spec(self, name, path=None, target=None):
        mine = (threading.get_ident(), name)
        if name not in self._waiting or mine in self._finding:
            return None
        self._finding.add(mine)
        try:
            return self._found(name, path, target)
        finally:
            self._finding.discard(mine)

    def _found(self, name, path, target):
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._loaded)
                return spec
        return None

    def _loaded(self, module):
        self._waiting.discard(module.__name__)
        self._then(module)


class _Loader:
    """The module's own loader with one more step; it takes itself off the module again."""

    def __init__(self, inner, then):
        self._inner = inner
        self._then = then

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def create_module(self, spec):
        create = getattr(self._inner, "create_module", None)
        return create(spec) if create is not None else None

    def exec_module(self, module):
        spec = getattr(module, "__spec__", None)
        if spec is not None:
            spec.loader = self._inner
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._inner
        self._inner.exec_module(
            module
        )  # what raises may be tried again, with another loader of ours
        self._then(module)
