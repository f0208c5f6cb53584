"""Lays the wrappers on the methods of a module that was just imported, and tells which were there."""

import inspect
from typing import Any, Dict

from . import targets, wrapping
from .recorder import Recorder

SKIPPABLE = ("region", "around")
TOLD = ("region", "around", "step", "rest")


class Installer:
    def __init__(self, spec: Dict[str, Any], sink: Any) -> None:
        self._sink = sink
        self._recorder = Recorder(spec, sink)
        self._recorder.found_model = self._found_model
        sink.after_fork.append(self._recorder.forget)
        self._skip = set(spec.get("skip") or ())
        self._rows = [
            t for t in targets.TARGETS if t.kind not in SKIPPABLE or t.region not in self._skip
        ]
        for region, told in (spec.get("regions") or {}).items():
            try:
                self._rows.append(targets.of_user(region, told))
            except ValueError as fault:
                sink.note("region %s: %s" % (region, fault))
        sink.table([t for t in self._rows if t.kind in TOLD])

    def modules(self) -> set:
        return {row.module for row in self._rows}

    def imported(self, module):
        """After the module's own code has run. Never raises."""
        for row in self._rows:
            if row.module == module.__name__:
                self._recorder.guarded(self._lay, module, row)

    def _lay(self, module, row):
        why = self._wrap(module, row)
        if why is None and row.kind == "rest":
            self._recorder.has_rest = True
        if row.kind in TOLD or why is None:
            self._tell(row.region, "%s:%s" % (row.module, row.name), row.era, why)

    def _tell(self, region, target, era, why):
        fact = {"kind": "target", "region": region, "target": target, "era": era}
        self._sink.target(dict(fact, found=why is None, why=why))

    def _wrap(self, module, row):
        """Why not, or None once it is done."""
        *owners, name = row.name.split(".")
        holder = module
        for owner in owners:
            holder = getattr(holder, owner, None)
            if not isinstance(holder, type):
                return "no such class"
        timed = getattr(getattr(holder, name, None), wrapping.MARK, None)
        if row.era == "user" and timed is not None:
            return "timed as %s already" % timed
        if name == "forward" and _is_compiled(holder):
            name = "__call__"  # a compiled class is entered there, and its forward is the tracer's
        return _replace(holder, name, lambda method: self._wrapper(method, row))

    def _wrapper(self, method, row):
        recorder = self._recorder
        if row.kind == "region":
            return wrapping.region(method, row.region, recorder, self._look(row))
        if row.kind == "step":
            return wrapping.step(method, row.region, recorder)
        if row.kind == "rest":
            return wrapping.rest(method, recorder)
        if row.kind == "around":
            return wrapping.around(method, row.region)
        if row.kind == "load":
            return wrapping.loads(method, recorder)
        if row.kind == "look":
            return wrapping.looked(method, recorder, recorder.input_seen)
        return wrapping.arrival(method) if row.kind == "arrival" else wrapping.muted(method)

    def _look(self, row):
        if row.era == "user":
            return None
        if row.region == "scheduler" and row.name.endswith(".schedule"):
            return self._recorder.order_made
        return self._recorder.order_given if row.region == "handover" else None

    # ------------------------------------------------------------------ what only the model tells
    def _found_model(self, runner):
        from .model_facts import _named, model_of

        model = model_of(runner)
        if model is None:
            return
        if not hasattr(type(runner), "_model_forward"):
            self._lay_class(type(model), "forward", "forward")
        if hasattr(type(model), "compute_logits"):
            self._lay_class(type(model), "compute_logits", "logits")
        for kind in {type(module) for _, module in _named(model)}:
            for region, ending in targets.MODEL_CLASSES.items():
                if kind.__name__.endswith(ending):
                    self._lay_class(kind, "forward", region)

    def _lay_class(self, kind, name, region):
        if region in self._skip:
            return
        row = targets.Target(
            region, "region", "model", kind.__module__, "%s.%s" % (kind.__name__, name)
        )
        name = "__call__" if name == "forward" and _is_compiled(kind) else name
        why = _replace(kind, name, lambda method: self._wrapper(method, row))
        self._tell(region, "%s:%s" % (row.module, row.name), row.era, why)


def _is_compiled(holder):
    bases = getattr(holder, "__mro__", ())[1:]
    return any(base.__name__.startswith("TorchCompile") for base in bases)


def _replace(holder, name, make):
    """Puts make(method) in the method's place; why not, or None once it is done.

    An inherited method is replaced in this class alone. What binds in another way than a plain function does (a class
    or static method, here or in a base) goes on to do so, for its callers are the engine.
    """
    is_class = isinstance(holder, type)
    held = inspect.getattr_static(holder, name, None) if is_class else getattr(holder, name, None)
    bound = held.__func__ if isinstance(held, (staticmethod, classmethod)) else held
    if not callable(bound) or held is vars(object).get(name):
        return "no such method"
    if isinstance(bound, type) or hasattr(bound, "cache_clear"):
        return "no plain method"  # a class, or with methods of its own: a function in its place lacks them
    made = make(bound)
    if isinstance(held, (staticmethod, classmethod)):
        made = type(held)(made)
    elif is_class and not hasattr(held, "__get__"):
        made = staticmethod(made)  # a callable that does not take the instance
    try:
        setattr(holder, name, made)
    except (AttributeError, TypeError) as fault:  # of a class in C, or one that guards itself
        return str(fault)
    return None
