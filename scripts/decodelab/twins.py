"""The unprofiled twin of each profiled variant: the same server without the step profiler.

In: the study's variants. Out: the same with their twins named, and with those added that the config has
not; the arms of an experiment with each twin beside its variant. Only against a twin can be told what
the profiler costs and whether it changes the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from decodelab.variants import Variant

SUFFIX = "_unprofiled"
LABEL = {"zh": "（不插桩）", "en": ", unprofiled"}
Arm = tuple[str, list[str]]  # variant, workloads


def named(variants: Mapping[str, Variant]) -> dict[str, Variant]:
    """Every variant with its twin's name, the made-up twins last. A twin is the config's own variant of
    that very server, be it called as it may; the one that is extended where there are several.
    """
    out = dict(variants)
    for name, variant in variants.items():
        if variant.profile is None:
            continue
        twin = _without(variant, out)
        same = [v.name for v in out.values() if v.profile is None and v.server == twin.server]
        found = variant.extends if variant.extends in same else next(iter(same), None)
        if found is None:
            out[twin.name] = twin
        out[name] = replace(variant, twin=found or twin.name)
    return out


def _without(variant: Variant, taken: Mapping[str, Variant]) -> Variant:
    name = variant.name + SUFFIX
    while name in taken:  # by another server, or this one would be found
        name += SUFFIX
    given: Any = variant.label  # a plain text is the same in all languages
    told = given if isinstance(given, dict) else dict.fromkeys(LABEL, given)
    label = (
        {lang: f"{told[lang]}{LABEL[lang]}" for lang in LABEL if lang in told} if given else None
    )
    return replace(
        variant,
        name=name,
        label=label,
        extends=variant.name,
        grid=None,  # no cell: it takes part in no board and answers for no grid
        cell=None,
        profile=None,
    )


def beside(arms: Sequence[Arm], variants: Mapping[str, Variant]) -> list[Arm]:
    """The arms with each profiled one's twin behind it, for every workload of the profiled ones. A twin
    that is an arm of its own keeps its place, or turning the order round would not balance it.
    """
    wanted: dict[str, list[str]] = {}
    for name, loads in arms:
        twin = variants[name].twin
        if twin is not None:
            known = wanted.setdefault(twin, [])
            known += [load for load in loads if load not in known]
    own = {name for name, _ in arms}
    out: list[Arm] = []
    for name, loads in arms:
        lacking = [load for load in wanted.get(name, []) if load not in loads]
        out.append((name, [*loads, *lacking]))
        twin = variants[name].twin
        if twin is not None and twin not in own:
            own.add(twin)
            out.append((twin, wanted[twin]))
    return out
