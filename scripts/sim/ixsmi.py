"""A simulated `ixsmi` (BI-V100, CoreX 3.2) that shows the load of a running simulated server.

Takes ixsmi's options and a one-line state file that the server writes; prints ixsmi's table, `-L`
or `--query-gpu` CSV. It is sampled every 0.1 s beside a measurement, so it imports only what costs
no time and is best run as `python -S -E ixsmi.py`.
"""

import posix  # what os is made of: importing os would cost a fifth of a call
import sys
import time

VERSION = "3.2.3"
GPUS = 4
TOTAL_MIB = 32768
IDLE_MIB = 257
STALE_S = 5.0  # an older state is a dead server's
BUS = ("00000000:0C:00.0", "00000000:14:00.0", "00000000:8A:00.0", "00000000:92:00.0")
KNOWN = {
    "-i",
    "--id",
    "--state",
    "-L",
    "--list-gpus",
    "--query-gpu",
    "--format",
    "--help-query-gpu",
}
USAGE = "Invalid combination of input arguments. Please run 'ixsmi -h' for help."


# ---- the state file: "<pid> <monotonic s> <device busy share> <used MiB> <cards in use>" ----


def state_path(given: "str | None" = None) -> str:
    env = {name: posix.environ.get(name, b"").decode() for name in (b"SIM_STATE", b"TMPDIR")}
    default = "%s/decodelab-sim-%d.state" % (env[b"TMPDIR"] or "/tmp", posix.getuid())
    return given or env[b"SIM_STATE"] or default


def write_state(path: "str | None", busy: float, used_mib: int, cards: int) -> None:
    """Server side: replaces the state whole."""
    path = state_path(path)
    draft = "%s.%d" % (path, posix.getpid())
    with open(draft, "w") as f:
        f.write("%d %.3f %.4f %d %d\n" % (posix.getpid(), time.monotonic(), busy, used_mib, cards))
    posix.replace(draft, path)


def clear_state(path: "str | None") -> None:
    """Server side: takes the state away at the end, if it is this server's."""
    try:
        with open(state_path(path)) as f:
            mine = f.read().split(" ")[0] == str(posix.getpid())
        if mine:
            posix.unlink(state_path(path))
    except OSError:
        pass


def read_state(path: "str | None") -> tuple:
    """(pid, busy share, used MiB, cards in use); all zero without a live server."""
    try:
        with open(state_path(path)) as f:
            pid, t, busy, used, cards = f.read().split()
        fresh = abs(time.monotonic() - float(t)) < STALE_S
        if fresh and _alive(int(pid)):
            return int(pid), float(busy), int(used), int(cards)
    except (OSError, ValueError):
        pass
    return 0, 0.0, 0, 0


def _alive(pid: int) -> bool:
    try:
        posix.kill(pid, 0)
    except PermissionError:  # another user's
        return True
    except OSError:
        return False
    return True


# ---- what a card shows ----


def _noise(i: int, tick: int) -> tuple:
    """Two numbers in 0..1 that depend on the card and the time only (a small integer hash)."""
    h = (tick * 2654435761 + i * 40503 + 12345) % 4294967296
    h = (h ^ (h >> 15)) * 2246822519 % 4294967296
    h = (h ^ (h >> 13)) * 3266489917 % 4294967296
    h ^= h >> 16
    return (h & 0xFFFF) / 65536.0, (h >> 16) / 65536.0


def card(i: int, state: tuple, tick: int) -> dict:
    """Field values of card i. `tick` is the time in tenths of a second; in one, calls agree."""
    _, busy, used, in_use = state
    u, v = _noise(i, tick)
    loaded = i < in_use
    share = busy if loaded else 0.0
    spikes = 0.4 * share  # so often 100 %; in between so much that the mean is the share
    between = (share - spikes) / (1 - spikes)
    spread = (2 * v - 1) * min(between / 2, 1 - between)
    util = 100 if u < spikes else int(100 * (between + spread) + 0.5)
    memory = used + (78 if i == 0 else -26) if loaded else IDLE_MIB  # rank 0 holds a little more
    watts = (49 if v < 0.45 else 50 if v < 0.9 else 51) + (3 if share > 0.6 else 0)
    return {
        "index": str(i),
        "name": "Iluvatar BI-V100",
        "uuid": "GPU-5a1d0000-b100-5000-8000-00000000000%d" % i,
        "serial": "SIM000000000%d" % i,
        "pci.bus_id": BUS[i],
        "gpu_bus_id": BUS[i],
        "driver_version": VERSION,
        "cuda_version": "10.2",
        "memory.total": "%d MiB" % TOTAL_MIB,
        "memory.used": "%d MiB" % memory,
        "memory.free": "%d MiB" % (TOTAL_MIB - memory),
        "utilization.gpu": "%d %%" % util,
        "utilization.memory": "%d %%" % -(-100 * memory // TOTAL_MIB),  # occupancy, as ixsmi's is
        "temperature.gpu": "%d C" % (33 + i % 2 + (8 if loaded else 0)),
        "power.draw": "%d W" % watts,
        "power.limit": "250 W",
        "clocks.current.sm": "1500 MHz",
        "clocks.current.memory": "1200 MHz",
        "clocks.max.sm": "1500 MHz",
        "clocks.max.memory": "1200 MHz",
        "fan.speed": "0 %",
        "pstate": "P0",
        "compute_mode": "Default",
    }


# ---- output ----

RULE = "+-------------------------------+----------------------+----------------------+"
LINE = "+-----------------------------------------------------------------------------+"


def table(cards: list, pid: int, in_use: int) -> str:
    out = [
        time.strftime("Timestamp    %a %b %d %H:%M:%S %Y"),
        LINE,
        "|  IX-ML: %s       Driver Version: %s       CUDA Version: 10.2          |"
        % (VERSION, VERSION),
        "|-------------------------------+----------------------+----------------------|",
        "| GPU  Name                     | Bus-Id               | Clock-SM  Clock-Mem  |",
        "| Fan  Temp  Perf  Pwr:Usage/Cap|      Memory-Usage    | GPU-Util  Compute M. |",
        "|===============================+======================+======================|",
    ]
    for c in cards:
        v = {k: c[k].replace(" ", "") for k in c}
        memory = "%s / %s" % (v["memory.used"], v["memory.total"])
        power = "%s / %s" % (v["power.draw"], v["power.limit"])
        sm, mem = v["clocks.current.sm"], v["clocks.current.memory"]
        out.append(
            "| %-5s%-25s| %-21s| %-10s%-11s|" % (c["index"], c["name"], c["pci.bus_id"], sm, mem)
        )
        left = "%-5s%-6s%-6s%s" % (v["fan.speed"], v["temperature.gpu"], v["pstate"], power)
        out.append(
            "| %-30s| %-21s| %-10s%-11s|" % (left, memory, v["utilization.gpu"], c["compute_mode"])
        )
        out.append(RULE)
    out += [
        "",
        LINE,
        "| Processes:                                                       GPU Memory |",
        "|  GPU        PID      Process name                                Usage(MiB) |",
        "|=============================================================================|",
    ]
    for c in cards:
        if int(c["index"]) < in_use:
            used = c["memory.used"].split(" ")[0]
            out.append("|  %-11s%-9d%-44s%-11s|" % (c["index"], pid, "python3", used))
    if not in_use:
        out.append(
            "|  No running processes found                                                 |"
        )
    return "\n".join([*out, LINE])


def query(cards: list, fields: list, form: list) -> int:
    for name in fields:
        if name not in cards[0]:
            print('Field "%s" is not a valid field to query.' % name)
            return 2
    if form[:1] != ["csv"] or set(form[1:]) - {"noheader", "nounits"}:
        print(USAGE)
        return 2
    if "noheader" not in form:
        print(", ".join(fields))
    for c in cards:
        print(", ".join(_bare(c[f]) if "nounits" in form else c[f] for f in fields))
    return 0


def _bare(value: str) -> str:
    number, _, unit = value.partition(" ")
    return number if unit in ("MiB", "%", "C", "W", "MHz") else value


def main(argv: list) -> int:
    options = {}
    words = list(argv)
    while words:
        name, eq, value = words.pop(0).partition("=")
        if name in ("-i", "--id", "--state") and not eq and words:
            value = words.pop(0)
        options[name] = value
    wanted = options.get("-i", options.get("--id"))
    if set(options) - KNOWN or wanted not in (None, "0", "1", "2", "3"):
        print(USAGE)
        return 2
    state = read_state(options.get("--state"))
    tick = int(time.monotonic() * 10)
    cards = [card(i, state, tick) for i in range(GPUS) if wanted in (None, str(i))]
    if "--query-gpu" in options:
        form = options.get("--format", "").split(",")
        return query(cards, [f.strip() for f in options["--query-gpu"].split(",")], form)
    if "--help-query-gpu" in options:
        print("\n".join(cards[0]))
    elif "-L" in options or "--list-gpus" in options:
        for c in cards:
            print("GPU %s: %s (UUID: %s)" % (c["index"], c["name"], c["uuid"]))
    elif "--format" in options:
        print(USAGE)
        return 2
    else:
        print(table(cards, state[0], state[3]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
