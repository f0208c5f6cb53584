"""What machine and which model stand behind a launch, for its identity; every look has a deadline.

In:  how the SMI tool is called, an environment, the model's path; later the pids of a live server.
Out: {"container", "hints", "modules", "model", "smi"} and {package: folder it was loaded from}.
What cannot be seen is left out; nothing here raises or keeps a launch waiting for long. The SMI
tool's words are kept as they are and read at home. Files are read by a child (this file run by path
with --child; it imports nothing of the cargo then): a dead network share would hold the agent.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import shutil
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

CHILD_S = 10.0
SMI_S = 10.0
SMI_CHARS = 2000  # the head of a table: versions; whose processes run is no business of ours
CONFIG_BYTES = 4 << 20
MAPS_BYTES = 16 << 20
LISTED = ("ixsmi", "nvidia-smi")  # tools whose -L names each accelerator
DRIVERS = ("iluvatar", "bi_driver", "itr", "nvidia", "amdgpu", "drv_davinci_intf", "metax", "mtgpu")
CONTAINER_FILES = {
    "/.dockerenv": "docker",
    "/run/.containerenv": "podman",
    "/var/run/secrets/kubernetes.io": "kubernetes",
}
CONTAINER_CGROUP = re.compile(r"docker|kubepods|containerd|libpod|crio|lxc")
# What of a model's config.json says how much work a token is; each by the names that it goes under.
MODEL_KEYS = {
    "architecture": ("architectures",),
    "layers": ("num_hidden_layers", "n_layer", "num_layers"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok", "moe_topk"),
    "heads": ("num_attention_heads", "n_head"),
    "kv_heads": ("num_key_value_heads", "multi_query_group_num"),
    "hidden_size": ("hidden_size", "n_embd"),
    "dtype": ("torch_dtype", "dtype"),
}
_LOADED = re.compile(r"(/\S*?/(?:site|dist)-packages/([A-Za-z_]\w*))/\S*\.so\b")


# ---------------------------------------------------------------------- in the agent
def machine(
    telemetry: Optional[Dict[str, Any]], env: Dict[str, str], model: Optional[str]
) -> Dict[str, Any]:
    found = _ask({"model": model})
    found["smi"] = smi(telemetry or {}, env)
    return found


def loaded(pids: List[int]) -> Dict[str, str]:
    """Package -> folder of the libraries that a live server has in its memory."""
    found = _ask({"pids": pids})
    return dict(found.get("loaded") or {})


def _ask(job: Dict[str, Any]) -> Dict[str, Any]:
    from cargo import engine_look

    argv = [sys.executable, "-I", os.path.abspath(__file__), "--child", json.dumps(job)]
    done = engine_look.run(argv, dict(os.environ), CHILD_S)  # our python, so in our world
    if done.code is None:
        return {"problem": "no answer within %g s" % CHILD_S}
    try:
        return dict(json.loads(done.out))
    except (ValueError, TypeError):
        return {"problem": "no answer (exit code %s): %s" % (done.code, done.err.strip()[-300:])}


def smi(telemetry: Dict[str, Any], env: Dict[str, str]) -> Optional[Dict[str, Any]]:
    """What the tool says of itself and its accelerators; None without a tool that answers."""
    from cargo import smi_call, smi_choice, smi_tools

    for words, libraries in _places(telemetry, smi_tools.TOOLS):
        program = shutil.which(words[0], path=env.get("PATH"))
        if program is None:
            continue
        own = smi_choice.with_libraries(env, libraries)
        called = smi_tools.BY_NAME.get(os.path.basename(words[0]))
        look = called.look if called is not None else ()
        done = smi_call.call([program, *words[1:], *look], own, SMI_S)
        tool = smi_tools.whose(done.text)
        if tool is None:
            continue
        said = {"tool": tool.name, "table": done.text[:SMI_CHARS]}
        if tool.name in LISTED:
            listed = smi_call.call([program, *words[1:], "-L"], own, SMI_S)
            said["list"] = listed.text[:SMI_CHARS]
        return said
    return None


def _places(
    telemetry: Dict[str, Any], tools: Tuple[Any, ...]
) -> Iterator[Tuple[List[str], Tuple[str, ...]]]:
    """The words that call the tool plainly, and its libraries: the config's, else the known ways."""
    asked = telemetry.get("tool")
    words = list(telemetry.get("argv") or [])
    if asked in (None, "none"):
        return
    if words not in ([], [asked]):
        at = next((n for n, word in enumerate(words) if n and word.startswith("--")), len(words))
        yield words[:at], ()
        return
    for tool in tools:
        if asked in ("auto", tool.name):
            for way in tool.ways:
                yield [way.program], way.libraries


# ---------------------------------------------------------------------- in the child
def _child(job: Dict[str, Any]) -> Dict[str, Any]:
    if job.get("pids"):
        return {"loaded": _loaded(job["pids"])}
    hints = container_hints()
    return {
        "container": "container" if hints else "none",
        "hints": hints,
        "modules": _modules(),
        "model": model_facts(job.get("model")),
    }


def container_hints(root: str = "/", environ: Any = os.environ) -> List[str]:
    """Signs that this is a container; none of them is sure to be there in one."""
    hints = [word for path, word in CONTAINER_FILES.items() if os.path.exists(root + path[1:])]
    found = CONTAINER_CGROUP.search(_read(os.path.join(root, "proc/1/cgroup"), 1 << 16) or "")
    if found:
        hints.append("cgroup %s" % found.group(0))
    if "KUBERNETES_SERVICE_HOST" in environ:
        hints.append("kubernetes environment")
    for line in (_read(os.path.join(root, "proc/self/mountinfo"), 1 << 20) or "").splitlines():
        mounted, _, of = line.partition(" - ")
        if mounted.split()[4:5] == ["/"] and of.startswith("overlay "):
            hints.append("overlay root")
            break
    return hints


def _modules() -> Dict[str, str]:
    """Kernel drivers of accelerators and their versions."""
    found = {}
    for name in DRIVERS:
        version = _read("/sys/module/%s/version" % name, 200)
        if version is not None and version.strip():
            found[name] = version.strip()
    return found


def model_facts(path: Optional[str]) -> Dict[str, Any]:
    """Of a model's folder: a digest of config.json, what says its size, and its weight files."""
    text = None if not path else _read(os.path.join(path, "config.json"), CONFIG_BYTES)
    if path is None or text is None:
        return {}
    facts: Dict[str, Any] = {"digest": hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]}
    try:
        config = json.loads(text)
    except (ValueError, RecursionError):
        return facts
    if not isinstance(config, dict):
        return facts
    inner = config.get("text_config")
    layers = [config, inner if isinstance(inner, dict) else {}]
    for key, names in MODEL_KEYS.items():
        told = [x[n] for x in layers for n in names if isinstance(x.get(n), (str, int, list))]
        if told:
            facts[key] = told[0] if not isinstance(told[0], list) else ",".join(map(str, told[0]))
    quantized = config.get("quantization_config")
    if isinstance(quantized, dict):
        facts["quantization"] = str(quantized.get("quant_method"))
    weights = _sizes(glob.glob(os.path.join(path, "*.safetensors")))
    if weights:
        facts["weights_bytes"] = sum(weights)
    return facts


def _sizes(paths: List[str]) -> List[int]:
    """None of them where one cannot be seen (a link that leads nowhere): a part is no total."""
    try:
        return [os.path.getsize(path) for path in paths]
    except OSError:
        return []


def _loaded(pids: List[int]) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for pid in pids:
        for place, package in _LOADED.findall(_read("/proc/%d/maps" % pid, MAPS_BYTES) or ""):
            found.setdefault(package, place)
    return dict(sorted(found.items()))


def _read(path: str, limit: int) -> Optional[str]:
    try:
        with open(path, "rb") as f:
            return f.read(limit).decode("utf-8", "replace")
    except OSError:
        return None


if __name__ == "__main__" and sys.argv[1:2] == ["--child"]:
    sys.stdout.write(json.dumps(_child(json.loads(sys.argv[2]))))
