"""The environment of each process of a launch, in layers.

In:  what the setup script made of the agent's environment, the order, the secret values it names.
Out: agent < setup < order < chosen devices < secrets < mark for the server; fewer layers for its
helpers: only the server gets the secrets, only the client gets the key.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional

from cargo import procs
from cargo.setup_env import Setup


def secret_names(order: Mapping[str, Any]) -> List[str]:
    """What the order needs, the key included, each once."""
    named = [*(order.get("secrets") or []), order.get("api_key")]
    return list(dict.fromkeys(name for name in named if name))


def layered(base: Mapping[str, str], *layers: Mapping[str, Any]) -> Dict[str, str]:
    """Later layers win; null takes a variable away."""
    env = dict(base)
    for layer in layers:
        for name, value in layer.items():
            if value is None:
                env.pop(name, None)
            else:
                env[name] = str(value)
    return env


class LaunchEnv:
    def __init__(
        self,
        order: Mapping[str, Any],
        setup: Optional[Setup] = None,
        secrets: Optional[Mapping[str, str]] = None,
    ) -> None:
        self.order = order
        self.setup = setup or Setup(dict(os.environ), None)
        self.secrets = dict(secrets or {})
        self.key_name: Optional[str] = order.get("api_key")
        self.device_check: Optional[Dict[str, Any]] = None  # what it found, if it was made

    def probe(self) -> Dict[str, str]:
        """For looking at the engine: the server's own world without its secrets."""
        env = dict(self.setup.env)
        env.setdefault("PYTHONUNBUFFERED", "1")  # else a dying python takes its last words with it
        chosen = (self.device_check or {}).get("env") or {}
        return layered(env, self.order["server"].get("env") or {}, chosen)

    def server(self, mark: str) -> Dict[str, str]:
        return layered(self.probe(), self.secrets, {procs.MARK_ENV: mark})

    def sampler(self) -> Dict[str, str]:
        return layered(self.setup.env, (self.order.get("telemetry") or {}).get("env") or {})

    def client(self) -> Dict[str, str]:
        """The client is ours and needs nothing of the engine's world."""
        key = {} if self.key_name is None else {self.key_name: self.secrets[self.key_name]}
        return layered(os.environ, key)

    def headers(self) -> Dict[str, str]:
        """What the server wants to see with each request."""
        if self.key_name is None:
            return {}
        return {"Authorization": "Bearer " + self.secrets[self.key_name].strip()}
