"""A post-import hook: a function is called once for each named module, right after its own code has run.

Only modules that the process itself imports are seen; nothing is imported for its sake.
"""

import sys


class AfterImport:
    """A finder for sys.meta_path: finds as the others do, and lays one more step behind the loading."""

    def __init__(self, names: set, then: object) -> None:
        self._waiting = set(names)
        self._then = then

    def find_spec(self, name, path=None, target=None):
        if name not in self._waiting:
            return None
        self._waiting.discard(name)  # also guards against finding oneself
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self._then, self._waiting)
                return spec
        self._waiting.add(name)
        return None


class _Loader:
    """The module's own loader with one more step; it takes itself off the module again."""

    def __init__(self, inner, then, waiting):
        self._inner = inner
        self._then = then
        self._waiting = waiting

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
        try:
            self._inner.exec_module(module)
        except BaseException:
            self._waiting.add(module.__name__)  # whoever tries again
            raise
        self._then(module)
