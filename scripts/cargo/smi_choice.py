"""How the SMI tool of this host is called: found by calling it, once per start of a server.

In:  the tool's name ("auto": any that is here), the words of its call as the config has them, an
environment, the interval that is wanted in seconds. Out: a Choice: the whole call, its query fields,
what it adds to LD_LIBRARY_PATH, what it cost and so the interval that it can hold, and in words what
was tried in vain. CSV where it gives power, else XML, else the table; XML before CSV where two dies
share a board, since only that tells the die's power from the board's.
"""

from __future__ import annotations

import re
import shutil
import time
from contextlib import closing
from itertools import islice
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from cargo import smi_call, smi_loop, smi_tools
from cargo.smi_call import Call
from cargo.smi_tools import Form, Tool, Way

CALL_S = 10.0
BUDGET_S = 60.0  # for all of it; what was not tried by then is told
COST_CALLS = 3
SHARE = 3.0  # the interval is at least so many times what a call takes
_REFUSED = re.compile(
    r"not a valid|invalid|unrecogni[sz]ed|unknown (?:field|option|argument)", re.I
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:\s*W)?$")


class Stopped(Exception):
    """Asked to end meanwhile."""


class Choice(NamedTuple):
    tool: str  # "none": there is no tool
    asked: str
    form: Optional[str]
    argv: List[str]
    fields: List[str]  # of a CSV without header
    loop: List[str]  # the call that goes on by itself, where starting it anew takes too long
    libraries: List[str]  # added at the end of LD_LIBRARY_PATH
    wanted_interval_s: float
    interval_s: float  # that it can hold
    cost_s: List[float]
    tried: List[str]

    def env(self, base: Dict[str, str]) -> Dict[str, str]:
        return with_libraries(base, self.libraries)


class Proof(NamedTuple):
    """A form that gave the readings of at least one accelerator."""

    form: Form
    argv: List[str]
    fields: List[str]
    power: bool
    dies_share: bool  # a board's power is not a die's
    last: Call


def with_libraries(
    base: Dict[str, str], libraries: "List[str] | Tuple[str, ...]"
) -> Dict[str, str]:
    if not libraries:
        return dict(base)
    path = [x for x in base.get("LD_LIBRARY_PATH", "").split(":") if x]
    return dict(base, LD_LIBRARY_PATH=":".join([*path, *(x for x in libraries if x not in path)]))


class Chooser:
    def __init__(
        self,
        asked: str,
        command: List[str],
        env: Dict[str, str],
        interval_s: float,
        call_s: Optional[float] = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.asked, self.env, self.interval_s = asked, env, interval_s
        self.command = [] if command in ([], [asked]) else command
        self.call_s = call_s or CALL_S
        self.stopped = stopped
        self.end = time.monotonic() + BUDGET_S
        self.tried: List[str] = []
        self.last: Optional[Call] = None  # of the chosen call
        self.guess: Optional[Tuple[Tool, Way, List[str]]] = None  # a named tool that is here

    def choose(self) -> Choice:
        """The first tool, of those asked for, that shows an accelerator; else the best guess."""
        seen = set()
        for called, way, words in self._places():
            path = shutil.which(words[0], path=self.env.get("PATH"))
            if path is None:
                self.tried.append("%s: not found" % words[0])
            if path is None or path in seen:
                continue
            seen.add(path)
            words = [path, *words[1:]]
            if called is not None and self.guess is None:
                self.guess = (called, way, words)
            tool = self._whose(called, way, words)
            if tool is None:
                continue
            proof = self._best(tool, way, words)
            if proof is not None:
                return self._made(tool.name, way, proof)
        return self._choice("none") if self.asked == "auto" else self._guessed()

    def unfinished(self) -> Choice:
        self.tried.append("asked to end before a call was found")
        return self._choice(self.asked)

    def _places(self) -> Iterator[Tuple[Optional[Tool], Way, List[str]]]:
        """Every tool asked for, at every place where it may be; a command of the config alone."""
        named = smi_tools.BY_NAME.get(self.asked)
        if self.command:
            yield named, Way(self.command[0]), self.command
            return
        for tool in smi_tools.TOOLS if named is None else (named,):
            for way in tool.ways:
                yield tool, way, [way.program]

    def _whose(self, called: Optional[Tool], way: Way, words: List[str]) -> Optional[Tool]:
        """By what it prints, not by its name: one vendor's command may be called like another's."""
        if called is not None and _complete(words, called):
            return called
        done = self._call([*words, *(called.look if called else ())], way)
        shown = smi_tools.whose(done.text + done.err.decode("utf-8", "replace"))
        if done.rc is None:  # it hangs, or does not start
            self._vain(words, done.last_words())
            return None
        if self.asked == "auto":
            if shown is None:
                known = "" if done.rc else "the output of no known tool: "
                self._vain(words, known + done.last_words())
            return shown
        if shown is not None and shown is not called:
            self._vain(words, "this is the output of %s" % shown.name)
            return None
        return called

    # ------------------------------------------------------------------ forms
    def _best(self, tool: Tool, way: Way, words: List[str]) -> Optional[Proof]:
        """The first form with power, else the first that shows an accelerator at all."""
        if _complete(words, tool):
            return self._proved(Form("as said", (), "", ""), words, way)
        found: List[Proof] = []
        for form in tool.forms:
            proof = self._csv(tool, form, words, way) if _queries(form) else None
            if not _queries(form):
                proof = self._proved(form, [*words, *form.words], way)
            if proof is None:
                continue
            found.append(proof)
            if proof.power and not proof.dies_share:
                return proof
        return min(found, key=lambda p: (not p.power, p.dies_share), default=None)

    def _proved(self, form: Form, argv: List[str], way: Way) -> Optional[Proof]:
        done = self._call(argv, way)
        if not done.out.strip() or not re.search(form.row, done.text):
            self._vain(argv, done.last_words() if done.rc != 0 else "shows no accelerator")
            return None
        return Proof(form, argv, [], bool(re.search(form.power, done.text)), False, done)

    def _csv(self, tool: Tool, form: Form, words: List[str], way: Way) -> Optional[Proof]:
        """All usual names at once; where one is not known, each by itself."""
        usual = [names[0] for names in tool.fields]
        proof, refused = self._queried(form, usual, words, way)
        if proof is None and refused:
            proof, _ = self._queried(form, self._known(tool, form, words, way), words, way)
        return proof

    def _known(self, tool: Tool, form: Form, words: List[str], way: Way) -> List[str]:
        known: List[str] = []
        for names in tool.fields:
            for name in names:
                if self.end - time.monotonic() < self.call_s:
                    self._vain(words, "no time left to ask for %s" % name)
                    return known
                done = self._call([*words, *_asking(form, [name])], way)
                if done.out.strip() and not _REFUSED.search(done.text + done.last_words()):
                    known.append(name)
                    break
                self._vain([*words[-1:], name], done.last_words())
                if done.trouble:  # a tool that hangs would do so at each
                    return known
        return known

    def _queried(
        self, form: Form, fields: List[str], words: List[str], way: Way
    ) -> Tuple[Optional[Proof], bool]:
        """What it gave, or whether it refused the fields (and not, say, found no driver)."""
        if not fields:
            return None, False
        argv = [*words, *_asking(form, fields)]
        done = self._call(argv, way)
        refused = bool(_REFUSED.search(done.text + done.last_words()))
        lines = [[c.strip() for c in x.split(",")] for x in done.text.splitlines() if x.strip()]
        rows = [dict(zip(fields, cells)) for cells in lines if len(cells) == len(fields)]
        if not rows or refused:
            self._vain(argv, "shows no accelerator" if done.rc == 0 else done.last_words())
            return None, refused
        draw = next((name for name in smi_tools.POWER_FIELDS if name in fields), None)
        shows = [draw is not None and bool(_NUMBER.match(row[draw])) for row in rows]
        return Proof(form, argv, fields, any(shows), _dies_share(rows, shows), done), False

    # ------------------------------------------------------------------ what comes of it
    def _made(self, name: str, way: Way, proof: Proof) -> Choice:
        self.last = proof.last
        cost: List[float] = []
        for _ in range(COST_CALLS):
            done = self._call(proof.argv, way)
            if done.trouble:
                self._vain(proof.argv, done.last_words())
                break
            self.last = done
            cost.append(round(done.seconds, 6))
        price = min(cost or [proof.last.seconds])  # its own, not that of a busy machine
        held_s = round(max(self.interval_s, SHARE * price), 3)
        loop = self._loop(name, way, proof) if held_s > self.interval_s else []
        return self._choice(
            name,
            form=proof.form.name,
            argv=proof.argv,
            fields=proof.fields,
            loop=loop,
            libraries=list(way.libraries),
            interval_s=self.interval_s if loop else held_s,
            cost_s=cost,
        )

    def _loop(self, name: str, way: Way, proof: Proof) -> List[str]:
        """The looping call, if two ticks of it show as many rows as the call by itself."""
        word = smi_tools.BY_NAME[name].loop
        if not word or not proof.fields:
            return []
        argv = [*proof.argv, word % round(1000 * self.interval_s)]
        env = with_libraries(self.env, way.libraries)
        rows = proof.last.out.count(b"\n")
        with closing(smi_loop.ticks(argv, env, self.interval_s, self.stopped)) as ticks:
            two = list(islice(ticks, 2))
        if [(done.trouble, done.out.count(b"\n")) for done in two] == [("", rows)] * 2:
            return argv
        trouble = two[-1].trouble if two else ""
        self._vain(argv, trouble or "its ticks have other rows than a call has")
        return []

    def _guessed(self) -> Choice:
        """A tool that was named is sampled even where it shows nothing now: what it says is kept."""
        if self.guess is None:
            return self._choice(self.asked)
        tool, way, words = self.guess
        told = [*words, *([] if _complete(words, tool) else tool.forms[-1].words)]
        return self._choice(self.asked, argv=told, libraries=list(way.libraries))

    def _choice(self, name: str, **told: Any) -> Choice:
        unknown: Dict[str, Any] = {"form": None, "argv": [], "fields": [], "loop": []}
        unknown.update(libraries=[], interval_s=self.interval_s, cost_s=[])
        return Choice(
            tool=name,
            asked=self.asked,
            wanted_interval_s=self.interval_s,
            tried=self.tried,
            **{**unknown, **told},
        )

    def _call(self, argv: List[str], way: Way) -> Call:
        if self.stopped():
            raise Stopped
        left = self.end - time.monotonic()
        if left <= 0:
            now = (time.monotonic(), time.time()) * 2
            return Call(*now, None, b"", b"", "not tried: the %g s for it are over" % BUDGET_S)
        return smi_call.call(argv, with_libraries(self.env, way.libraries), min(self.call_s, left))

    def _vain(self, argv: List[str], why: str) -> None:
        self.tried.append("%s: %s" % (" ".join(argv), why))


def _dies_share(rows: List[Dict[str, str]], shows: List[bool]) -> bool:
    """Two dies on one board: one serial number twice, or of two alike only one shows its draw."""
    boards = [row["serial"] for row in rows if len(row.get("serial", "").strip("[]")) > 3]
    with_draw = {row.get("name") for row, shown in zip(rows, shows) if shown}
    without = {row.get("name") for row, shown in zip(rows, shows) if not shown}
    return len(boards) > len(set(boards)) or bool(with_draw & without)


def _queries(form: Form) -> bool:
    return any(smi_tools.FIELDS in word for word in form.words)


def _asking(form: Form, fields: List[str]) -> List[str]:
    return [word.replace(smi_tools.FIELDS, ",".join(fields)) for word in form.words]


def _complete(words: List[str], tool: Tool) -> bool:
    """Does the command say already what is to be asked?"""
    heads = {word.split("=")[0] for form in tool.forms for word in form.words}
    return any(word.split("=")[0] in heads for word in words[1:])
