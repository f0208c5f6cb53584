"""The engine's own choice of an attention backend, asked as a start would ask it, name by name.

In:  what backend_probe.py is told. Out: for each name "yes", "no" or "not_told", the engine's words, and
what it would take instead. Run by the server's own python, in a process that may hang or die. No device
is touched: its generation is asked of the driver, which needs no memory for it, and what would open the
device is refused and told.
"""

import ctypes
import importlib
import inspect
import json
import logging
import os
import re
import traceback

HEAD_SIZE, BLOCK_SIZE = 128, 16
MAX_WORDS = 400
VARIABLE = "VLLM_ATTENTION_BACKEND"
# Where the enum of the names is, newest first.
MEMBERS = (
    ("vllm.v1.attention.backends.registry", "AttentionBackendEnum"),
    ("vllm.attention.backends.registry", "AttentionBackendEnum"),
    ("vllm.attention.backends.registry", "_Backend"),
    ("vllm.platforms", "_Backend"),
    ("vllm.platforms.interface", "_Backend"),
)
_USING = re.compile(r"^Using .{1,80} backend", re.IGNORECASE)


class DeviceNeeded(RuntimeError):
    """The engine wants to open a device, which the probe does not do."""


# ---------------------------------------------------------------------- the model
def model_config(folder):
    try:
        with open(os.path.join(folder or "", "config.json"), encoding="utf-8") as f:
            config = json.load(f)
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def head_size(config):
    text = config.get("text_config")
    inner = text if isinstance(text, dict) else config
    if isinstance(inner.get("head_dim"), int):
        return inner["head_dim"]
    width, heads = inner.get("hidden_size"), inner.get("num_attention_heads")
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads else None


# ---------------------------------------------------------------------- the device's generation
def capability():
    """(major, minor) by the driver's own call; None where there is no such driver. cuInit makes no
    context, so no memory of a device is taken.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    device, value = ctypes.c_int(), ctypes.c_int()
    found = []
    if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
        return None
    for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
        if cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device):
            return None
        found.append(value.value)
    return tuple(found)


def keep_off_the_device(torch):
    """From here on nothing opens a device; who asks for its generation is told the driver's answer."""
    known = capability()

    def refuse(*_, **__):
        raise DeviceNeeded("opening the device was refused: the probe takes no device memory")

    def told(*_, **__):
        return known if known is not None else refuse()

    torch.cuda._lazy_init = refuse
    torch.cuda.get_device_capability = told


# ---------------------------------------------------------------------- asking the engine
class Words(logging.Handler):
    """What the engine logs while it is asked."""

    def __init__(self):
        logging.Handler.__init__(self, logging.DEBUG)
        self.said = []

    def emit(self, record):
        try:
            self.said.append(" ".join(record.getMessage().split()))
        except Exception:
            self.said.append(str(record.msg))


def listen():
    handler = Words()
    logger = logging.getLogger("vllm")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    return handler


class Selector:
    """The engine's own choice, whatever its version calls it."""

    def __init__(self, asked):
        self.asked, self.words, self.assumed = asked, None, []
        torch = importlib.import_module("torch")
        keep_off_the_device(torch)
        importlib.import_module("vllm")
        self.words = listen()
        self.envs = importlib.import_module("vllm.envs")
        self.platform = importlib.import_module("vllm.platforms").current_platform
        self.known = self._known(torch)

    def _known(self, torch):
        config = model_config(self.asked.get("model"))
        size = head_size(config)
        if size is None:
            self.assumed.append("head size %d" % HEAD_SIZE)
        name = self.asked.get("dtype") or "auto"
        if name == "auto":
            inner = config.get("text_config")
            inner = inner if isinstance(inner, dict) else config
            name = inner.get("torch_dtype") or inner.get("dtype") or config.get("torch_dtype")
        name = {"half": "float16", "float": "float32"}.get(name, name)
        dtype = getattr(torch, str(name).rpartition(".")[2], None)
        if not isinstance(dtype, torch.dtype):
            self.assumed.append("dtype float16")
            dtype = torch.float16
        return {
            "head_size": size or HEAD_SIZE,
            "dtype": dtype,
            "kv_cache_dtype": self.asked.get("kv_cache_dtype") or "auto",
            "block_size": self.asked.get("block_size"),
            "sliding_window": None,
            "is_attention_free": False,
            "is_blocksparse": False,
            "use_mla": "kv_lora_rank" in config,
            "has_sink": False,
            "use_sparse": False,
            "num_heads": None,
            "num_kv_heads": None,
        }

    def take(self, name):
        """The name of what the engine would take: of an enum's member, or of the class at a path."""
        os.environ.pop(VARIABLE, None)
        if name:
            os.environ[VARIABLE] = name
        choose = getattr(self.platform, "get_attn_backend_cls", None)
        if choose is None:
            which = importlib.import_module("vllm.attention.selector").which_attn_to_use
            return which(**self._fitting(which, name)).name
        path = choose(**self._fitting(choose, name))
        place, _, kind = str(path).rpartition(".")
        found = getattr(importlib.import_module(place), kind)
        return str(found.get_name())

    def _fitting(self, function, name):
        """Arguments for this version's function; one that nobody knows is a TypeError."""
        given = {}
        for key, parameter in inspect.signature(function).parameters.items():
            if key == "selected_backend":
                given[key] = self._member(name)
            elif key == "attn_selector_config":
                given[key] = self._config()
            elif key == "use_v1":
                given[key] = bool(getattr(self.envs, "VLLM_USE_V1", False))
            elif key == "block_size":
                given[key] = self.known[key] or BLOCK_SIZE
            elif key in self.known:
                given[key] = self.known[key]
            elif parameter.default is inspect.Parameter.empty:
                raise TypeError("%s wants %s, which is not known" % (function.__name__, key))
        return given

    def _config(self):
        for place in ("vllm.v1.attention.selector", "vllm.attention.selector"):
            try:
                kind = importlib.import_module(place).AttentionSelectorConfig
            except (ImportError, AttributeError):
                continue
            return kind(**{k: v for k, v in self.known.items() if k in kind._fields})
        raise ImportError("no AttentionSelectorConfig")

    def _member(self, name):
        for place, kind in MEMBERS if name else ():
            try:
                return getattr(importlib.import_module(place), kind)[name]
            except (ImportError, AttributeError, KeyError, ValueError):
                continue
        return None


def same(one, two):
    """`FLASH_ATTN`, `flash-attn` and `FLASH_ATTN_VLLM_V1` are one; a CPU's has two names."""
    a, b = (re.sub(r"[^a-z0-9]", "", name.lower().replace("_vllm_v1", "")) for name in (one, two))
    a, b = (re.sub(r"attn$", "", plain.replace("attention", "attn")) for plain in (a, b))
    return a == b


def last_words(error):
    """The error, and the file and line where it arose."""
    frames = traceback.extract_tb(error.__traceback__)
    place = " (%s:%s)" % (frames[-1][0], frames[-1][1]) if frames else ""
    text = " ".join(("%s: %s" % (type(error).__name__, error)).split())
    return text[:MAX_WORDS] + place


def wants_device(error):
    while error is not None:
        if isinstance(error, DeviceNeeded):
            return True
        error = error.__cause__ or error.__context__
    return False


def answer(selector, name, module):
    """{"could": "yes"|"no"|"not_told", "why", "takes"} of one backend."""
    heard = len(selector.words.said)
    try:
        taken = selector.take(name)
        if not name or same(taken, name):
            if module:
                importlib.import_module(module)
            return {"could": "yes", "why": None, "takes": taken}
    except BaseException as error:
        if wants_device(error) or isinstance(error, (TypeError, KeyboardInterrupt)):
            return {"could": "not_told", "why": last_words(error), "takes": None}
        return {"could": "no", "why": last_words(error), "takes": None}
    said = [text for text in selector.words.said[heard:] if not _USING.match(text)]
    why = [text for text in said if "annot use" in text or name in text] or said
    return {"could": "no", "why": "; ".join(why)[:MAX_WORDS] or None, "takes": taken}


def by_import(name, module, why):
    """Where the selector cannot be asked: whether the backend's own file imports."""
    if module is None:
        return {"could": "not_told", "why": why, "takes": None}
    try:
        importlib.import_module(module)
    except BaseException as error:
        could = "not_told" if wants_device(error) else "no"
        return {"could": could, "why": last_words(error), "takes": None}
    return {"could": "not_told", "why": "it imports; " + why, "takes": None}


def ask_vllm(tell, asked, names):
    """A line for each of the names: begun, then answered."""
    tell(stage="selector")
    try:
        selector, why = Selector(asked), ""
        tell(stage="asking", assumed=selector.assumed, platform=type(selector.platform).__name__)
    except BaseException as error:
        selector, why = None, "the engine's selector could not be asked: " + last_words(error)
        tell(stage="asking", problem=last_words(error))
    for name, module in names:
        tell(begun=name)
        found = answer(selector, name, module) if selector else by_import(name, module, why)
        tell(backend=name, **found)
