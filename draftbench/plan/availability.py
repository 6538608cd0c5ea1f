"""What must be free or granted when sessions are really launched; a plan on another machine does not ask."""

import socket
from collections.abc import Iterable

from draftbench.errors import PlanError
from draftbench.matrix import Session
from draftbench.plan.inputs import PlanInputs


def check_port(inputs: PlanInputs) -> None:
    """Raise PlanError where the fixed port of the servers is taken."""
    port = inputs.config.serving.port
    if port is None:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            raise PlanError(
                f"{inputs.file_name}: serving.port {port} is in use; stop what listens there, or set it to null"
            ) from None


def check_units(inputs: PlanInputs, units: int | None, sessions_to_run: Iterable[Session]) -> None:
    """Raise PlanError where `--resources gpus=` grants fewer units than a session that must run needs.

    `units` None = the resource was not given, which Snakemake takes as unlimited, so it is refused too.
    """
    needed = max((session.tensor_parallelism for session in sessions_to_run), default=0)
    if needed == 0:
        return
    if units is None:
        raise PlanError(f"{inputs.file_name}: sessions must run, but no GPU is granted; add --resources gpus={needed}")
    if units < needed:
        raise PlanError(
            f"{inputs.file_name}: a session at tp {needed} must run, but --resources gpus={units} grants {units}; "
            f"pass --resources gpus={needed} or more"
        )
    there = len(inputs.inventory.gpus)
    if inputs.device == "cuda" and units > there:
        raise PlanError(
            f"--resources gpus={units} grants more GPUs than the node shows ({there}); pass --resources gpus={there}"
        )
