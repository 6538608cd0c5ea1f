"""A call beside the main thread."""

from collections.abc import Callable
from threading import Thread
from typing import Any


class BackgroundCall:
    """A call in a thread, so that the main thread goes on watching processes and signals."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.result: Any = None
        self.error: Exception | None = None
        self._function = function
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.result = self._function()
        except Exception as error:
            self.error = error

    def is_done(self) -> bool:
        """Whether result or error are there."""
        return not self._thread.is_alive()
