"""Which tool a host has and how it is called: fake tools that print what the real ones print."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from cargo import smi_choice, smi_tools
from cargo.smi_choice import Choice, Chooser

# One tool's behaviour as a table: for words that match a pattern, what it prints and its exit code.
FAKE = """#!{python} -S
import os, re, sys, time
words = " ".join(sys.argv[1:])
with open({log!r}, "a") as f:
    f.write(words + "\\n")
if {needs!r} not in os.environ.get("LD_LIBRARY_PATH", ""):
    sys.exit("error while loading shared libraries: libixml.so: cannot open shared object file")
time.sleep({seconds})
query = re.match("--query-gpu=(\\\\S+) --format=csv,noheader,nounits$", words)
known = {fields!r}
if query and known:
    wanted = query[1].split(",")
    for name in wanted:
        if name not in known:
            print('Field "%s" is not a valid field to query.' % name)
            sys.exit(2)
    for i in range({gpus}):
        print(", ".join(known[name][i] for name in wanted))
    sys.stdout.write({also!r})
    sys.exit({code})
for pattern, text, code in {answers!r}:
    if re.match(pattern, words):
        print(text)
        sys.exit(code)
print("Invalid combination of input arguments. Please run '-h' for help.")
sys.exit(2)
"""
COREX_TABLE = """|  IX-ML: 4.4.0            Driver Version: 4.4.0          CUDA Version: 10.2     |
| 0    Iluvatar MR-V100            | 00000000:35:00.0     | 500MHz    1600MHz    |
| N/A  37C   P0       40W / 150W   | 68MiB / 32768MiB     | 0%        Default    |"""
COREX_3_TABLE = COREX_TABLE.replace("IX-ML: 4.4.0", "IX-ML: 3.2.1")
NVIDIA_TABLE = """| NVIDIA-SMI 550.54     Driver Version: 550.54     CUDA Version: 12.4     |
|   0  NVIDIA A100 | 00000000:07:00.0 Off | 0 |
| N/A   30C    P0    55W / 400W |      0MiB / 40960MiB |      0%      Default |"""
XML = "<{0}><gpu id='0'><power_readings><gpu_power_draw>13 W</gpu_power_draw></power_readings></gpu></{0}>"
BASE = {
    "index": ["0", "1"],
    "uuid": ["GPU-a", "GPU-b"],
    "pci.bus_id": ["00000000:26:00.0", "00000000:27:00.0"],
    "utilization.gpu": ["0", "29"],
    "memory.used": ["68", "257"],
    "memory.total": ["32768", "32768"],
    "temperature.gpu": ["33", "35"],
    "clocks.current.sm": ["1500", "1500"],
    "clocks.current.memory": ["1600", "1600"],
    "name": ["Iluvatar MR-V100"] * 2,
    "serial": ["2426A", "2426B"],
}
COREX_3 = {**BASE, "power.draw": ["50", "51"], "power.limit": ["250", "250"]}
COREX_4 = {**BASE, "gpu.power.draw": ["50", "51"], "gpu.current.power.limit": ["150", "150"]}
DUO = {**COREX_4, "serial": ["2426A", "2426A"]}
FAILED = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)


class Host:
    """A folder that is the whole PATH, and what its tools were asked."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.log = folder / "calls"

    def tool(self, name: str, answers: list[Any] | None = None, **told: Any) -> Path:
        facts: dict[str, Any] = {"needs": "", "seconds": 0, "fields": {}, "gpus": 2, "also": ""}
        facts.update(code=0, answers=answers or [], log=str(self.log), python=sys.executable)
        facts.update(told)
        path = self.bin / name
        path.write_text(FAKE.format(**facts))
        path.chmod(0o755)
        return path

    def chooser(
        self,
        asked: str = "auto",
        *command: str,
        interval_s: float = 60.0,
        call_s: float | None = None,
    ) -> Chooser:
        env = {**os.environ, "PATH": str(self.bin)}
        env.pop("LD_LIBRARY_PATH", None)
        return Chooser(asked, list(command), env, interval_s, call_s)

    def choose(self, asked: str = "auto", *command: str) -> Choice:
        return self.chooser(asked, *command).choose()

    def calls(self) -> list[str]:
        return self.log.read_text().splitlines()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Without what the machine of this test may have itself at the absolute places."""
    tools = tuple(
        tool._replace(ways=tuple(w for w in tool.ways if not w.program.startswith("/")))
        for tool in smi_tools.TOOLS
    )
    monkeypatch.setattr(smi_tools, "TOOLS", tools)
    monkeypatch.setattr(smi_tools, "BY_NAME", {tool.name: tool for tool in tools})
    return Host(tmp_path)


def test_a_host_without_a_tool_says_what_was_tried(host: Host) -> None:
    choice = host.choose()
    assert (choice.tool, choice.asked, choice.argv) == ("none", "auto", [])
    names = ("ixsmi", "nvidia-smi", "npu-smi", "rocm-smi", "amd-smi")
    assert choice.tried == [f"{name}: not found" for name in names]


@pytest.mark.parametrize(("table", "fields"), [(COREX_3_TABLE, COREX_3), (COREX_TABLE, COREX_4)])
def test_csv_with_all_usual_fields_needs_one_call(
    host: Host, table: str, fields: dict[str, list[str]]
) -> None:
    """Those of the version in the banner."""
    path = host.tool("ixsmi", [("$", table, 0)], fields=fields)
    choice = host.choose()
    assert (choice.tool, choice.form) == ("ixsmi", "csv")
    chosen, interval = choice.tried
    assert "csv, since it shows the power draw; 2 calls" in chosen and "at most 60 s" in chosen
    assert interval.startswith("interval: 60 s, as wanted; a call takes 0.")
    assert set(choice.fields) == set(fields)
    assert choice.argv[0] == str(path)
    assert choice.argv[1:] == [
        "--query-gpu=" + ",".join(choice.fields),
        "--format=csv,noheader,nounits",
    ]
    assert len(host.calls()) == 2 + smi_choice.COST_CALLS  # its banner, all fields, what it costs
    assert len(choice.cost_s) == smi_choice.COST_CALLS and min(choice.cost_s) > 0


def fields_asked(host: Host) -> list[list[str]]:
    asked = [c.split()[0].partition("=")[2] for c in host.calls() if c.startswith("--query")]
    return [fields.split(",") for fields in asked]


NVIDIA_HELP = """List of valid properties to query for the switch "--query-gpu":
"{0}"
The {0} of it, see also
power.draw below.
"""
HELPS = ["{0}", '"{0}"', "  {0}", "{0}    what it is", '"{0}" or "gpu_x"', NVIDIA_HELP]


@pytest.mark.parametrize("entry", HELPS)
def test_where_a_field_is_not_known_the_help_tells_which_are(host: Host, entry: str) -> None:
    known = {k: v for k, v in COREX_4.items() if k not in ("serial", "clocks.current.sm")}
    text = "\n".join(entry.format(name) for name in [*known, "board.power.draw"])
    answers = [("$", COREX_3_TABLE, 0), ("--help-query-gpu$", text, 0)]
    host.tool("ixsmi", answers, fields=known)
    choice = host.choose()
    assert choice.form == "csv" and set(choice.fields) == set(known)
    assert len(host.calls()) == 4 + smi_choice.COST_CALLS, "banner, usual fields, help, its fields"
    assert 'Field "power.draw" is not a valid field' in choice.tried[0]


def test_a_field_that_the_help_lists_may_be_refused_all_the_same(host: Host) -> None:
    known = {k: v for k, v in COREX_4.items() if k != "serial"}
    answers = [("$", COREX_3_TABLE, 0), ("--help-query-gpu$", "\n".join(COREX_4), 0)]
    host.tool("ixsmi", answers, fields=known)
    assert set(host.choose().fields) == set(known)
    assert len(host.calls()) == 5 + smi_choice.COST_CALLS


def test_without_such_a_help_power_comes_first_and_then_a_field_a_call(host: Host) -> None:
    known = {k: v for k, v in COREX_4.items() if k not in ("serial", "clocks.current.sm")}
    host.tool("ixsmi", [("$", COREX_3_TABLE, 0)], fields=known)
    choice = host.choose()
    assert choice.form == "csv" and set(choice.fields) == set(known)
    usual, first, *more = fields_asked(host)
    assert "power.draw" in usual and {"index", "uuid", "memory.used", "gpu.power.draw"} <= set(
        first
    )
    assert all(len(set(b) - set(first)) >= 1 for b in more)
    assert "power.limit" not in [name for fields in more for name in fields], "another version's"
    told = " ".join(choice.tried)
    for name in ("power.draw", "serial", "clocks.current.sm"):
        assert f'Field "{name}" is not a valid field' in told


def test_a_tool_without_such_a_query_is_not_asked_for_each_field(host: Host) -> None:
    host.tool("ixsmi", [("$", COREX_3_TABLE, 0)])
    choice = host.choose()
    assert choice.form == "table" and len(fields_asked(host)) <= 8


def test_a_slow_tool_is_asked_for_power_before_the_time_is_over(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of a twelfth of the budget, as 5 s are of a minute, and names of another version."""
    monkeypatch.setattr(smi_choice, "BUDGET_S", 6.0)
    monkeypatch.setattr(smi_choice, "OPTIONAL_S", 3.0)
    monkeypatch.setattr(smi_choice, "COST_S", 0.2)
    known = {k: v for k, v in COREX_4.items() if k not in ("serial", "pci.bus_id")}
    host.tool("ixsmi", [("$", COREX_3_TABLE, 0)], fields=known, seconds=0.4)
    choice = host.chooser().choose()
    assert choice.form == "csv" and {"uuid", "gpu.power.draw", "name"} <= set(choice.fields)
    assert len(choice.cost_s) == 1, "one that takes so long is measured once"
    assert any("no time left to ask for" in words for words in choice.tried)
    assert any("of at most 6 s" in words for words in choice.tried)


def test_the_csv_leaves_the_time_for_what_comes_if_it_fails(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smi_choice, "BUDGET_S", 3.0)
    xml = ("-q -x$", XML.format("ixsmi_log"), 0)
    host.tool("ixsmi", [("$", COREX_3_TABLE, 0), xml], fields={"index": ["0"]}, seconds=0.4)
    choice = host.chooser().choose()
    assert choice.form == "xml" and choice.cost_s


@pytest.mark.parametrize("fields", [BASE, {**BASE, "power.draw": ["[N/A]", "N/A"]}])
def test_without_power_in_the_csv_it_is_xml_then_the_table_then_the_csv(
    host: Host, fields: dict[str, list[str]]
) -> None:
    table, xml = ("$", COREX_TABLE, 0), ("-q -x$", XML.format("ixsmi_log"), 0)
    host.tool("ixsmi", [table, xml], fields=fields)
    assert host.choose().form == "xml"
    host.tool("ixsmi", [table], fields=fields)
    choice = host.choose()
    assert choice.form == "table" and choice.argv[1:] == [] and choice.fields == []
    host.tool("ixsmi", [("$", re.sub(r"\d+W", "N/A", COREX_TABLE), 0)], fields=fields)
    choice = host.choose()
    assert choice.form == "csv" and set(choice.fields) == set(fields)


def test_two_dies_of_a_board_are_read_from_xml(host: Host) -> None:
    table, xml = ("$", COREX_TABLE, 0), ("-q -x$", XML.format("ixsmi_log"), 0)
    host.tool("ixsmi", [table, xml], fields=DUO)
    assert host.choose().form == "xml"
    one_shows = {**COREX_4, "gpu.power.draw": ["N/A", "40"], "name": ["MR-V100 DUO"] * 2}
    host.tool("ixsmi", [table, xml], fields=one_shows)
    choice = host.choose()
    assert choice.form == "xml" and "only one shows a draw" in choice.tried[0]
    host.tool("ixsmi", [table, xml], fields={**one_shows, "name": ["MR-V100", "MR-V100 DUO"]})
    assert host.choose().form == "csv", "a card of another kind, not another die"
    for other in (table, ("$", "|  IX-ML: 4.4.0 |", 0)):
        host.tool("ixsmi", [other], fields=DUO)
        choice = host.choose()
        assert choice.form == "csv", "nothing better is there: the table has no serial numbers"
        assert "no form tells the draw of a die" in choice.tried[-2]


@pytest.mark.parametrize(
    ("name", "table", "told"),
    [
        ("nvidia-smi", NVIDIA_TABLE, {"serial": ["[Not Supported]"] * 2}),
        ("nvidia-smi", NVIDIA_TABLE, {"power.draw": ["100.00", "[Unknown Error]"]}),
        ("nvidia-smi", NVIDIA_TABLE, {"serial": ["0324818046321"] * 2}),
        ("ixsmi", COREX_3_TABLE, {"serial": ["N/A"] * 2}),
        ("ixsmi", COREX_3_TABLE, {"serial": ["Unknown Error"] * 2}),
        ("ixsmi", COREX_3_TABLE, {"serial": ["0000000000"] * 2}),
        ("ixsmi", COREX_3_TABLE, {"power.draw": ["50", "N/A"]}),
    ],
)
def test_cards_that_share_nothing_keep_their_csv(
    host: Host, name: str, table: str, told: dict[str, list[str]]
) -> None:
    xml = ("-q -x$", XML.format("nvidia_smi_log"), 0)
    host.tool(name, [("$", table, 0), xml], fields={**COREX_3, **told})
    choice = host.choose(name)
    assert choice.form == "csv" and "it shows the power draw" in choice.tried[-2]


def test_a_lost_card_does_not_hide_the_others(host: Host) -> None:
    lost = "Unable to determine the device handle for GPU0000:02:00.0: Unknown Error\n"
    host.tool("nvidia-smi", [("$", NVIDIA_TABLE, 15)], fields=COREX_3, also=lost, code=15)
    choice = host.choose()
    assert (choice.tool, choice.form) == ("nvidia-smi", "csv")


def test_tools_that_share_a_name_are_told_apart_by_what_they_print(host: Host) -> None:
    host.tool("nvidia-smi", [("$", COREX_3_TABLE, 0)], fields=COREX_3)
    choice = host.choose()
    assert choice.tool == "ixsmi" and choice.argv[0].endswith("/nvidia-smi")
    host.tool("nvidia-smi", [("$", "MX-SMI 2.2.9   Kernel Mode Driver Version: 3.4.4", 0)])
    choice = host.choose()
    assert choice.tool == "none"
    assert any("nvidia-smi: the output of no known tool: MX-SMI" in x for x in choice.tried)


LISTED = "|    0   N/A  N/A   1234    C   {}   36000MiB |"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (NVIDIA_TABLE + "\n" + LISTED.format("/root/Iluvatar-port/bin/python"), "nvidia-smi"),
        (NVIDIA_TABLE + "\n" + LISTED.format("run IX-ML: 4.4.0"), "nvidia-smi"),
        ("/opt/IX-ML/start: ready\n" + NVIDIA_TABLE, "nvidia-smi"),
        (COREX_TABLE + "\n" + LISTED.format("/opt/NVIDIA-SMI 5/x"), "ixsmi"),
        ("| MX-SMI 2.2.9 |\n| Process: |\n" + LISTED.format("NVIDIA-SMI 535"), None),
        ("GPU 0: Iluvatar MR100 (UUID: GPU-5)", "ixsmi"),
        (FAILED, "nvidia-smi"),
        ("GPU 0: NVIDIA A100 /home/Iluvatar-port", None),
    ],
)
def test_whose_output_it_is_is_said_by_its_banner_not_by_its_processes(
    text: str, name: str | None
) -> None:
    tool = smi_tools.whose(text)
    assert (tool.name if tool else None) == name


def test_a_named_tool_is_no_other(host: Host) -> None:
    host.tool("ixsmi", [("$", NVIDIA_TABLE, 0)], fields=COREX_3)
    choice = host.choose("ixsmi")
    assert choice.tool == "ixsmi" and choice.form is None and not choice.cost_s
    assert choice.tried[-1].endswith("this is the output of nvidia-smi")
    assert choice.argv == [str(host.bin / "ixsmi")], "its words are kept all the same"


def test_a_driver_that_does_not_answer(host: Host) -> None:
    host.tool("nvidia-smi", [("", FAILED, 9)])
    choice = host.choose()
    assert choice.tool == "none"
    assert len(host.calls()) <= 5, "its fields are not asked for one by one"
    assert any(f"exit code 9: {FAILED[:60]}" in words for words in choice.tried)


def test_the_libraries_of_the_vendor_come_after_the_users(host: Host) -> None:
    answers = [("$", COREX_3_TABLE, 0)]
    host.tool("ixsmi", answers, fields=COREX_3, needs="/usr/local/corex/lib64")
    choice = host.choose()
    assert choice.tool == "ixsmi" and choice.libraries[0] == "/usr/local/corex/lib64"
    env = choice.env({"LD_LIBRARY_PATH": "/mine:/usr/local/corex/lib", "A": "b"})
    assert env == {
        "LD_LIBRARY_PATH": "/mine:/usr/local/corex/lib:/usr/local/corex/lib64",
        "A": "b",
    }


def test_a_place_that_is_not_on_the_path(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    away = host.tool("elsewhere", [("$", COREX_3_TABLE, 0)], fields=COREX_3)
    way = smi_tools.Way(str(away.rename(host.bin.parent / "ixsmi")), ("/usr/local/corex/lib64",))
    known = smi_tools.BY_NAME["ixsmi"]
    tool = known._replace(ways=(*known.ways, way))
    monkeypatch.setattr(smi_tools, "TOOLS", (tool,))
    choice = host.choose()
    assert choice.argv[0] == way.program and choice.tried[0] == "ixsmi: not found"


def test_where_the_vendors_put_them() -> None:
    ways = {way.program: way for tool in smi_tools.TOOLS for way in tool.ways}
    corex = ways["/usr/local/corex/bin/ixsmi"]
    assert corex.libraries == ("/usr/local/corex/lib64", "/usr/local/corex/lib")


def test_a_tool_that_hangs_is_not_waited_for_again(host: Host) -> None:
    host.tool("ixsmi", seconds=60)
    choice = host.chooser(call_s=0.3).choose()
    assert choice.tool == "none" and "no answer within 0.3 s" in choice.tried[0]
    assert not host.log.exists() or len(host.calls()) == 1
    named = host.chooser("ixsmi", call_s=0.3).choose()
    assert named.tool == "ixsmi" and named.argv, "a tool that was named is tried at each tick"


def test_the_time_for_all_of_it_is_limited(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi_choice, "BUDGET_S", 0.0)
    host.tool("ixsmi", [("$", COREX_3_TABLE, 0)], fields=COREX_3)
    choice = host.choose()
    assert choice.tool == "none" and "the 0 s for it are over" in choice.tried[0]
    assert not host.log.exists()


def test_the_interval_is_three_times_what_a_call_takes(host: Host) -> None:
    host.tool("ixsmi", [("$", COREX_3_TABLE, 0)], fields=COREX_3, seconds=0.1)
    choice = host.chooser(interval_s=0.05).choose()
    assert choice.wanted_interval_s == 0.05 and min(choice.cost_s) >= 0.1
    assert choice.interval_s == pytest.approx(3 * min(choice.cost_s), abs=0.001)
    assert host.chooser(interval_s=300.0).choose().interval_s == 300.0


def test_a_command_that_says_what_is_asked_is_called_as_it_is(host: Host) -> None:
    path = host.tool("mine", [("$", COREX_3_TABLE, 0)], fields=COREX_3)
    words = [str(path), "--query-gpu=index,power.draw", "--format=csv,noheader,nounits"]
    choice = host.choose("ixsmi", *words)
    assert choice.argv == words and choice.cost_s and set(host.calls()) == {" ".join(words[1:])}
    assert host.choose("ixsmi", str(path)).fields[0] == "index", "one that does not is completed"


NPU = """| npu-smi 25.5.1                                   Version: 25.5.1                        |
| 0       910B1     | OK              | 99.3        50                0    / 0             |
| 0                 | 0000:C1:00.0    | 0           0    / 0          3453 / 65536         |"""
ROCM_BANNER = "======= ROCm System Management Interface =======\n0  0x738c  53.0C  34.0W  0%  auto"
ROCM = '{"card0": {"Average Graphics Package Power (W)": "34.0", "GPU use (%)": "0"}}'
AMD = "gpu,gfx_activity,socket_power\n0,0,288\n1,95,290"


@pytest.mark.parametrize(
    ("name", "answers", "form"),
    [
        ("npu-smi", [("info$", NPU, 0)], "table"),
        (
            "rocm-smi",
            [("$", ROCM_BANNER, 0), ("--showserial .*--showpower.*--json$", ROCM, 0)],
            "json",
        ),
        ("rocm-smi", [("$", ROCM_BANNER, 0), ("--showuniqueid .*--json$", ROCM, 0)], "json"),
        ("rocm-smi", [("$", ROCM_BANNER, 0), ("-a --json$", ROCM, 0)], "json"),
        ("rocm-smi", [("$", ROCM_BANNER, 0)], "table"),
        ("amd-smi", [("version$", "AMDSMI Tool: 24.5", 0), ("metric .*--csv$", AMD, 0)], "csv"),
    ],
)
def test_the_other_vendors(host: Host, name: str, answers: list[Any], form: str) -> None:
    host.tool(name, answers)
    for asked in ("auto", name):
        choice = host.choose(asked)
        assert (choice.tool, choice.form) == (name, form), choice.tried
