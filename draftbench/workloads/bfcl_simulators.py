"""Runs BFCL's simulators out of its wheel: `python -S -s -P bfcl_simulators.py BFCL_WHEEL MPMATH_WHEEL`.

A program of its own, so that the wheels' modules never enter draftbench's process: sessions as JSON lines on
stdin, tool results as JSON lines on stdout.
The simulators are trusted, pinned code.
Calls are dispatched by name from a given list of allowed names; no text is evaluated.

Results depend on nothing but the wheel and the calls: each session runs in a fork of its own (a simulator keeps
state in module globals), the date is pinned (a traveller's age is computed from it), and the caller sets TZ=UTC.
"""

import copy
import importlib
import json
import os
import sys
from datetime import datetime
from typing import Any

SIMULATOR_MODULES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
MODULE_PREFIX = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code."
STATELESS = ("MathAPI",)
PINNED_DAY = (2026, 3, 23)


class PinnedDatetime(datetime):
    """`datetime` on the day of the wheel's release."""

    @classmethod
    def today(cls) -> "PinnedDatetime":
        """Return midnight of the pinned day."""
        return cls(*PINNED_DAY)


def load_simulators() -> dict[str, type]:
    """Import the simulator classes from the wheels on sys.path."""
    modules = {name: importlib.import_module(MODULE_PREFIX + file) for name, file in SIMULATOR_MODULES.items()}
    vars(modules["TravelAPI"])["datetime"] = PinnedDatetime
    return {name: getattr(module, name) for name, module in modules.items()}


def run_session(classes: dict[str, type], session: dict[str, Any]) -> list[str]:
    """Execute a session's calls in order on fresh simulators."""
    simulators = [
        _start(classes[name], name, session["initial_config"], session["long_context"])
        for name in session["involved_classes"]
    ]
    return [_execute(simulators, session["allowed"], call) for call in session["calls"]]


def _start(simulator_class: type, name: str, configs: dict[str, Any], long_context: bool) -> Any:
    simulator = simulator_class()
    if name not in STATELESS:
        simulator._load_scenario(copy.deepcopy(configs.get(name, {})), long_context=long_context)
    return simulator


def _execute(simulators: list[Any], allowed: list[str], call: dict[str, Any]) -> str:
    """Return the result as BFCL writes it; BFCL's last simulator with a method of that name wins."""
    owners = [simulator for simulator in simulators if hasattr(simulator, call["name"])]
    if call["name"] not in allowed or call["name"].startswith("_") or not owners:
        return f"Error during execution: name '{call['name']}' is not defined"
    try:
        return as_text(getattr(owners[-1], call["name"])(**call["arguments"]))
    except Exception as error:  # whatever a simulator raises is the tool's answer, as in BFCL
        return f"Error during execution: {error}"


def as_text(result: Any) -> str:
    """Return a tool result as BFCL's executor puts it into the conversation."""
    if isinstance(result, str):
        return result
    if isinstance(result, dict):
        try:
            return json.dumps(result)
        except TypeError:
            return str(result)
    return str(result)


def run_forked(classes: dict[str, type], session: dict[str, Any]) -> list[str]:
    """Run a session in a child process, so that it leaves no trace for the next."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as stream:
            json.dump(run_session(classes, session), stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        answer = stream.read()
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"session {session['item_id']}: simulator ended with status {status}")
    results: list[str] = json.loads(answer)
    return results


def main() -> None:
    """Answer each session on stdin by one line on stdout."""
    sys.path[:0] = sys.argv[1:]
    classes = load_simulators()
    for line in sys.stdin:
        print(json.dumps(run_forked(classes, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
