"""The public evaluator's rows of one submission (<name>_requests.tsv) -> a run record.

In:  the TSV, one line a request, and beside it, if there, the evaluator's own account
(<name>_replay_metrics.json). Out: the record, its `evaluator` part holding what only that account
says. A line whose cells contradict each other is a RawShapeError that names it: a row that is
silently dropped or misread would be a wrong count.

The rows hold no TTFT and no cached tokens unless columns ttft_ms and cached_tokens are there.
Figures of both then come from the account, and are marked so wherever they are shown.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cargo import record as run_record
from decodelab import telemetry
from decodelab.raw_shape import RawShapeError

COLUMNS = (
    "end_time",
    "request",
    "http_status",
    "error_class",
    "total_ms",
    "finish_reason",
    "completion_tokens",
    "prompt_tokens",
    "printed_tps",
    "success",
)
_TELLING = {"request", "error_class", "total_ms", "printed_tps", "success"}
_WHOLE = re.compile(r"[0-9]{1,15}")
_DECIMAL = re.compile(r"[0-9]{1,15}(\.[0-9]+)?")
_THOUSANDS = re.compile(r"[0-9]{1,3}\.[0-9]{3}")  # 5.000 may be five thousand
_EMPTY = ("", "None")
_PRINTED_BY = 0.051  # tok/s: the evaluator prints one digit
_GONE = 3  # failures to connect in a row, up to the end, after which a server counts as gone
_GATEWAY = (502, 503, 504)
_MOST = 1_000_000  # requests of a submission: an account that counts more is not one
_CLASSES = (
    (re.compile(r"connect(ion)?(_?(error|refused|failed))?"), "connection"),
    (re.compile(r"http_[45]\d\d"), "http_error"),
    (re.compile(r".*time_?out.*"), "timeout"),
    (re.compile(r".*abort.*"), "aborted"),
    (re.compile(r"unfinished|.*truncat.*|incomplete.*"), "truncated"),
)
_OTHER_CLASS = "stream_error"
_COUNTS = ("total_requests", "attempted_requests", "not_started_requests")
_UNCHANGED = "the evaluator's account is copied whole and unchanged; this one is not."
_FORM = {"end_time": "a time like 2026-01-31 12:00:00,123", "success": "0 or 1"}


@dataclass
class _Line:
    path: Path
    number: int  # 1-based, as an editor shows it
    cells: Mapping[str, str]

    def wrong(self, looked_for: str, found: str) -> RawShapeError:
        where = f"line {self.number}: {found}"
        hint = "the evaluator's rows are copied whole and unchanged; this line is not."
        return RawShapeError(self.path, looked_for, where, hint)

    def text(self, name: str) -> str | None:
        cell = self.cells.get(name, "").strip()
        return None if cell in _EMPTY else cell

    def figure(self, name: str, pattern: re.Pattern[str]) -> str | None:
        cell = self.text(name)
        if cell is not None and not pattern.fullmatch(cell):
            raise self.wrong(f"a number in {name}", repr(cell))
        return cell

    def whole(self, name: str) -> int | None:
        cell = self.figure(name, _WHOLE)
        return None if cell is None else int(cell)

    def decimal(self, name: str) -> float | None:
        cell = self.figure(name, _DECIMAL)
        return None if cell is None else float(cell)


def recognised(path: Path) -> bool:
    """Whether a file is the evaluator's, by the head of its columns."""
    if path.suffix.lower() != ".tsv":
        return False
    with path.open(encoding="utf-8-sig", errors="replace") as handle:
        return set(handle.readline().rstrip("\r\n").split("\t")) >= _TELLING


def account_file(path: Path) -> Path:
    """Where the evaluator's own account of these rows lies."""
    return path.with_name(f"{path.stem.removesuffix('_requests')}_replay_metrics.json")


def read(path: Path) -> dict[str, Any]:
    """The run record. Raises RawShapeError, with the line's number where a line is wrong."""
    lines = _lines(path)
    account = read_account(account_file(path))
    metrics = (account or {}).get("metrics") or {}
    requests = [_request(line) for line in lines]
    _check_order(lines)
    _check_numbers(lines, metrics)
    requests += _not_started(requests, metrics)
    zero = min(r["t_start_s"] or r["t_end_s"] for r in requests if r["t_end_s"] is not None)
    for request in requests:
        for name in ("t_start_s", "t_first_s", "t_end_s"):
            request[name] = None if request[name] is None else request[name] - zero
        _derive(request)
    return {
        "schema": run_record.SCHEMA,
        "source": "imported",
        "provenance": f"imported from the evaluator's rows {path.name}",
        "run": {
            **dict.fromkeys(run_record.RUN_FIELDS),
            "requests": metrics.get("total_requests") or len(requests),
        },
        "client": None,
        "clock": {"t0_monotonic_s": None, "t0_wall": datetime.fromtimestamp(zero, UTC).isoformat()},
        "requests": requests,
        "summary": run_record.summarise(requests),
        "evaluator": {
            "rows": path.name,
            "account": account_file(path).name if account else None,
            "statuses": _counts(lines, "http_status"),
            "classes": _counts(lines, "error_class"),
            "server_gone_after": _gone_after(requests),
            "metrics": metrics,
            "score": (account or {}).get("score"),
        },
    }


def read_account(path: Path) -> dict[str, Any] | None:
    """The evaluator's metrics file; None if there is none."""
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise RawShapeError(path, "the evaluator's metrics in JSON", str(error)) from error
    if not isinstance(data, dict) or not isinstance(data.get("metrics"), dict):
        raise RawShapeError(path, "an object with the key metrics", type(data).__name__)
    _check_counts(path, data["metrics"])
    return data


def _check_counts(path: Path, metrics: Mapping[str, Any]) -> None:
    """What is counted with must be counts, and no more requests unsent than there were in all."""
    found = {name: metrics.get(name) for name in _COUNTS}
    for name, value in found.items():
        count = telemetry.number(value)
        if value is not None and not (
            count is not None and count.is_integer() and 0 <= count <= _MOST
        ):
            raise RawShapeError(path, f"a number of requests in {name}", repr(value), _UNCHANGED)
    total, sent, unsent = (found[name] or 0 for name in _COUNTS)
    if total and sent + unsent > total:
        told = f"{sent} attempted and {unsent} not started"
        raise RawShapeError(path, f"{total} requests in all", told, _UNCHANGED)


def _lines(path: Path) -> list[_Line]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise RawShapeError(path, "a text file in UTF-8", str(error)) from error
    raw = text.replace("\r\n", "\n").split("\n")
    head = raw[0].split("\t")
    lost = [name for name in COLUMNS if name not in head]
    twice = sorted(name for name, n in Counter(head).items() if n > 1)
    if lost or twice:
        found = f"line 1: missing {', '.join(lost) or '-'}; twice {', '.join(twice) or '-'}"
        raise RawShapeError(path, f"the columns {', '.join(COLUMNS)}", found)
    if raw[-1] == "":
        raw.pop()
    elif not account_file(path).is_file():
        where = f"line {len(raw)}: no end of line"
        raise RawShapeError(path, "a last line that is whole", where, "copy the file again, whole.")
    lines = []
    for number, row in enumerate(raw[1:], start=2):
        cells = row.split("\t")
        line = _Line(path, number, dict(zip(head, cells, strict=False)))
        if len(cells) != len(head):
            raise line.wrong(f"{len(head)} cells, as in line 1", f"{len(cells)} cells")
        lines.append(line)
    if not lines:
        raise RawShapeError(path, "a line for each request", "none")
    return lines


def _request(line: _Line) -> dict[str, Any]:
    """One request with its absolute times; what the row contradicts itself in is refused."""
    end = _moment(line)
    total_ms = line.decimal("total_ms")
    request = run_record.blank_request(_number(line) - 1)
    request.update(
        {name: line.whole(name) for name in ("prompt_tokens", "completion_tokens", "cached_tokens")}
    )
    start = None if total_ms is None else end - total_ms / 1000.0
    if start is not None and start < 0:
        raise line.wrong("a total_ms that fits its end_time", f"{total_ms:g}")
    ttft_ms = line.decimal("ttft_ms")
    request.update(t_end_s=end, t_start_s=start, finish_reason=line.text("finish_reason"))
    # A row states its duration to 0.1 ms and its end to 1 ms: the stated one is the figure.
    request["e2e_s"] = None if total_ms is None else total_ms / 1000.0
    if ttft_ms is not None and start is not None and total_ms is not None:
        if ttft_ms > total_ms:
            raise line.wrong("ttft_ms up to total_ms", f"{ttft_ms:g} of {total_ms:g}")
        request["t_first_s"], request["n_first_delta"] = start + ttft_ms / 1000.0, 1
    status = line.whole("http_status")
    request["outcome"], request["error"] = _outcome(line, status, request)
    return request


def _outcome(
    line: _Line, status: int | None, request: Mapping[str, Any]
) -> tuple[str, dict[str, Any] | None]:
    success, kind = line.text("success"), line.text("error_class")
    if success not in ("0", "1"):
        raise line.wrong(_FORM["success"] + " in success", repr(success))
    if success == "0":
        return _failure(line, status, kind)
    if kind is not None or status is None or not 200 <= status < 400:
        found = f"success 1, http_status {status}, error_class {kind}"
        raise line.wrong("a success with a good status and no error_class", found)
    total_s, tokens = request["e2e_s"], request["completion_tokens"]
    if not total_s or tokens is None or request["prompt_tokens"] is None:
        needed = "total_ms, completion_tokens and prompt_tokens of a success"
        raise line.wrong(needed, f"{total_s} s, {tokens}, {request['prompt_tokens']}")
    if (request["cached_tokens"] or 0) > request["prompt_tokens"]:
        raise line.wrong("cached_tokens up to prompt_tokens", str(request["cached_tokens"]))
    printed = line.decimal("printed_tps")
    if printed is None and _THOUSANDS.fullmatch(line.text("total_ms") or ""):
        raise line.wrong("total_ms to 0.1 ms, or a printed_tps beside it", line.cells["total_ms"])
    if printed is not None and abs(printed - tokens / total_s) > _PRINTED_BY:
        found = f"printed_tps {printed:g}, but {tokens} tokens in {total_s:g} s"
        raise line.wrong("printed_tps = completion_tokens / total time", found)
    if request["finish_reason"] is None:
        return "truncated", {"kind": "unfinished", "status": status, "message": "no finish_reason"}
    if request["finish_reason"] == "abort":
        return "aborted", {"kind": "abort", "status": status, "message": None}
    return "ok", None


def _failure(
    line: _Line, status: int | None, kind: str | None
) -> tuple[str, dict[str, Any] | None]:
    if kind is None and (status is None or status < 400):
        raise line.wrong("an error_class of a failure", f"success 0, http_status {status}")
    if kind is None:
        kind = f"http_{status}"
    if kind.startswith("http_") and kind != f"http_{status}":
        raise line.wrong("one status", f"http_status {status}, error_class {kind}")
    outcome = next((out for form, out in _CLASSES if form.fullmatch(kind.lower())), _OTHER_CLASS)
    told = "http" if kind.startswith("http_") else kind  # the status stands beside it
    return outcome, {"kind": told, "status": status, "message": None}


def _moment(line: _Line) -> float:
    cell = line.text("end_time")
    try:
        return datetime.strptime(cell or "", "%Y-%m-%d %H:%M:%S,%f").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise line.wrong(_FORM["end_time"], repr(cell)) from None


def _number(line: _Line) -> int:
    cell = line.text("request") or ""
    found = re.fullmatch(r"r?0*([1-9][0-9]{0,8})", cell)
    if not found:
        raise line.wrong("a request's number like r0001", repr(cell))
    return int(found.group(1))


def _check_order(lines: list[_Line]) -> None:
    """The evaluator writes a row when a request ends, so that times never go back."""
    for before, line in itertools.pairwise(lines):
        if _moment(line) < _moment(before):
            raise line.wrong("an end_time not before the line above", repr(line.text("end_time")))


def _check_numbers(lines: list[_Line], metrics: Mapping[str, Any]) -> None:
    """Every request once, none lost: by their numbers, and by the account's count where there is one."""
    seen: dict[int, int] = {}
    for line in lines:
        number = _number(line)
        if number in seen:
            raise line.wrong(
                "each request once", f"request {number} again, as in line {seen[number]}"
            )
        seen[number] = line.number
    path, attempted = lines[0].path, metrics.get("attempted_requests")
    if attempted is not None and attempted != len(lines):
        told = f"{attempted} rows, as attempted_requests of {account_file(path).name} says"
        raise RawShapeError(path, told, f"{len(lines)} rows", "copy the file again, whole.")
    absent = sorted(set(range(1, max(seen) + 1)) - set(seen))
    if absent and attempted is None:
        some = ", ".join(map(str, absent[:8])) + (", …" if len(absent) > 8 else "")
        last = max(seen)
        raise RawShapeError(
            path, f"the requests 1 to {last}", f"no row of {some}", "copy it again, whole."
        )


def _not_started(
    requests: list[dict[str, Any]], metrics: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Requests that the account says were never sent; they have no row."""
    wanted = int(metrics.get("not_started_requests") or 0)
    taken = {request["index"] for request in requests}
    total = len(requests) + wanted
    free = [index for index in range(max(total, max(taken) + 1)) if index not in taken]
    return [run_record.blank_request(index) for index in free[:wanted]]


def _gone_after(requests: list[dict[str, Any]]) -> int | None:
    """The number of the last request before a server that never came back; None if it did not go."""
    sent = [request for request in requests if request["outcome"] != "not_started"]
    answered = [i for i, request in enumerate(sent) if not _unanswered(request)]
    if not answered:
        return None
    tail = [request["outcome"] for request in sent[answered[-1] + 1 :]]
    if tail.count("connection") < _GONE:
        return None
    return int(sent[answered[-1]]["index"])


def _unanswered(request: Mapping[str, Any]) -> bool:
    """By the server: what stands before it may say so with a status of its own."""
    status = (request["error"] or {}).get("status")
    return request["outcome"] == "connection" or status in _GATEWAY


def _derive(request: dict[str, Any]) -> None:
    """Figures from the spans that the row states (times of day are rounded more)."""
    e2e, start, first = request["e2e_s"], request["t_start_s"], request["t_first_s"]
    if e2e is None:
        return
    ttft = None if first is None or start is None else first - start
    counts = (request["prompt_tokens"], request["completion_tokens"], request["n_first_delta"])
    request.update(run_record.derive(0.0, ttft, None, e2e, *counts))


def _counts(lines: list[_Line], name: str) -> dict[str, int]:
    return dict(Counter(cell for line in lines if (cell := line.text(name)) is not None))
