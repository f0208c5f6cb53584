"""A synthetic prompt of N tokens, sized through the server's own tokenizer.

In:  N, a seed, and a count of a prompt's tokens (`TokenizeCounter`, or any other).
Out: messages, the same for the same seed, and what became of the sizing (record: prompt_sizing).

The text is common English words, one token each in the usual vocabularies; nothing in it depends
on anything but the seed. How many words make N tokens (template, tools and salt included) is asked
of vLLM's POST /tokenize, which renders the same chat template as a chat completion: a few calls, in
which the number of words closes in on N as a secant does, then single characters. Where the server
cannot count, one token a word is assumed, and said.
"""

from __future__ import annotations

import hashlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from cargo import server_http
from cargo.endpoint import Endpoint, ask

# 256 of them: a byte of the seed's digest is a word
WORDS = """
    age ago all and answer area ask away back bad bank big blue boat box break bridge bring
    brown build bus car cell chair change check city class clean close cloud cook corn corner
    could cover cry cut dance date desk door double draw dream dress ear egg empty end energy
    ever every eye face fact fall far fast feel final finger finish five flow foot for force
    forest form four front get girl give glass gold gone hair hand happy hat have hear heart
    heat heavy help her him hole home huge ice inch iron job join key kind last late lay left
    length less let level life lift line little live local look main man many map mark men metal
    mind mine minute more most mouth much must near never new night not number object office
    once open order over own page paint pair paper park part party person piece plan please
    point pool power put quick quiet race rain read rest right ring river road rock room root
    rose row salt same sat save sea seat second seed send sense serve seven shall sharp she show
    sign sing sit six sky sleep slow song soon south space spring square star state stay step
    street study suit sun table tail then they thin thing this those time tone top total town
    track trade train travel trip try two type unit until very view wall warm wash water wave
    way weight when while white whole why wide window winter wish with work world write year
""".split()  # noqa: SIM905

_CALLS = 12
_WORD_CALLS = 8  # of them; the rest is for the last characters
_LONG = 4096  # tokens from which a sample comes first: a wrong guess costs megabytes
_SAMPLE_WORDS = 1024
_MANY_WORDS = 16  # enough to tell how many tokens words make
_LEAST_RATE = 1 / 16  # tokens a word, with any tokenizer
_TIMEOUT_S = 120.0  # of a whole call
_MOST = 1 << 53  # a larger number is no count

Count = Callable[[List[Dict[str, Any]]], Optional[int]]


class _Point(NamedTuple):
    words: int
    tokens: int


def words(seed: str, number: int) -> str:
    """The first words of the seed's text: a longer text begins with the shorter one."""
    return " ".join(WORDS[byte] for byte in hashlib.shake_256(seed.encode()).digest(number))


def sized_messages(
    tokens: int, seed: str, count: Count
) -> Tuple[List[Dict[str, Any]], Dict[str, Any]]:
    """One user message with which the prompt has `tokens` tokens, and the sizing's record."""
    search = _Search(tokens, seed, count)
    text = search.run()
    sizing = {
        "asked": tokens,
        "tokens": search.found,
        "by": "estimate" if search.found is None else "tokenize",
        "calls": search.calls,
        "problem": search.problem,
    }
    return _message(text), sizing


def _message(text: str) -> List[Dict[str, Any]]:
    return [{"role": "user", "content": text}]


def _stuck(first: _Point, low: _Point, point: _Point) -> bool:
    """Far fewer tokens than so many words make: the server cuts off, or does not count the text."""
    all_more = point.words - first.words
    if all_more >= _MANY_WORDS and point.tokens - first.tokens < all_more * _LEAST_RATE:
        return True
    more, known = point.words - low.words, low.words - first.words
    rate = _LEAST_RATE
    if known >= _MANY_WORDS:
        rate = (low.tokens - first.tokens) / known / 2
    return more >= _MANY_WORDS and point.tokens - low.tokens < more * rate


class _Search:
    """Finds the text: a bracket of word counts around N, then characters of the last word.

    The count grows with the words, almost in proportion: template, tools and salt are a constant.
    """

    def __init__(self, wanted: int, seed: str, count: Count) -> None:
        self.calls = 0
        self.found: Optional[int] = None  # tokens of the text that `run` returned, as counted
        self.problem: Optional[str] = None
        self._why = ""  # the search was given up
        self._wanted = wanted
        self._seed = seed
        self._count = count

    def run(self) -> str:
        least = self._ask(words(self._seed, 1))
        if least is None:
            self.problem = "the server counts no tokens at /tokenize: one a word is assumed"
            return words(self._seed, self._wanted)
        text = self._shortest(least) if least >= self._wanted else self._longer(least)
        if self.found is None or self.found == self._wanted:
            return text
        if self.found > self._wanted:
            self.problem = f"template, tools and salt need {self.found} tokens with hardly a word"
        else:
            self.problem = f"no text found with {self._wanted} tokens: {self.found} is the nearest"
        return text

    def _shortest(self, least: int) -> str:
        """Within the first word, or all of it."""
        text, self.found = words(self._seed, 1), least
        tokens = self._ask(text[:1]) if least > self._wanted else None
        if tokens is None or tokens >= least:
            return text
        self.found = tokens
        return text[:1] if tokens >= self._wanted else self._last_characters(text[:1], text)

    def _longer(self, least: int) -> str:
        low, high, guess = self._bracket(_Point(1, least))
        if guess is not None:
            self.problem = f"{self._why}: a proportional estimate is used"
            return words(self._seed, guess)
        text, self.found = words(self._seed, low.words), low.tokens
        if high is not None and high.words == low.words + 1 and low.tokens < self._wanted:
            text = self._last_characters(text, words(self._seed, high.words))
        return text

    def _ask(self, text: str) -> Optional[int]:
        self.calls += 1
        return self._count(_message(text))

    def _bracket(self, first: _Point) -> Tuple[_Point, Optional[_Point], Optional[int]]:
        """(largest point not above N, smallest above it, None), or a guess where asking failed."""
        low: _Point = first
        high: Optional[_Point] = None
        missing = self._wanted - first.tokens
        number = 1 + (_SAMPLE_WORDS if missing > _LONG else missing)
        while low.tokens < self._wanted and self.calls < _WORD_CALLS:
            if high is not None and high.words - low.words == 1:
                break
            tokens = self._ask(words(self._seed, number))
            if tokens is None:
                self._why = f"/tokenize failed at call {self.calls}"
                return low, high, self._next(first, low, high)
            point = _Point(number, tokens)
            if _stuck(first, low, point):
                self._why = (
                    f"/tokenize counts {low.tokens} tokens at {low.words} of the words and "
                    f"{point.tokens} at {point.words}: it cuts off, or does not count the text"
                )
                return low, high, self._next(first, low, high)
            if tokens <= self._wanted:
                low = point
            else:
                high = point
            number = self._next(first, low, high)
        return low, high, None

    def _next(self, first: _Point, low: _Point, high: Optional[_Point]) -> int:
        """Where N is on the line through two points; inside the bracket."""
        end = high or low
        begin = low if high is not None else first
        rate = (end.tokens - begin.tokens) / max(1, end.words - begin.words) or 1.0
        number = low.words + max(1, int((self._wanted - low.tokens) / rate))
        return number if high is None else min(number, high.words - 1)

    def _last_characters(self, low: str, high: str) -> str:
        """Between two texts that differ by one word: the longest start of it that still fits."""
        begin, end = len(low), len(high)
        while end - begin > 1 and self.calls < _CALLS and self.found != self._wanted:
            middle = (begin + end) // 2
            tokens = self._ask(high[:middle])
            if tokens is None:
                break
            if tokens <= self._wanted:
                begin, self.found = middle, tokens
            else:
                end = middle
        return high[:begin]


class TokenizeCounter:
    """Counts a prompt's tokens over vLLM's POST /tokenize, which stands beside /v1, not in it.

    None where the server has no such thing, or does not answer as vLLM does. `problem` says why, or
    what a count leaves out: older versions know no tools there; some refuse them, some ignore them.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        headers: Dict[str, str],
        model: str,
        tools: Optional[List[Any]] = None,
        chat_template_kwargs: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.problem: Optional[str] = None
        self._endpoint = endpoint
        self._headers = dict(headers, Accept="application/json")
        self._path = endpoint.path[: -len("/v1/chat/completions")] + "/tokenize"
        self._fixed: Dict[str, Any] = {"model": model, "add_generation_prompt": True}
        extra = {"tools": tools, "chat_template_kwargs": chat_template_kwargs}
        self._extra = {key: value for key, value in extra.items() if value}
        self._left_out: List[str] = []
        self._compared = False

    def __call__(self, messages: List[Dict[str, Any]]) -> Optional[int]:
        found, refused = self._ask(messages, self._extra)
        while found is None and refused and self._extra:
            # a version that knows only some of the keys: the tools are the younger ones
            dropped = "tools" if "tools" in self._extra else "chat_template_kwargs"
            self._extra.pop(dropped)
            self._left_out.append(dropped)
            found, refused = self._ask(messages, self._extra)
        if found is None:
            return None
        if self._left_out:
            keys = " and ".join(self._left_out)
            self.problem = f"POST {self._path} takes no {keys}: not in the count"
        elif "tools" in self._extra and not self._compared:
            self._compared = True
            self._compare(messages, found)
        return found

    def _compare(self, messages: List[Dict[str, Any]], with_tools: int) -> None:
        """Unknown keys may be ignored: then the count is the same without the tools."""
        without = {key: value for key, value in self._extra.items() if key != "tools"}
        same = self._ask(messages, without)[0] == with_tools
        text = f"POST {self._path} counts the same without tools: not in the count"
        self.problem = text if same else None

    def _ask(
        self, messages: List[Dict[str, Any]], extra: Dict[str, Any]
    ) -> Tuple[Optional[int], bool]:
        """(the count or None, whether the request was refused as it is)."""
        body = dict(self._fixed, messages=messages, **extra)
        try:
            status, text = ask(self._endpoint, self._headers, "POST", "/tokenize", _TIMEOUT_S, body)
        except OSError as problem:
            self.problem = str(problem)
            return None, False
        if status != 200:
            self.problem = f"POST {self._path}: HTTP {status}"
            return None, status in (400, 422)
        try:
            count = server_http.parsed(text)["count"]
        except (ValueError, LookupError, TypeError) as problem:
            self.problem = f"POST {self._path}: {type(problem).__name__}: {problem}"
            return None, False
        if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= _MOST:
            return count, False
        shown = str(count) if count == 0 else "no number of tokens"
        self.problem = f"POST {self._path}: the count is {shown}"
        return None, False
