"""Every error that a user may see.

DraftbenchError
├── ConfigError        a mistake in the experiment's config: file, key, what is allowed
├── PlanError          a planned thing that cannot be: does not fit, exceeds the time budget
├── WorkloadError      a data source that is missing, altered or malformed
├── ModelError         a checkpoint that is missing, unreadable or does not match its partner
├── ServerError        a server that did not start, died, hung or is not the one planned
├── LeaseError         GPUs or a port that could not be had
├── MeasurementError   a cell that ended without valid evidence
└── ResultsError       recorded rows that are missing or corrupt
"""

import sys
from collections.abc import Callable


class DraftbenchError(Exception):
    """One line for the user; `exit_on_error` prints it without a traceback."""


class ConfigError(DraftbenchError):
    """A mistake in the experiment's config."""


class PlanError(DraftbenchError):
    """A planned session or study that cannot be carried out."""


class WorkloadError(DraftbenchError):
    """A workload source that is missing, altered or malformed."""


class ModelError(DraftbenchError):
    """A checkpoint that is missing, unreadable or does not match its partner."""


class ServerError(DraftbenchError):
    """A server that did not start, died, hung or is not the planned one; `failure_class` names the kind."""

    def __init__(self, message: str, failure_class: str = "crash", log_tail: str = "") -> None:
        super().__init__(message)
        self.failure_class = failure_class
        self.log_tail = log_tail


class LeaseError(DraftbenchError):
    """GPUs or a port that could not be had in time."""


class MeasurementError(DraftbenchError):
    """A cell that ended without valid evidence; `failure_class` names the kind."""

    def __init__(self, message: str, failure_class: str = "invalid") -> None:
        super().__init__(message)
        self.failure_class = failure_class


class ResultsError(DraftbenchError):
    """Recorded rows that are missing or corrupt."""


def exit_on_error(main: Callable[[], int | None]) -> None:
    """Run a script's `main`; a DraftbenchError becomes one line on stderr and exit code 1."""
    try:
        code = main()
    except DraftbenchError as error:
        print(f"draftbench: {error}", file=sys.stderr)
        sys.exit(1)
    sys.exit(code or 0)
