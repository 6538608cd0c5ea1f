"""However a run ends, nothing of it is left and the next one simply goes on."""

import os
import signal
import time

import pytest

from tests.workflow.conftest import Workbench, stub_config

pytestmark = pytest.mark.workflow


def _wait(condition: object, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: signal.Signals(s).name
)
def test_a_killed_run_leaves_nothing_and_the_next_goes_on(bench: Workbench, number: int) -> None:
    """No process, lock or port left; cells finished before are kept; the next run needs no --unlock."""
    content = stub_config(blocks=1)
    content["engines"]["stub"]["flags"] = {"stub-step-ms": 20}
    bench.write_config(content)
    process = bench.start()
    assert _wait(lambda: len(bench.cell_files()) >= 1 or process.poll() is not None, 120)
    first = bench.cell_files()
    time.sleep(3)  # until Snakemake has noted them as finished, which dates them anew
    before = {path: date for path, date in bench.cell_files().items() if path in first}
    assert process.poll() is None, process.communicate()[0][-3000:]

    os.kill(process.pid, number)
    process.communicate(timeout=60)

    assert _wait(lambda: not bench.processes(), 20), [p.cmdline() for p in bench.processes()]
    finished = bench.run()
    assert finished.code == 0, finished.output[-3000:]
    assert before.items() <= bench.cell_files().items()
    assert len(bench.cell_files()) == 6


def test_a_second_measuring_run_is_refused_with_one_line(bench: Workbench) -> None:
    """Two runs never measure into one results folder; the first is not disturbed."""
    content = stub_config(blocks=1)
    content["engines"]["stub"]["flags"] = {"stub-step-ms": 20}
    bench.write_config(content)
    first = bench.start()
    assert _wait(lambda: any(bench.results.glob("sessions/*/launch.json")), 60)

    second = bench.run()

    assert second.code == 1
    assert "is being measured into by another run" in second.output
    assert "Traceback" not in second.output
    output, _ = first.communicate(timeout=240)
    assert first.returncode == 0, output[-3000:]
