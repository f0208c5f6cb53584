"""Does each accelerator compute? Runs under the server's own python, with whatever torch it has.

    python device_probe.py FOLDER '{"devices": [0, 1] | null, "leave": [indices], "need": 2,
                                    "taken_mib": 1024, "deadline_s": 120}'

Out: FOLDER/leader.jsonl and FOLDER/device-<i>.jsonl, a line for each stage that begins, is passed
or fails. The leader imports torch once and never touches a device: its forked children do, one for
each device, then one for each rank of an all-reduce. Nobody here ends anybody: a child that hangs
in its driver stays, and the leader stays with it. {"end": true} in leader.jsonl is the last word.
"""

import sys

if __name__ == "__main__":
    sys.path.pop(0)  # the names of the files beside this one must not shadow what torch imports

import datetime
import importlib
import importlib.util
import json
import os
import time

BLOCK_MIB = 64
EDGE = 512  # of the square matrices
MIB = 1 << 20
DECODE_WIDTH = 4096  # of one token's hidden state: 8 KB in bfloat16
TIMED = 50  # all-reduces of it, each waited for; a few before them are not counted
UNTIMED = 10
NEVER = datetime.timedelta(days=1)  # a collective's own timeout would end it inside a kernel


class Teller:
    """Lines of one file; each is whole or not there."""

    def __init__(self, folder, name):
        self.fd = os.open(
            os.path.join(folder, name + ".jsonl"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644
        )

    def __call__(self, **fact):
        os.write(self.fd, json.dumps(fact).encode("utf-8") + b"\n")


class Api:
    """The part of torch that speaks to one make of accelerator."""

    def __init__(self, torch, kind, module, backend, variable):
        self.torch, self.kind, self.module = torch, kind, module
        self.backend, self.variable = backend, variable

    def device(self, index):
        return self.torch.device("%s:%d" % (self.kind, index))


def api_of(torch):
    """By what this torch was built for; no device is touched. None: the CPU alone."""
    version = torch.version
    if getattr(version, "hip", None):
        return Api(torch, "cuda", torch.cuda, "nccl", "HIP_VISIBLE_DEVICES")
    if getattr(version, "cuda", None):  # CoreX's too
        return Api(torch, "cuda", torch.cuda, "nccl", "CUDA_VISIBLE_DEVICES")
    if importlib.util.find_spec("torch_npu") is not None:
        importlib.import_module("torch_npu")
        return Api(torch, "npu", torch.npu, "hccl", "ASCEND_RT_VISIBLE_DEVICES")
    return None


# ---------------------------------------------------------------------- one device
def visible(api, index):
    api.module.set_device(index)
    return {"name": str(api.module.get_device_name(index))}


def memory(api, index):
    ask = getattr(api.module, "mem_get_info", None)
    if ask is None:  # a torch before 1.11
        return {"free_mib": None, "total_mib": None}
    free, total = ask(index)
    return {"free_mib": round(free / MIB, 1), "total_mib": round(total / MIB, 1)}


def allocate(api, index):
    block = api.torch.ones(BLOCK_MIB * MIB // 4, device=api.device(index))
    api.module.synchronize(index)
    return check(float(block[-1].item()), 1.0)


def matmul(api, index):
    square = api.torch.ones((EDGE, EDGE), device=api.device(index))
    product = api.torch.matmul(square, square)
    api.module.synchronize(index)
    return check(float(product[EDGE - 1][EDGE - 1].item()), float(EDGE))


def check(found, wanted):
    if found != wanted:
        raise ArithmeticError("wrong result: %r instead of %r" % (found, wanted))
    return {}


STEPS = (("visible", visible), ("memory", memory), ("allocate", allocate), ("matmul", matmul))


# ---------------------------------------------------------------------- all of them together
def all_reduce(api, index, rank, world, folder):
    """By the devices' own backend, then by gloo, which the engine's processes use as well."""
    dist = importlib.import_module("torch.distributed")
    api.module.set_device(index)
    store = "file://" + os.path.join(folder, "rendezvous")
    dist.init_process_group(
        api.backend, init_method=store, rank=rank, world_size=world, timeout=NEVER
    )
    wanted = float(world * (world + 1) // 2)
    part = api.torch.ones(1024, device=api.device(index)) * (rank + 1)
    dist.all_reduce(part)
    api.module.synchronize(index)
    check(float(part[-1].item()), wanted)
    timed = at_decode_size(api, index, dist)
    if not getattr(dist, "is_gloo_available", lambda: True)():
        return dict(timed, backends=[api.backend])
    group = dist.new_group(backend="gloo", timeout=NEVER)
    part = api.torch.ones(1024) * (rank + 1)
    dist.all_reduce(part, group=group)
    check(float(part[-1].item()), wanted)
    return dict(timed, backends=[api.backend, "gloo"])


def at_decode_size(api, index, dist):
    """{"all_reduce_ms": median of one all-reduce of a token's hidden state, the call and the device's
    work}: what a step's collectives cost at the least. It tells nothing of health, so a device that
    cannot do it is fit all the same.
    """
    try:
        part = api.torch.ones(DECODE_WIDTH, dtype=api.torch.bfloat16, device=api.device(index))
        dist.all_reduce(part)
        api.module.synchronize(index)
    except Exception:  # no bfloat16 on this make or in its collectives; every rank fails alike
        return {"all_reduce_ms": None}
    took = []
    for _call in range(UNTIMED + TIMED):
        api.module.synchronize(index)
        begin = time.perf_counter()
        dist.all_reduce(part)
        api.module.synchronize(index)
        took.append(time.perf_counter() - begin)
    middle = sorted(took[UNTIMED:])
    return {"all_reduce_ms": round(1e3 * middle[len(middle) // 2], 4)}


# ---------------------------------------------------------------------- children
def fork(tell, steps):
    """A child that takes the steps in order, tells of each, and stops at the first that fails."""
    pid = os.fork()
    if pid:
        return pid
    try:
        tell(pid=os.getpid())
        for name, step in steps:
            tell(begin=name, t=time.time())
            tell(passed=name, **step())
        os._exit(0)
    except BaseException as error:  # whatever it is, it is the finding
        tell(failed=name, error="%s: %s" % (type(error).__name__, error))
    finally:
        os._exit(1)


def wait(pids, deadline_s):
    """Until all have ended or time is up; the pids of those that have not."""
    left, end = list(pids), time.monotonic() + deadline_s
    while left and time.monotonic() < end:
        time.sleep(0.02)
        left = [pid for pid in left if not os.waitpid(pid, os.WNOHANG)[0]]
    return left


def read(folder, name):
    try:
        with open(os.path.join(folder, name + ".jsonl"), encoding="utf-8") as f:
            return [json.loads(line) for line in f.read().split("\n")[:-1]]
    except OSError:
        return []


def last(facts, key):
    return next((fact[key] for fact in reversed(facts) if key in fact), None)


def choose(folder, devices, need, taken_mib):
    """The first `need` that passed every step, those that nobody else uses before the others."""
    ranked = []
    for index in devices:
        facts = read(folder, "device-%d" % index)
        if last(facts, "passed") == STEPS[-1][0]:
            free, total = last(facts, "free_mib"), last(facts, "total_mib")
            taken = free is not None and total - free > taken_mib
            ranked.append((taken, index))
    return sorted(index for _, index in sorted(ranked)[:need])


# ---------------------------------------------------------------------- the leader
def lead(folder, asked):
    tell = Teller(folder, "leader")
    tell(pid=os.getpid(), begin="import", t=time.time())
    try:
        torch = importlib.import_module("torch")
        api = api_of(torch)
    except BaseException as error:
        tell(failed="import", error="%s: %s" % (type(error).__name__, error))
        return []
    version = str(getattr(torch, "__version__", "unknown"))
    tell(passed="import", torch=version, api=api and api.kind, variable=api and api.variable)
    if api is None:
        return []
    counting = fork(tell, [("visible", lambda: {"count": int(api.module.device_count())})])
    left = wait([counting], asked["deadline_s"])
    count = last(read(folder, "leader"), "count")
    if left or count is None:
        return left
    wanted = range(count) if asked["devices"] is None else asked["devices"]
    devices = [i for i in wanted if i < count and i not in asked["leave"]]
    tell(begin="devices", t=time.time(), devices=devices)
    left = []
    for i in devices:
        steps = [(name, lambda step=step, i=i: step(api, i)) for name, step in STEPS]
        left.append(fork(Teller(folder, "device-%d" % i), steps))
    left = wait(left, asked["deadline_s"])
    chosen = choose(folder, devices, asked["need"], asked["taken_mib"])
    tell(chosen=chosen)
    if len(chosen) == asked["need"] and len(chosen) > 1:
        left += reduce_over(api, folder, chosen, tell, asked["deadline_s"])
    return left


def reduce_over(api, folder, chosen, tell, deadline_s):
    tell(begin="all_reduce", t=time.time())
    pids = []
    for rank, i in enumerate(chosen):
        step = lambda rank=rank, i=i: all_reduce(api, i, rank, len(chosen), folder)  # noqa: E731
        pids.append(fork(Teller(folder, "device-%d" % i), [("all_reduce", step)]))
    return wait(pids, deadline_s)


def main():
    folder, asked = sys.argv[1], json.loads(sys.argv[2])
    left = lead(folder, asked)
    Teller(folder, "leader")(end=True)
    while left:  # they must not become orphans: the host agent would end what it inherits
        left.remove(os.wait()[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
