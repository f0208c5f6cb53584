"""The library that draws the interactive figures, as it travels inside the page.

In: plotly.min.js of the installed plotly package. Out: its text, compressed for the page, and the
digests by which the page's own policy lets its scripts run. The same input gives the same bytes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from importlib import resources


def text() -> bytes:
    return resources.files("plotly").joinpath("package_data/plotly.min.js").read_bytes()


def packed(script: bytes) -> str:
    """Compressed and in base64: 2 MB rather than 5. The browser unpacks it by itself."""
    return base64.b64encode(gzip.compress(script, 9, mtime=0)).decode("ascii")


def digest(script: bytes) -> str:
    """As a Content-Security-Policy wants it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script).digest()).decode("ascii")
