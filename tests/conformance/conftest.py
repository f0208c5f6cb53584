"""As in tests/unit."""

from tests.unit.conftest import no_child_is_left

__all__ = ["no_child_is_left"]
