"""The server that a job leased, as the load generator sees it."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from draftbench.load.run_file import PlannedSession
from draftbench.load.session_player import PlayedServer

REDACTED = "(redacted)"
_SECRET = re.compile(r"(?:^|_)token$|secret|passw|credential|api_?key|private_?key", re.IGNORECASE)
_SCHEDULER_FACTS = ("effective_max_running_requests_per_dp", "decode_cuda_graph_bs")
"""What SGLang's scheduler resolved for itself; the rest of its `internal_states` are copies and counters."""


@dataclass(frozen=True)
class ServedInstance:
    """One launch of a session's server; `neighbours` are the other sessions alive on the node.

    `ready_seconds` from launch to the first real generation.
    `is_warm` and `mark_warm` speak of this very instance: a restarted server is cold.
    """

    url: str
    instance_id: str
    devices: tuple[str, ...]
    neighbours: tuple[str, ...]
    command: tuple[str, ...]
    ready_seconds: float | None
    is_alive: Callable[[], bool]
    note_progress: Callable[[], None]
    is_warm: Callable[[], bool]
    mark_warm: Callable[[], None]

    @property
    def played(self) -> PlayedServer:
        """What the session player needs of it."""
        return PlayedServer(self.instance_id, self.is_alive, self.note_progress)


@contextmanager
def leased(session: PlannedSession) -> Iterator[ServedInstance]:
    """Lease the session's server inside a Snakemake run; raises LeaseError and ServerError."""
    from draftbench.servers import leases

    context = leases.RunContext.from_environment()
    spec = leases.ServerSpec.model_validate(session.server_spec)
    with leases.lease(spec, context) as state:
        yield ServedInstance(
            url=state.url,
            instance_id=state.instance_id,
            devices=device_names(state.device, [(gpu.index, gpu.uuid) for gpu in state.gpus]),
            neighbours=tuple(state.neighbours),
            command=tuple(state.command),
            ready_seconds=state.ready_s,
            is_alive=state.is_running,
            note_progress=lambda: leases.note_progress(context, spec.session),
            is_warm=lambda: leases.is_warm(context, state),
            mark_warm=lambda: leases.mark_warm(context, state),
        )


def device_names(device: str, gpus: list[tuple[int, str | None]]) -> tuple[str, ...]:
    """GPUs by UUID, by number where the UUID is unknown; a CPU server holds `cpu`."""
    if device == "cpu":
        return ("cpu",)
    return tuple(uuid or f"gpu{index}" for index, uuid in gpus)


def resolved_settings(server_info: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a server reports, without counters that change and without secrets."""
    settings = {key: _redacted(key, value) for key, value in server_info.items() if key != "internal_states"}
    states = server_info.get("internal_states") or [{}]
    return settings | {key: states[0][key] for key in _SCHEDULER_FACTS if key in states[0]}


def redacted_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with the values of secrets hidden."""
    return {name: REDACTED if _SECRET.search(name) else value for name, value in environment.items()}


def _redacted(key: str, value: Any) -> Any:
    return REDACTED if value is not None and isinstance(value, str) and _SECRET.search(key) else value
