"""When a starting server is ready: it generates for real, and is the planned one. /health alone proves neither."""

import time

from draftbench.servers import probe
from draftbench.servers.background import BackgroundCall
from draftbench.servers.server_spec import ServerSpec

RETRY_INTERVAL_S = 0.1


class ReadinessCheck:
    """Asks the server again and again beside the main thread, until it is ready or the timeout is over.

    `problem` says at any time what is still missing.
    """

    def __init__(self, spec: ServerSpec, port: int) -> None:
        self.problem = "it never answered"
        self._spec = spec
        self._port = port
        self._deadline = time.monotonic() + spec.ready_timeout_s
        self._call = BackgroundCall(self._run)

    def is_done(self) -> bool:
        """Whether `error` and `is_ready` can be read."""
        return self._call.is_done()

    @property
    def is_ready(self) -> bool:
        """Whether the tokens came and the identity holds."""
        return bool(self._call.result)

    @property
    def error(self) -> Exception | None:
        """What waiting will not cure: a wrong number of tokens, another server than planned."""
        return self._call.error

    def is_overdue(self) -> bool:
        """Whether the timeout is over."""
        return time.monotonic() > self._deadline

    def _run(self) -> bool:
        while not self.is_overdue():
            if probe.is_healthy(self._port):
                self.problem = "/health is fine, but nothing was generated"
                problem = self._generate()
                if problem is None:
                    probe.check_identity(self._port, self._spec.session, self._spec.expected_info)
                    return True
                self.problem = problem
            time.sleep(RETRY_INTERVAL_S)
        return False

    def _generate(self) -> str | None:
        left_s = max(1.0, self._deadline - time.monotonic())
        return probe.probe_generation(self._port, self._spec.probe_ids, self._spec.probe_tokens, left_s)
