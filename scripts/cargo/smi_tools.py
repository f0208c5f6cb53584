"""The SMI tools: where each is, how it says who it is, and what it is asked, best form first.

A table and nothing else; `smi_choice` tries it on a host. Sources: the tools' own output and their
vendors' manuals; the field names of CoreX 3.x and 4.x differ, and one that is not known fails the
whole call.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Tuple

FIELDS = "{fields}"  # in a form's words: the query fields that this host's tool knows


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
    banner: str
    forms: Tuple[Form, ...]
    fields: Tuple[Tuple[str, ...], ...] = ()  # each with its other names, the first known one holds
    loop: str = ""  # the word that makes it go on by itself; "" where none is proven


_COREX = ("/usr/local/corex/lib64", "/usr/local/corex/lib")
_ASCEND = (
    "/usr/local/Ascend/driver/lib64",
    "/usr/local/Ascend/driver/lib64/common",
    "/usr/local/Ascend/driver/lib64/driver",
)
# board.power.draw is not among them: each die of a board shows the whole board's
POWER_FIELDS = ("power.draw", "gpu.power.draw")
_QUERY_FIELDS = (
    ("index",),
    ("uuid",),
    ("pci.bus_id", "gpu_bus_id"),
    ("utilization.gpu",),
    ("memory.used",),
    ("memory.total",),
    POWER_FIELDS,
    ("power.limit", "gpu.current.power.limit", "gpu.power.limit", "gpu.default.power.limit"),
    ("temperature.gpu",),
    ("clocks.current.sm", "clocks.sm"),
    ("clocks.current.memory", "clocks.mem"),
    ("name",),
    ("serial",),
)
_CSV = Form("csv", ("--query-gpu=" + FIELDS, "--format=csv,noheader,nounits"), "", "")
_XML = Form("xml", ("-q", "-x"), r"<gpu\b", r"<(?:\w+_)?power_draw>\s*\d")
_TABLE = Form("table", (), r"\d+\s*MiB\s*/\s*\d+\s*MiB", r"\d+\s*W\s*/\s*\d+\s*W?")
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
        r"IX-ML:|IX-SMI|<ixsmi_log|Iluvatar",
        (_CSV, _XML, _TABLE),
        _QUERY_FIELDS,
    ),
    Tool(
        "nvidia-smi",
        (Way("nvidia-smi"), Way("/usr/bin/nvidia-smi"), Way("/usr/lib/wsl/lib/nvidia-smi")),
        (),
        r"NVIDIA-SMI|<nvidia_smi_log",
        (_CSV, _XML, _TABLE),
        _QUERY_FIELDS,
        "--loop-ms=%d",
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


def whose(text: str) -> Optional[Tool]:
    """The tool that printed this; None for one that is not known, whatever its command's name."""
    return next((tool for tool in TOOLS if re.search(tool.banner, text)), None)
