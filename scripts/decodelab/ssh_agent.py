"""The user's ssh-agent, asked with a deadline.

In:  the path of the agent's socket.
Out: the keys it holds, each of which can sign. Every question is a connection of its own and ends in time:
     a socket that nobody serves any more, or that is served and never answered, is an AgentError.
"""

from __future__ import annotations

import socket
import struct
import time

import paramiko
from paramiko.message import Message

LIST, LISTED, SIGN, SIGNED = 11, 12, 13, 14
# The agent signs RSA with SHA-1 unless it is told otherwise.
RSA_FLAGS = {"rsa-sha2-256": 2, "rsa-sha2-512": 4}
# A key may want to be confirmed by hand, or a token to be touched.
SIGN_LIMIT_S = 25.0
LONGEST_ANSWER_BYTES = 256 * 1024  # the limit of OpenSSH's own agent


class AgentError(Exception):
    """The agent did not do what it was asked; the text says why."""


class AgentKey(paramiko.PKey):
    """A key (or a certificate) of which the agent holds the private half."""

    def __init__(self, socket_path: str, blob: bytes, comment: str) -> None:
        self.socket_path = socket_path
        self.blob = blob
        self.comment = comment
        self.key_type = Message(blob).get_string().decode("latin-1")
        self.trouble = ""  # why the agent did not sign, if it did not
        self.public_blob = None  # paramiko shows this instead of the key, when a certificate is set

    def asbytes(self) -> bytes:
        return self.blob

    def get_name(self) -> str:
        return self.key_type

    def get_bits(self) -> int:
        return 0

    def can_sign(self) -> bool:
        return True

    @property
    def _fields(self) -> tuple[str, bytes]:
        return (self.key_type, self.blob)

    def sign_ssh_data(self, data: bytes, algorithm: str | None = None) -> Message:
        """The signature. What the agent refuses becomes an empty one, which the server turns down:
        an exception here would end paramiko's transport, and with it the trial of the other keys.
        """
        name = (algorithm or self.key_type).replace("-cert-v01@openssh.com", "")
        request = _string(self.blob) + _string(data) + struct.pack(">I", RSA_FLAGS.get(name, 0))
        try:
            kind, answer = _ask(self.socket_path, bytes([SIGN]) + request, SIGN_LIMIT_S)
            if kind != SIGNED:
                raise AgentError("it refused to sign")
            return Message(Message(answer).get_string())
        except AgentError as error:
            self.trouble = str(error)
            return Message(_string(name.encode("ascii")) + _string(b""))


def keys(socket_path: str, timeout_s: float) -> list[AgentKey]:
    """The keys that the agent offers, in its order. Raises AgentError."""
    kind, answer = _ask(socket_path, bytes([LIST]), timeout_s)
    if kind != LISTED:
        raise AgentError(f"it does not list its keys (answer {kind})")
    message = Message(answer)
    found = []
    for _ in range(min(message.get_int(), LONGEST_ANSWER_BYTES // 8)):
        blob, comment = message.get_string(), message.get_string()
        if blob:
            found.append(AgentKey(socket_path, blob, comment.decode("utf-8", "replace")))
    return found


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _ask(socket_path: str, request: bytes, timeout_s: float) -> tuple[int, bytes]:
    """(type of the answer, its content)."""
    until = time.monotonic() + timeout_s
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(timeout_s)
            line.connect(socket_path)
            line.sendall(_string(request))
            (size,) = struct.unpack(">I", _read(line, 4, until))
            if not 1 <= size <= LONGEST_ANSWER_BYTES:
                raise AgentError("it does not speak the agent's protocol")
            answer = _read(line, size, until)
    except TimeoutError as error:
        raise AgentError(f"it gave no answer in {timeout_s:g} s") from error
    except FileNotFoundError as error:
        raise AgentError("there is no such socket") from error
    except ConnectionRefusedError as error:
        raise AgentError("nobody serves this socket any more") from error
    except BlockingIOError as error:
        raise AgentError("it takes no more questions") from error
    except (OSError, ValueError) as error:  # a path too long for a socket comes without strerror
        raise AgentError(str(getattr(error, "strerror", None) or error)) from error
    return answer[0], answer[1:]


def _read(line: socket.socket, size: int, until: float) -> bytes:
    parts = b""
    while len(parts) < size:
        line.settimeout(max(0.001, until - time.monotonic()))
        more = line.recv(size - len(parts))
        if not more:
            raise AgentError("it hung up")
        parts += more
    return parts
