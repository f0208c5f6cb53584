"""Which query fields the CSV of an SMI tool knows, found in few calls: one that is not known fails
the whole call, and a call may take seconds.

In:  the fields, each with its other names; the words that call the tool; how to make a call, whether
there is time for one, where to tell what was in vain. Out: the best Answer: the fields asked and the
rows they gave. All usual names at once; where one is refused, those that the tool's help lists; where
it lists none, a few with the power draw, and then one more in each call.
"""

from __future__ import annotations

import re
from typing import Callable, Dict, List, NamedTuple, Optional, Set

from cargo import smi_tools
from cargo.smi_call import Call
from cargo.smi_tools import Fields, Form, Tool

REFUSED = re.compile(r"not a valid|invalid|unrecogni[sz]ed|unknown (?:field|option|argument)", re.I)
_NAMED = re.compile(r"field\s+[\"']([\w.]+)[\"']", re.I)  # in a refusal
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:\s*W)?$")
_SERIAL = re.compile(r"(?=.*[1-9])[\w-]{4,}$")  # not "[Not Supported]", not all zeros
UNDERSTOOD = 3  # usual fields that a help has to list, else it is of some other kind
HOPELESS = 3  # fields refused alone before any was known: this tool has no such query


class Answer(NamedTuple):
    fields: List[str]
    rows: List[Dict[str, str]]  # of each accelerator, its cells by field
    last: Call

    def argv(self, form: Form, words: List[str]) -> List[str]:
        return [*words, *_asking(form, self.fields)]

    def draws(self) -> List[bool]:
        """Of each row, whether it shows a power draw."""
        draw = next((name for name in smi_tools.POWER_FIELDS if name in self.fields), None)
        return [draw is not None and bool(_NUMBER.match(row[draw])) for row in self.rows]

    def dies_share(self, tool: Tool) -> str:
        """Why a row's power may be that of a board with two dies; "" if nothing speaks for it."""
        if not tool.two_dies:
            return ""
        boards = [row["serial"] for row in self.rows if _SERIAL.match(row.get("serial", ""))]
        if len(boards) > len(set(boards)):
            return "two dies have one serial number, so its power may be the board's"
        dies = [(row.get("name", ""), shown) for row, shown in zip(self.rows, self.draws())]
        dies = [(name, shown) for name, shown in dies if re.search(tool.two_dies, name)]
        if {name for name, shown in dies if shown} & {name for name, shown in dies if not shown}:
            return "of the dies of a board only one shows a draw, so it may be the board's"
        return ""


class Query:
    def __init__(
        self,
        fields: Fields,
        form: Form,
        words: List[str],
        ask: Callable[[List[str]], Call],
        time_left: Callable[[bool], bool],  # for one more call; True: for what can be done without
        in_vain: Callable[[List[str], str], None],
    ) -> None:
        self.fields, self.form, self.words = fields, form, words
        self.ask, self.time_left, self.in_vain = ask, time_left, in_vain
        self.unknown: Set[str] = set()  # names that a refusal gave
        self.refused = self.hung = False  # the last query

    def best(self) -> Optional[Answer]:
        usual = [names[0] for names in self.fields]
        answer = self._asked(usual)
        if answer is None and self.refused:
            answer = self._by_list()
        if answer is None and self.refused:
            answer = self._by_steps()
        return answer

    def _asked(self, fields: List[str]) -> Optional[Answer]:
        """What it gave; else `refused` says that it was the fields (and not, say, the driver)."""
        argv = [*self.words, *_asking(self.form, fields)]
        done = self.ask(argv)
        said = done.text + done.last_words()
        self.hung, self.refused = bool(done.trouble), bool(REFUSED.search(said))
        lines = [[c.strip() for c in x.split(",")] for x in done.text.splitlines() if x.strip()]
        rows = [dict(zip(fields, cells)) for cells in lines if len(cells) == len(fields)]
        if rows and not self.refused:
            return Answer(fields, rows, done)
        if self.refused:
            self.unknown |= set(_NAMED.findall(said)) & set(fields)
        self.in_vain(
            argv, "shows no accelerator" if done.rc == 0 and not rows else done.last_words()
        )
        return None

    def _by_list(self) -> Optional[Answer]:
        """What the help lists, without those that are refused all the same."""
        listed = self._listed()
        while listed and self.time_left(False):
            answer = self._asked(listed)
            left = [name for name in listed if name not in self.unknown]
            if answer is not None or not self.refused or left == listed:
                return answer
            listed = left
        return None

    def _listed(self) -> List[str]:
        """Of each field the first name that the tool's help lists; none if it has no such help."""
        if not self.time_left(False):
            return []
        argv = [*self.words, smi_tools.HELP_OF_FIELDS]
        done = self.ask(argv)
        found = [
            next((x for x in names if x not in self.unknown and _lists(done.text, x)), "")
            for names in self.fields
        ]
        found = [name for name in found if name]
        if len(found) >= UNDERSTOOD:
            return found
        self.in_vain(argv, done.last_words() if done.rc != 0 else "lists none of the usual fields")
        return []

    def _by_steps(self) -> Optional[Answer]:
        """Never without the power draw, if it is known by any name and time is short."""
        best = self._essential()
        known = best.fields if best else []
        newer = any(name.startswith(smi_tools.NEWER) for name in known)
        fields = smi_tools.newer_first(self.fields) if newer else self.fields
        alone = 0
        for at, names in enumerate(fields):
            for name in names:
                if self.hung or set(names) & set(known) or name in self.unknown:
                    continue
                if not self.time_left(best is not None):
                    rest = [x[0] for x in fields[at + 1 :] if not set(x) & set(known)]
                    self.in_vain(self.words, "no time left to ask for " + ", ".join([name, *rest]))
                    return best
                more = self._asked([*known, name])
                if more is not None:
                    best, known = more, more.fields
            alone += 1
            if best is None and alone >= HOPELESS:
                return None
        return best

    def _essential(self) -> Optional[Answer]:
        """What a capture is worth having for, by each name of the power draw, then without it."""
        some = [x[0] for x in self.fields if x[0] in smi_tools.ESSENTIAL_FIELDS]
        some = [name for name in some if name not in self.unknown]
        draws = [x for names in self.fields for x in names if x in smi_tools.POWER_FIELDS]
        for draw in [[x] for x in draws if x not in self.unknown] + [[]]:
            if not some or not self.time_left(False):
                return None
            answer = self._asked(some + draw)
            if answer is not None and not draw:
                self.unknown |= set(draws)
            if answer is not None or not self.refused:
                return answer
        return None


def _asking(form: Form, fields: List[str]) -> List[str]:
    return [word.replace(smi_tools.FIELDS, ",".join(fields)) for word in form.words]


def _lists(text: str, name: str) -> bool:
    """As an entry, quoted or at the begin of a line; in a sentence it says nothing."""
    entry = r"(?m)(?:^[\s*-]*|[\"'])%s(?=[\"',:\t]|\s*$|\s{2,})" % re.escape(name)
    return re.search(entry, text) is not None
