"""How often a decode step calls each part of a model, by the model's own config.

In: a `model` line of the profiler: the text config as transformers writes it, and which layers this
pipeline rank has. Out: region -> calls a step; None where the config does not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Config = Mapping[str, Any]
_NESTED = ("text_config", "language_config", "llm_config", "thinker_config")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_EXPERTS = (
    "num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_routed_experts",
)  # fmt: skip
# Names of a layer's kind in `layer_types`, by the region that times it.
_KINDS = {
    "full_attention": "attention",
    "attention": "attention",
    "sliding_attention": "attention",
    "chunked_attention": "attention",
    "linear_attention": "linear_attention",
}
# Other ways to say which layers have attention, of kinds of layers that no region times.
_UNTOLD = (
    "layers_block_type", "hybrid_override_pattern", "attn_layer_period", "attn_layer_indices",
)  # fmt: skip

_EVERY = ("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval")


def calls(model: Mapping[str, Any]) -> dict[str, int | None]:
    """Of forward, attention, linear_attention, moe and mlp (dense layers), a decode step."""
    config = text_config(model.get("config") or {})
    told = next((config[name] for name in _LAYERS if _whole(config.get(name))), None)
    layers = _mine(model, told)
    out: dict[str, int | None] = {"forward": 1, **_attention(config, told, layers)}
    sparse = None if layers is None else [_sparse(config, layer) for layer in layers]
    if sparse is None or None in sparse:
        return {**out, "moe": None, "mlp": None}
    return {**out, "moe": sparse.count(True), "mlp": sparse.count(False)}


def text_config(config: Config) -> Config:
    """The part of a config that describes the language model."""
    for name in _NESTED:
        if isinstance(config.get(name), Mapping):
            return text_config(config[name])
    return config


def experts(config: Config) -> int:
    """Routed experts; 0: a dense model."""
    return next((int(config[name]) for name in _EXPERTS if _whole(config.get(name))), 0)


def _mine(model: Mapping[str, Any], told: int | None) -> range | None:
    """The layers of this pipeline rank, told as [first, last], both included; None: not known."""
    given = model.get("layers")
    if isinstance(given, Sequence) and len(given) == 2 and all(map(_whole, given)):
        return range(given[0], given[1] + 1)
    if told is None or (model.get("pp_size") or 1) > 1:
        return None
    return range(told)


def _attention(config: Config, told: int | None, layers: range | None) -> dict[str, int | None]:
    unknown: dict[str, int | None] = {"attention": None, "linear_attention": None}
    if layers is None:
        return unknown
    kinds = config.get("layer_types")
    every = config.get("full_attention_interval")
    if isinstance(kinds, Sequence) and not isinstance(kinds, str):
        if len(kinds) != told or any(kind not in _KINDS for kind in kinds):
            return unknown
        regions = [_KINDS[kinds[layer]] for layer in layers if layer < len(kinds)]
    elif _whole(every) and every:
        regions = ["linear_attention" if (n + 1) % every else "attention" for n in layers]
    elif any(config.get(name) is not None for name in _UNTOLD):
        return unknown
    else:
        regions = ["attention" for _ in layers]
    return {name: regions.count(name) for name in unknown}


def _sparse(config: Config, layer: int) -> bool | None:
    """Whether this layer has routed experts; None: the config says so in a way not known here."""
    if experts(config) < 2:
        return False
    listed = config.get("moe_layers")
    if isinstance(listed, Sequence) and not isinstance(listed, str):
        return layer in listed
    if config.get("moe_layers_enum") is not None:
        return None
    frequency = config.get("moe_layer_freq")
    if isinstance(frequency, Sequence) and not isinstance(frequency, str):
        return bool(frequency[layer]) if layer < len(frequency) else None
    first = (
        _number(config, "first_k_dense_replace") or _number(config, "moe_layer_start_index") or 0
    )
    last = _number(config, "moe_layer_end_index")  # -1: the last of all
    dense = config.get("mlp_only_layers")
    return (
        not (isinstance(dense, Sequence) and layer in dense)
        and layer >= first
        and (last is None or layer <= last)
        and layer % (_number(config, "moe_layer_freq") or 1) == 0
        and all((layer + 1) % (_number(config, name) or 1) == 0 for name in _EVERY)
    )


def _number(config: Config, name: str) -> int | None:
    value = config.get(name)
    return value if _whole(value) else None


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
