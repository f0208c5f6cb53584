"""How the SMI tool of this host is called: found by calling it, once per start of a server.

In:  the tool's name ("auto": any that is here), the words of its call as the config has them, an
environment, the interval that is wanted in seconds. Out: a Choice: the whole call, its query fields,
what it adds to LD_LIBRARY_PATH, what it cost and so the interval that it can hold, and in words what
was tried in vain and why this form and interval were chosen. CSV where it gives power, else XML, else
the table; XML before CSV where two dies share a board, since only that tells the die's power from the
board's. All of it has a budget: what may still be chosen keeps its share of it.
"""

from __future__ import annotations

import re
import shutil
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from cargo import smi_call, smi_loop, smi_tools
from cargo.smi_call import Call
from cargo.smi_query import Query
from cargo.smi_tools import Form, Tool, Way

CALL_S = 10.0
BUDGET_S = 60.0  # for all of it; what was not tried by then is told
OPTIONAL_S = 30.0  # from the begin on; then nothing is asked for that a capture can do without
RESERVE_CALLS = 4  # kept while the CSV is tried: XML, which may take twice as long, table, cost
COST_CALLS = 3
COST_S = 2.0  # a call that takes so long is measured once
SHARE = 3.0  # the interval is at least so many times what a call takes


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
    dies_share: str  # why its power may be that of a board with two dies
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
        self.begin = time.monotonic()
        self.end = self.begin + BUDGET_S
        self.calls, self.slowest_s = 0, 0.0  # of the program that is tried
        self.banner = ""  # of the same
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
            self.calls, self.slowest_s, self.banner = 0, 0.0, ""
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
        self.banner = done.text + done.err.decode("utf-8", "replace")
        shown = smi_tools.whose(self.banner)
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
        shared = ""
        for form in tool.forms:
            if _queries(form):
                proof = self._csv(tool, form, words, way)
                shared = proof.dies_share if proof else ""
            else:
                proof = self._proved(form, [*words, *form.words], way)
                if proof is not None and form.name == "table":  # as little as a CSV
                    proof = proof._replace(dies_share=shared)
            if proof is None:
                continue
            found.append(proof)
            if proof.power and not proof.dies_share:
                return proof
            self._vain([words[0], form.name], proof.dies_share or "shows no power draw")
        return min(found, key=lambda p: (not p.power, p.dies_share != ""), default=None)

    def _proved(self, form: Form, argv: List[str], way: Way) -> Optional[Proof]:
        done = self._call(argv, way)
        if not done.out.strip() or not re.search(form.row, done.text):
            self._vain(argv, done.last_words() if done.rc != 0 else "shows no accelerator")
            return None
        return Proof(form, argv, [], bool(re.search(form.power, done.text)), "", done)

    def _csv(self, tool: Tool, form: Form, words: List[str], way: Way) -> Optional[Proof]:
        fields = smi_tools.fields_of(tool, self.banner)

        def ask(argv: List[str]) -> Call:
            return self._call(argv, way)

        answer = Query(fields, form, words, ask, self._time_left, self._vain).best()
        if answer is None:
            return None
        argv, power = answer.argv(form, words), any(answer.draws())
        return Proof(form, argv, answer.fields, power, answer.dies_share(tool), answer.last)

    def _time_left(self, optional: bool) -> bool:
        """For one more call of the CSV, without the share of the forms that may come after it."""
        now = time.monotonic()
        late = optional and now - self.begin >= OPTIONAL_S
        return not late and self.end - now >= (1 + RESERVE_CALLS) * self.slowest_s

    # ------------------------------------------------------------------ what comes of it
    def _made(self, name: str, way: Way, proof: Proof) -> Choice:
        self.last = proof.last
        self._why(proof)
        cost = self._cost(way, proof)
        price = min(cost or [proof.last.seconds])  # its own, not that of a busy machine
        held_s = round(max(self.interval_s, SHARE * price), 3)
        loop = self._loop(name, way, proof) if held_s > self.interval_s else []
        interval_s = self.interval_s if loop else held_s
        if cost:
            told = "by the tool's own loop" if loop else "as wanted"
            if interval_s > self.interval_s:
                told = "not %g s: %g times what a call takes" % (self.interval_s, SHARE)
            self.tried.append("interval: %g s, %s; a call takes %.3g s" % (interval_s, told, price))
        return self._choice(
            name,
            form=proof.form.name,
            argv=proof.argv,
            fields=proof.fields,
            loop=loop,
            libraries=list(way.libraries),
            interval_s=interval_s,
            cost_s=cost,
        )

    def _why(self, proof: Proof) -> None:
        why = "it shows the power draw" if proof.power else "no form shows a power draw"
        if proof.dies_share and proof.power:
            why = "no form tells the draw of a die from that of its board"
        if proof.form.name == "as said":
            why = "the command says what is asked"
        spent = (self.calls, time.monotonic() - self.begin, BUDGET_S)
        self.tried.append(
            "chosen: %s, since %s; %d calls, after %.1f s of at most %g s"
            % (proof.form.name, why, *spent)
        )

    def _cost(self, way: Way, proof: Proof) -> List[float]:
        """Seconds of some more calls; of the last one, if there is no time for another."""
        cost: List[float] = []
        while len(cost) < COST_CALLS and sum(cost) < COST_S:
            if self.end - time.monotonic() < self.slowest_s:
                return cost or [round(proof.last.seconds, 6)]
            done = self._call(proof.argv, way)
            if done.trouble:
                self._vain(proof.argv, done.last_words())
                break
            self.last = done
            cost.append(round(done.seconds, 6))
        return cost

    def _loop(self, name: str, way: Way, proof: Proof) -> List[str]:
        """The looping call, if two ticks of it show as many rows as the call by itself."""
        word = smi_tools.BY_NAME[name].loop
        if not word or not proof.fields:
            return []
        argv = [*proof.argv, word % round(1000 * self.interval_s)]
        env = with_libraries(self.env, way.libraries)
        rows = proof.last.out.count(b"\n")
        seen: List[Call] = []

        def enough() -> bool:
            return len(seen) >= 2 or self.stopped() or time.monotonic() > self.end

        for done in smi_loop.ticks(argv, env, self.interval_s, enough):
            seen.append(done)
        good = [(done.trouble, done.out.count(b"\n")) for done in seen[:2]] == [("", rows)] * 2
        if good and not seen[-1].stuck:
            return argv
        trouble = seen[-1].trouble if seen else "no two ticks of it in the time that was left"
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
        env = with_libraries(self.env, way.libraries)
        done = smi_call.call(argv, env, min(self.call_s, left))
        self.calls += 1
        self.slowest_s = max(self.slowest_s, done.seconds)
        return done

    def _vain(self, argv: List[str], why: str) -> None:
        self.tried.append("%s: %s" % (" ".join(argv), why))


def _queries(form: Form) -> bool:
    return any(smi_tools.FIELDS in word for word in form.words)


def _complete(words: List[str], tool: Tool) -> bool:
    """Does the command say already what is to be asked?"""
    heads = {word.split("=")[0] for form in tool.forms for word in form.words}
    return any(word.split("=")[0] in heads for word in words[1:])
