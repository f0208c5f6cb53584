"""The profiles of a study put together: one group an arm, with one profile a launch; one a file that the config
gives, unless it holds shares alone, which are told where they are evidence.

In: `Findings`. Out: `Group`s, in plan order. An arm of several experiments belongs to the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from decodelab.findings import Arm, Findings
from decodelab.step_table import Profile


@dataclass(frozen=True)
class Group:
    experiment: str | None  # None: a given profile of no variant that an experiment has
    variant: str | None
    arm: Arm | None  # None: given by the config
    profiles: Mapping[str, Profile]  # by run; a given one by its own name

    @property
    def usable(self) -> Mapping[str, Profile]:
        return {name: one for name, one in self.profiles.items() if one.valid}

    @property
    def states_shares(self) -> bool:
        return bool(self.usable) and all(one.states_shares for one in self.usable.values())


def groups(findings: Findings) -> list[Group]:
    found: list[Group] = []
    seen: set[str] = set()
    for experiment in findings.experiments:
        for arm in findings.arms(experiment):
            mine = {
                name: findings.profiles[name] for name in arm.names if name in findings.profiles
            }
            if mine and not seen & set(mine):
                seen |= set(mine)
                found.append(Group(experiment, arm.variant, arm, mine))
    return found + [
        _given(findings, name)
        for name, one in findings.given_profiles.items()
        if not (one.valid and one.shares_alone)
    ]


def _given(findings: Findings, name: str) -> Group:
    variant = ((findings.plan.get("profiles") or {}).get(name) or {}).get("variant")
    homes = (each for each in findings.experiments if variant in findings.variants_of(each))
    return Group(next(homes, None), variant, None, {name: findings.given_profiles[name]})


def of_experiment(findings: Findings, experiment: str | None) -> list[Group]:
    return [group for group in groups(findings) if group.experiment == experiment]
