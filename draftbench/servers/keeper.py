"""The keeper: a small process that owns one server and the kernel-held locks of its GPUs and ports.

It outlives the job that started it, so that the next cell finds the server warm, but never the run:
it stops the server when the run's main process is gone, after a time without use, when asked to (SIGTERM),
when the server hangs, or when the server dies. If the keeper itself is killed, the kernel kills the server, and
whoever next wants the GPUs reaps what is left by its mark.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

from draftbench.errors import ServerError
from draftbench.servers import probe, server_log, server_state
from draftbench.servers.background import BackgroundCall
from draftbench.servers.failure_classes import FailureClass, classify, describe_exit, telling_line
from draftbench.servers.gpu_monitor import GpuMonitor, wait_for_baseline
from draftbench.servers.keeper_messages import KeeperOrder, KeeperReport, send_report
from draftbench.servers.locks import FileLock
from draftbench.servers.processes import ProcessIdentity, become_subreaper, end_children, reap_marked
from draftbench.servers.readiness import ReadinessCheck
from draftbench.servers.server_launch import describe_start, gpu_numbers, start_server
from draftbench.servers.server_state import ServerEnd, ServerState

POLL_INTERVAL_S = 0.2


@dataclass(frozen=True)
class End:
    """Why a server's life ends; no class when it was meant to."""

    reason: str
    failure_class: FailureClass | None = None


class Keeper:
    """One server's life, from start to the end of its last child."""

    def __init__(self, order: KeeperOrder) -> None:
        self.order = order
        self.spec = order.spec
        self.run = order.run
        self.identity = ProcessIdentity.current()
        self.mark = f"{self.identity}:{self.spec.session}"
        self.stop_requested = False
        self.monitor = GpuMonitor.open(order.gpus) if self.spec.device == "cuda" else None
        self.baseline_mib = self.monitor.used_mib() if self.monitor else []
        self.idle_lock: FileLock | None = None
        self.hang_probe: BackgroundCall | None = None
        self.next_hang_check = time.monotonic() + self.spec.hang_timeout_s
        self.process: subprocess.Popen[bytes]
        self.state: ServerState

    def live(self) -> None:
        """Start the server, report, watch it, and clear up."""
        refusal = self._refusal() or self._start()
        if refusal is not None:
            send_report(KeeperReport(ready=False, reason=refusal))
            return
        end = self._wait_until_ready()
        if end is None:
            self._record_ready()
            send_report(KeeperReport(ready=True))
            self._finish(self._watch())
            return
        tail = self._log_tail()
        self._finish(end)  # before the report: the job that hears of it finds GPUs and ports free
        send_report(KeeperReport(ready=False, reason=end.reason, failure_class=end.failure_class, log_tail=tail))

    def _refusal(self) -> str | None:
        if not self.order.main.is_alive():
            return "the run is gone"
        strangers = self.monitor.compute_processes() if self.monitor else []
        if not strangers:
            return None
        pids = ", ".join(map(str, strangers))
        return (
            f"other processes compute on GPU {gpu_numbers(self.order)}: pid {pids}; wait for them, or leave the GPU out"
        )

    def _start(self) -> str | None:
        """Start the server; the reason where its program cannot be run at all."""
        for descriptor in self.order.lock_descriptors:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self.mark.encode(), 0)
        command = self.spec.command_line(self.order.port, self.order.nccl_port)
        offset = server_log.append_header(self.spec, gpu_numbers(self.order), command)
        started = time.time()
        try:
            self.process = start_server(self.order, command, self.mark)
        except OSError as error:
            return f"{command[0]} cannot be started: {error}"
        self.state = describe_start(self.order, command, self.mark, self.process.pid, offset, started)
        self._write_state()
        return None

    def _write_state(self) -> None:
        server_state.write_record(server_state.state_path(self.run, self.spec.session), self.state)

    def _record_ready(self) -> None:
        ready_s = round(time.time() - self.state.started_unix_s, 3)
        self.state = self.state.model_copy(update={"phase": "ready", "ready_s": ready_s})
        self._write_state()
        server_state.write_previous_block(self.run, self.spec.session, self.order.gpus)

    def _wait_until_ready(self) -> End | None:
        """Wait for a real generation by the planned server; None when it came."""
        check = ReadinessCheck(self.spec, self.order.port)
        while not check.is_done():
            end = self._interruption("during start-up")
            if end is not None:
                return end
            if check.is_overdue():
                return self._overdue(check.problem)
            time.sleep(0.05)
        if check.is_ready:
            return None
        if isinstance(check.error, ServerError):
            return End(str(check.error), FailureClass(check.error.failure_class))
        return self._interruption("during start-up") or self._overdue(check.problem)

    def _overdue(self, problem: str) -> End:
        tail = self._log_tail()
        failure_class = classify(tail, None, timed_out=True)
        detail = problem if failure_class == FailureClass.STARTUP_TIMEOUT else telling_line(tail, failure_class)
        return End(f"not ready after {self.spec.ready_timeout_s:g} s: {detail}", failure_class)

    def _interruption(self, when: str) -> End | None:
        """What ends the server from outside, or its own death."""
        exit_code = self.process.poll()
        if exit_code is not None:
            tail = self._log_tail()
            failure_class = classify(tail, exit_code)
            line = telling_line(tail, failure_class)
            return End(f"the server {describe_exit(exit_code)} {when}" + (f": {line}" if line else ""), failure_class)
        if self.stop_requested:
            return End(f"stopped {when}")
        if not self.order.main.is_alive():
            return End(f"the run ended {when}")
        return None

    def _watch(self) -> End:
        while True:
            end = self._interruption("while ready") or self._idle_end() or self._hang_end()
            if end is not None:
                return end
            time.sleep(POLL_INTERVAL_S)

    def _idle_end(self) -> End | None:
        unused_s = time.time() - server_state.last_used(self.run, self.spec.session)
        if unused_s < self.spec.idle_timeout_s:
            return None
        # Kept to the end: a job that comes now waits, and then starts the server anew.
        self.idle_lock = FileLock.try_take(server_state.busy_lock_path(self.run, self.spec.session))
        return End(f"unused for {self.spec.idle_timeout_s:g} s") if self.idle_lock else None

    def _hang_end(self) -> End | None:
        """A leased server that gives no token for the timeout is asked for one; no answer means it hangs."""
        if self.hang_probe is None:
            self._ask_if_silent()
            return None
        if not self.hang_probe.is_done():
            return None
        answered, self.hang_probe = self.hang_probe.result, None
        if answered:
            server_state.touch(server_state.progress_path(self.run, self.spec.session))
            return None
        silence = f"no token for {self.spec.hang_timeout_s:g} s and no answer to a probe"
        return End(f"the server hangs: {silence}", FailureClass.HANG)

    def _ask_if_silent(self) -> None:
        if time.monotonic() < self.next_hang_check:
            return
        self.next_hang_check = time.monotonic() + self.spec.hang_timeout_s / 10
        silent_s = time.time() - server_state.last_progress(self.run, self.spec.session)
        if silent_s > self.spec.hang_timeout_s and server_state.is_busy(self.run, self.spec.session):
            spec, port = self.spec, self.order.port
            self.hang_probe = BackgroundCall(lambda: probe.answers(port, spec.probe_ids, spec.hang_timeout_s))

    def _finish(self, end: End) -> None:
        """TERM, grace, KILL; then everything marked, everything adopted, and the GPUs' memory."""
        self._record_end(end)
        self._signal_group(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(self.spec.grace_s)
        self._signal_group(signal.SIGKILL)
        self.process.wait()
        reap_marked(self.mark)
        end_children()
        self._wait_for_memory()
        server_log.append_line(self.spec.log_path, f"{self.state.instance_id} ended: {end.reason}")
        server_state.state_path(self.run, self.spec.session).unlink(missing_ok=True)

    def _record_end(self, end: End) -> None:
        record = ServerEnd(
            instance_id=self.state.instance_id,
            reason=end.reason,
            failure_class=end.failure_class,
            exit_code=self.process.poll(),
            log_tail=self._log_tail(),
        )
        server_state.write_record(server_state.end_path(self.run, self.spec.session), record)

    def _signal_group(self, signal_number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal_number)

    def _wait_for_memory(self) -> None:
        if self.monitor is None:
            return
        if not wait_for_baseline(self.monitor.used_mib, self.baseline_mib, self.spec.memory_timeout_s):
            used = f"{self.monitor.used_mib()} MiB after the server's end, {self.baseline_mib} MiB before its start"
            server_log.append_line(self.spec.log_path, f"GPU memory in use: {used}")

    def _log_tail(self) -> str:
        return server_log.read_log_tail(self.spec.log_path, self.state.log_offset)


def main() -> None:
    """Read the order from stdin and keep the server until its end."""
    keeper = Keeper(KeeperOrder.model_validate_json(sys.stdin.read()))

    def request_stop(_signal: int, _frame: object) -> None:
        keeper.stop_requested = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    become_subreaper()
    keeper.live()


if __name__ == "__main__":
    main()
