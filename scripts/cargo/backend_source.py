"""What an engine's own files say of its attention backends; nothing of the engine is imported.

In:  the folder of the package `vllm`. Out: the names that may be asked for with the module of each,
the files to read, the backends that multi-step accepts, and which refusals stand in the source.
Standard library only, any Python 3: it is run by the server's own python (see backend_probe.py).
"""

import ast
import os

# Where the names stand, by version: V0 to 0.6.3, V0 to 0.10, 0.11 to 0.14, later ones.
NAMES = (
    ("attention/selector.py", "_Backend"),
    ("platforms/interface.py", "_Backend"),
    ("attention/backends/registry.py", "_Backend"),
    ("attention/backends/registry.py", "AttentionBackendEnum"),
    ("v1/attention/backends/registry.py", "AttentionBackendEnum"),
)
SELECTORS = (
    "attention/selector.py",
    "v1/attention/selector.py",
    "attention/backends/registry.py",
    "v1/attention/backends/registry.py",
    "platforms/interface.py",
    "platforms/cuda.py",
)
FOLDERS = ("attention/backends", "v1/attention/backends")
# Of a backend whose name is not its file's.
FILES = {
    "FLASH_ATTN": "flash_attn",
    "XFORMERS": "xformers",
    "ROCM_FLASH": "rocm_flash_attn",
    "TORCH_SDPA": "torch_sdpa",
    "IPEX": "ipex_attn",
    "NO_ATTENTION": "placeholder_attn",
    "BLOCK_SPARSE_FLASH_ATTN": "blocksparse_attn",
    "FLEX_ATTENTION": "flex_attention",
    "CPU_ATTN": "cpu_attn",
}
MULTI_STEP = "worker/multi_step_model_runner.py"
LISTS = {
    "MULTI_STEP_ATTENTION_BACKENDS": "plain",
    "MULTI_STEP_CHUNKED_PREFILL_ATTENTION_BACKENDS": "chunked",
}
REFUSALS = (
    "config.py",
    "config/scheduler.py",
    "config/model.py",
    "config/__init__.py",
    "engine/arg_utils.py",
    MULTI_STEP,
    "worker/worker.py",
    "v1/core/kv_cache_utils.py",
)
# Who patches the kernels of an engine names itself in what the files import.
VENDORS = ("ixformer", "corex", "torch_npu", "torch_mlu", "torch_musa", "mcoplib", "vacc")
MAX_FILES, MAX_BYTES = 2000, 1 << 20


def read(folder):
    """{"names": {name: module or None}, "files": [selectors], "multi_step": {"plain", "chunked"},
    "vendor": {file: [packages]}}; an unreadable file counts as absent.
    """
    names = {}  # type: ignore[var-annotated]
    files = []
    for place, wanted in NAMES:
        tree = parsed(os.path.join(folder, place))
        for name, value in members(tree, wanted).items():
            names.setdefault(name, module_of(folder, name, value))
    for place in SELECTORS:
        path = os.path.join(folder, place)
        if os.path.isfile(path):
            files.append(path)
    return {
        "names": names,
        "files": files,
        "multi_step": lists(parsed(os.path.join(folder, MULTI_STEP))),
        "vendor": vendor_files(folder),
    }


def text_of(path):
    try:
        if os.path.getsize(path) > MAX_BYTES:
            return ""
        with open(path, "rb") as f:
            return f.read().decode("utf-8", "replace")
    except OSError:
        return ""


def parsed(path):
    try:
        return ast.parse(text_of(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def literal(node):
    try:
        return ast.literal_eval(node)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def assigned(body):
    """(name, value node) of each plain assignment."""
    for node in body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            if isinstance(node.targets[0], ast.Name):
                yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and node.value and isinstance(node.target, ast.Name):
            yield node.target.id, node.value


def members(tree, wanted):
    """An enum's members: {name: its text, or None}."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == wanted:
            found = {}
            for name, value in assigned(node.body):
                text = literal(value)
                if not name.startswith("_") and name == name.upper():
                    found[name] = text if isinstance(text, str) and text else None
            return found
    return {}


def module_of(folder, name, path):
    """The module of a backend: of its class's path where the engine has one, else by its file."""
    if path:
        return path.rpartition(".")[0]
    new = name.endswith("_VLLM_V1")
    plain = name[: -len("_VLLM_V1")] if new else name
    file = FILES.get(plain, plain.lower())
    for place in reversed(FOLDERS) if new else FOLDERS:
        for inside in (file, "mla/" + file):
            if os.path.isfile(os.path.join(folder, place, inside + ".py")):
                return "vllm." + (place + "/" + inside).replace("/", ".")
    return None


def file_of(folder, module):
    """The file of a module inside the package, if it is there."""
    inside = os.path.join(folder, *module.split(".")[1:])
    for path in (inside + ".py", os.path.join(inside, "__init__.py")):
        if os.path.isfile(path):
            return path
    return None


def lists(tree):
    """What the multi-step runner takes; {} where the engine has none."""
    found = {}
    for name, value in assigned(tree.body):
        names = literal(value)
        if name in LISTS and isinstance(names, list) and all(isinstance(n, str) for n in names):
            found[LISTS[name]] = names
    return found


def texts(tree):
    """Every text of a file, an f-string as one with its values left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(literal(part) or "" for part in node.values if not _is_value(part))
        elif isinstance(node, (ast.Constant, getattr(ast, "Str", ast.Constant))):
            text = literal(node)
            if isinstance(text, str):
                yield text


def _is_value(part):
    return isinstance(part, ast.FormattedValue)


def refusals(folder, words):
    """Of {code: words} the codes whose words an error of the engine has."""
    found = set()
    for place in REFUSALS:
        raised = [node for node in ast.walk(parsed(os.path.join(folder, place)))
                  if isinstance(node, (ast.Raise, ast.Assert))]  # fmt: skip
        said = [text for node in raised for text in texts(node)]
        found |= {code for code, part in words.items() if any(part in text for text in said)}
    return sorted(found)


def vendor_files(folder):
    """Files of the attention path that import a vendor's package: {path: [packages]}."""
    found = {}
    for place in ("attention", "v1/attention", "platforms", "_custom_ops.py", "worker"):
        found.update(vendor_imports(os.path.join(folder, place)))
    return found


def vendor_imports(place):
    paths = [place] if os.path.isfile(place) else []
    for folder, folders, names in os.walk(place):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        paths += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")]
        if len(paths) > MAX_FILES:
            break
    found = {}
    for path in paths[:MAX_FILES]:
        text = text_of(path)
        if any(name in text for name in VENDORS):
            named = sorted(imported(parsed(path)) & set(VENDORS))
            if named:
                found[path] = named
    return found


def imported(tree):
    """Top-level packages that a file imports, wherever it does."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found
