"""The table: each stream that a server may speak, and what a right client reads in it.

In:  nothing. Out: CASES, one `Case` a row. The true times are not here: the scripted server notes
them when it speaks.
"""

from __future__ import annotations

from .case import Case
from .cases_ends import ENDS
from .cases_errors import ERRORS
from .cases_framing import FRAMING
from .cases_meaning import MEANING
from .cases_odd import ODD

CASES: list[Case] = [*MEANING, *FRAMING, *ERRORS, *ENDS, *ODD]

__all__ = ["CASES", "Case"]
