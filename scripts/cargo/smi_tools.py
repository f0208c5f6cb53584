"""The SMI tools: where each is, how it says who it is, and what it is asked, best form first.

A table and two looks into it; `smi_choice` tries it on a host. Sources: the tools' own output and
their vendors' manuals; the field names of CoreX 3.x and 4.x differ, and one that is not known fails
the whole call.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Tuple

FIELDS = "{fields}"  # in a form's words: the query fields that this host's tool knows
HELP_OF_FIELDS = "--help-query-gpu"
Fields = Tuple[Tuple[str, ...], ...]  # each with its other names, the first known one holds


class Way(NamedTuple):
    """Where a program is; its libraries come after those that LD_LIBRARY_PATH names already."""

    program: str
    libraries: Tuple[str, ...] = ()


class Form(NamedTuple):
    name: str
    words: Tuple[str, ...]
    row: str  # what each accelerator shows; "" for CSV, whose rows are counted by their cells
    power: str  # a power draw that is known


class Tool(NamedTuple):
    name: str
    ways: Tuple[Way, ...]
    look: Tuple[str, ...]  # the words of the call that shows whose tool it is
    banner: str  # with its version, as it stands above everything else
    forms: Tuple[Form, ...]
    fields: Fields = ()
    loop: str = ""  # the word that makes it go on by itself; "" where none is proven
    named: str = ""  # what it says of itself elsewhere, in a list or an error
    two_dies: str = ""  # models of which it shows two accelerators and one power draw


_COREX = ("/usr/local/corex/lib64", "/usr/local/corex/lib")
_ASCEND = (
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/lib64/common",
    "/usr/local/Ascend/driver/lib64/driver",
)
# board.power.draw is not among them: each die of a board shows the whole board's
POWER_FIELDS = ("power.draw", "gpu.power.draw")
# most needed first; the first names are those of nvidia-smi and CoreX 3.x
_QUERY_FIELDS: Fields = (
    ("index",),
    ("uuid",),
    POWER_FIELDS,
    ("utilization.gpu",),
    ("memory.used",),
    ("memory.total",),
    ("name",),
    ("serial",),
    ("power.limit", "gpu.current.power.limit", "gpu.power.limit", "gpu.default.power.limit"),
    ("pci.bus_id", "gpu_bus_id"),
    ("temperature.gpu",),
    ("clocks.current.sm", "clocks.sm"),
    ("clocks.current.memory", "clocks.mem"),
)
# known to each version of both; with the power draw they are a capture worth having
ESSENTIAL_FIELDS = ("index", "uuid", "utilization.gpu", "memory.used", "memory.total", "name")
_COREX_4 = re.compile(r"IX-ML:\s*(?:[4-9]|\d\d)\.")
NEWER = "gpu."  # how its power fields begin
_CSV = Form("csv", ("--query-gpu=" + FIELDS, "--format=csv,noheader,nounits"), "", "")
_XML = Form("xml", ("-q", "-x"), r"<gpu\b", r"<(?:\w+_)?power_draw>\s*\d")
_TABLE = Form("table", (), r"\d+\s*MiB\s*/\s*\d+\s*MiB", r"\d+\s*W\s*/\s*\d+\s*W?")
_ROCM_SERIAL = "--showserial"  # of the board, the same on both dies; not every rocm-smi has it
_ROCM_SHOWS = (
    "--showuniqueid",
    "--showbus",
    "--showproductname",
    "--showuse",
    "--showmemuse",
    "--showmeminfo",
    "vram",
    "--showpower",
    "--showmaxpower",
    "--showtemp",
    "--showclocks",
    "--json",
)
_ROCM_POWER = r'Power \(W\)": "\d'
_AMD_SHOWS = ("--usage", "--power", "--clock", "--temperature", "--mem-usage")
_AMD_CSV = (r"(?m)^(?:\d+,)?\d+,.*\d", r"(?s)socket_power.*\n.*\d")

TOOLS = (
    Tool(
        "ixsmi",
        (Way("ixsmi", _COREX), Way("/usr/local/corex/bin/ixsmi", _COREX)),
        (),
        r"IX-ML:\s*\d|IX-SMI:?\s*\d|<ixsmi_log",
        (_CSV, _XML, _TABLE),
        _QUERY_FIELDS,
        named=r"\bIX-ML\b|\bIX-SMI\b|\bIluvatar (?:BI|MR)",
        two_dies=r"(?i)\bDUO\b|\bBI-V150",
    ),
    Tool(
        "nvidia-smi",
        (Way("nvidia-smi"), Way("/usr/bin/nvidia-smi"), Way("/usr/lib/wsl/lib/nvidia-smi")),
        (),
        r"NVIDIA-SMI\s+\d|<nvidia_smi_log",
        (_CSV, _XML, _TABLE),
        _QUERY_FIELDS,
        "--loop-ms=%d",
        r"\bNVIDIA-SMI\b",
    ),
    Tool(
        "npu-smi",
        (Way("npu-smi", _ASCEND), Way("/usr/local/sbin/npu-smi", _ASCEND)),
        ("info",),
        r"npu-smi\s+v?\d",
        (Form("table", ("info",), r"(?m)^\|\s*\d+\s+.*\d+\s*/\s*\d+", r"\|\s*\d+\.\d+\s+\d+\s"),),
    ),
    Tool(
        "rocm-smi",
        (Way("rocm-smi"), Way("/opt/rocm/bin/rocm-smi")),
        (),
        r"=+ (?:ROCm )?System Management Interface =+",  # MetaX puts its name in there
        (
            Form("json", (_ROCM_SERIAL, *_ROCM_SHOWS), r'"card\d+"', _ROCM_POWER),
            Form("json", _ROCM_SHOWS, r'"card\d+"', _ROCM_POWER),
            Form("json", ("-a", "--json"), r'"card\d+"', _ROCM_POWER),
            Form("table", (), r"(?m)^\d+\s.*\d%", r"\d+(?:\.\d+)?W"),
        ),
    ),
    Tool(
        "amd-smi",
        (Way("amd-smi"), Way("/opt/rocm/bin/amd-smi")),
        ("version",),
        r"AMD-?SMI",
        (
            Form("csv", ("metric", *_AMD_SHOWS, "--csv"), *_AMD_CSV),
            Form("csv", ("metric", "--csv"), *_AMD_CSV),
        ),
    ),
)
BY_NAME = {tool.name: tool for tool in TOOLS}


_PROCESSES = re.compile(r"(?m)^\W*Process(?:es)?\b")  # below it, names that users gave


def whose(text: str) -> Optional[Tool]:
    """The tool that printed this; None for one that is not known, whatever its command's name.

    The first banner with a version tells; only without any, a name on its own."""
    text = _PROCESSES.split(text)[0]
    for looks in ([tool.banner for tool in TOOLS], [tool.named for tool in TOOLS]):
        seen = [(re.search(look, text), tool) for look, tool in zip(looks, TOOLS) if look]
        found = [(match.start(), tool) for match, tool in seen if match]
        if found:
            return min(found, key=lambda x: x[0])[1]
    return None


def fields_of(tool: Tool, banner: str) -> Fields:
    """Its query fields, of each that name first which the version in the banner should know."""
    return newer_first(tool.fields) if _COREX_4.search(banner) else tool.fields


def newer_first(fields: Fields) -> Fields:
    """With the names of CoreX 4.x before those of 3.x."""
    return tuple(tuple(sorted(x, key=lambda n: not n.startswith(NEWER))) for x in fields)
