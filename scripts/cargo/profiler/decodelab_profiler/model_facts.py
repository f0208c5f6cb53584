"""What a worker's model is, for the check of calls: {"kind": "model", ...}; what cannot be seen is None."""

import sys

from .wrapping import MARK

PLAIN = (str, int, float, bool, type(None))
NESTED = 3  # levels of a model's configuration that are kept


def of_runner(runner):
    """Of a model runner that has loaded its model."""
    config = getattr(runner, "vllm_config", None)
    model_config = getattr(runner, "model_config", None)
    parallel = getattr(runner, "parallel_config", None)
    compilation = getattr(config, "compilation_config", None)
    mode = _any(compilation, "mode", "level")
    graphs = _any(compilation, "cudagraph_mode", "use_cudagraph")
    return {
        "kind": "model",
        "config": _text_config(model_config),
        "enforce_eager": getattr(model_config, "enforce_eager", None),
        "cudagraph_mode": _name(graphs),
        "compilation_mode": _name(mode),
        "tp_size": getattr(parallel, "tensor_parallel_size", None),
        "tp_rank": _rank("get_tensor_model_parallel_rank"),
        "pp_size": getattr(parallel, "pipeline_parallel_size", None),
        "pp_rank": _group_rank("get_pp_group"),
        "dp_rank": getattr(parallel, "data_parallel_rank", None),
        "device": _name(getattr(runner, "device", None)),
        "version": getattr(sys.modules.get("vllm"), "__version__", None),
        "layers": _layers(model_of(runner)),
        "modules": _modules(model_of(runner)),
    }


def model_of(runner):
    """The model itself, without what wraps it for graphs; None where there is none."""
    get = getattr(runner, "get_model", None)
    return get() if callable(get) else getattr(runner, "model", None)


def _any(holder, *names):
    for name in names:
        found = getattr(holder, name, None)
        if found is not None:
            return found
    return None


def _name(told):
    if told is None or isinstance(told, (bool, int, float)):
        return told
    return getattr(told, "name", None) or str(told)


def _text_config(model_config):
    found = _any(model_config, "hf_text_config", "hf_config")
    told = found.to_dict() if hasattr(found, "to_dict") else None
    return _plain(told, NESTED) if isinstance(told, dict) else None


def _plain(told, levels):
    if isinstance(told, PLAIN):
        return told
    if isinstance(told, dict) and levels:
        kept = {str(k): v for k, v in told.items() if _is_plain(v)}
        return {k: _plain(v, levels - 1) for k, v in kept.items()}
    if isinstance(told, (list, tuple)) and levels:
        return [_plain(v, levels - 1) for v in told if _is_plain(v)]
    return None


def _is_plain(told):
    return isinstance(told, (*PLAIN, dict, list, tuple))


def _state():
    return sys.modules.get("vllm.distributed.parallel_state")


def _rank(name):
    try:
        return getattr(_state(), name)()
    except Exception:  # no groups yet, or an engine without them
        return None


def _group_rank(name):
    try:
        return getattr(_state(), name)().rank_in_group
    except Exception:
        return None


def _named(model):
    walk = getattr(model, "named_modules", None)
    return list(walk()) if callable(walk) else []


def _layers(model):
    """[first, last] decoder layer of this pipeline rank, both included; None when the model does not say."""
    for _, module in _named(model):
        first, end = getattr(module, "start_layer", None), getattr(module, "end_layer", None)
        if isinstance(first, int) and isinstance(end, int):
            return [first, end - 1]
    return None


def _modules(model):
    """Region -> how many modules of this rank's model have a timed method; one inside its like is not counted."""
    counted: dict = {}
    roots: dict = {}
    for name, module in _named(model):
        for region in _regions_of(type(module)):
            inside = roots.setdefault(region, [])
            if not any(not root or name.startswith(root + ".") for root in inside):
                inside.append(name)
                counted[region] = counted.get(region, 0) + 1
    counted.pop("forward", None)
    return counted


def _regions_of(kind):
    found = set()
    for base in kind.__mro__:
        for held in list(vars(base).values()):
            region = getattr(held, MARK, None)
            if isinstance(region, str):
                found.add(region)
    return found
