"""From config and machine to servers: what the session hash covers, and what a job asks a lease for."""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftbench.checkpoint_files import model_identity
from draftbench.config import Arm, ExperimentConfig
from draftbench.errors import PlanError
from draftbench.hardware import Inventory, device_identity, runs_on
from draftbench.models import ModelFacts
from draftbench.servers.flags import embedded_command, sglang_command
from draftbench.servers.gpu_blocks import GpuDevice, pseudo_devices
from draftbench.servers.server_spec import ServerSpec

_VERSION_PACKAGE = {"embedded": "torch", "sglang": "sglang"}
SELF_TEST_FILE = Path(".cache/engine-self-test.json")
"""Written by `make setup`: `python -m draftbench.engine.self_test`."""

_PROBE_IDS = (1, 2, 198, 1, 2)
"""Any short prompt: readiness asks for a generation, not for sense."""


@dataclass(frozen=True)
class SelfTest:
    """What the embedded engine's self-test chose on this machine, the same for every arm."""

    dtype: str
    threads: int


def read_self_test(project: Path) -> SelfTest | None:
    """The recorded choice; None where the self-test has not run."""
    path = project / SELF_TEST_FILE
    if not path.is_file():
        return None
    content = json.loads(path.read_text())
    return SelfTest(dtype=content["dtype"], threads=content["threads"])


@dataclass(frozen=True)
class SessionSpecs:
    """Builds the specification of any (arm, tensor parallelism) of one experiment on one machine."""

    config: ExperimentConfig
    project: Path
    inventory: Inventory
    drafter: ModelFacts | None
    self_test: SelfTest | None

    @functools.cached_property
    def device(self) -> str:
        """Cuda or cpu."""
        return runs_on(self.inventory, self.config.engine_entry.device)

    @functools.cached_property
    def engine_version(self) -> str:
        """Version of the engine's decisive package, read without starting its interpreter."""
        return installed_version(self._python, _VERSION_PACKAGE[self.config.engine_entry.kind])

    def spec(self, arm: Arm, tp: int) -> Mapping[str, Any]:
        """Everything that can move a number of this session; paths enter by the digest of what lies there."""
        return {
            "command": self._command(arm, tp, python="python", target="target", drafter="drafter", name="served"),
            "environment": self.config.engine_entry.environment,
            "engine": [self.config.engine_entry.kind, self.engine_version],
            "device": device_identity(self.inventory, self._device_kind),
            "tensor_parallelism": tp,
            **self._model_identities,
        }

    def server_spec(
        self, session: str, spec_hash: str, arm: Arm, tp: int, devices: tuple[GpuDevice, ...]
    ) -> ServerSpec:
        """The lease request of one session; the log lies beside its records."""
        serving, entry = self.config.serving, self.config.engine_entry
        log = self.project / "results" / self.config.experiment / "sessions" / session / "server.log"
        return ServerSpec(
            session=session,
            spec_hash=spec_hash,
            command=tuple(
                self._command(
                    arm,
                    tp,
                    python=str(self._python),
                    target=str(self.project / self.config.target.path),
                    drafter=str(self.project / self.config.drafter.path) if self.config.drafter else None,
                    name=session,
                )
            ),
            environment=entry.environment,
            device=self._device_kind,
            tp=tp,
            devices=devices,
            exclusive=self.config.packing == "exclusive",
            port=serving.port,
            log_path=log,
            working_dir=self.project,
            probe_ids=_PROBE_IDS,
            expected_info={"served_model_name": session},
            ready_timeout_s=serving.startup_timeout,
            grace_s=serving.stop_grace,
            hang_timeout_s=serving.hang_timeout,
        )

    def devices(self, units: int) -> tuple[GpuDevice, ...]:
        """GPUs that sessions may choose from, or as many pseudo devices as Snakemake grants units."""
        if self.device == "cuda":
            return tuple(gpu.device for gpu in self.inventory.gpus)
        return pseudo_devices(units)

    @property
    def _device_kind(self) -> Any:
        return self.device

    @property
    def _python(self) -> Path:
        return self.project / self.config.engine_entry.python

    @functools.cached_property
    def _model_identities(self) -> dict[str, str | None]:
        drafter = self.config.drafter
        return {
            "target": model_identity(self.config.target, self.project),
            "drafter": model_identity(drafter, self.project) if drafter else None,
        }

    def _command(self, arm: Arm, tp: int, *, python: str, target: str, drafter: str | None, name: str) -> list[str]:
        shared: dict[str, Any] = {
            "python": python,
            "target": target,
            "drafter": drafter,
            "served_model_name": name,
            "random_seed": self.config.seed,
            "device": self.device,
        }
        entry = self.config.engine_entry
        if entry.kind == "sglang":
            block_size = self.drafter.count("block_size") if self.drafter else None
            return sglang_command(arm, self.config.serving, entry, **shared, tp=tp, drafter_block_size=block_size)
        return embedded_command(arm, self.config.serving, entry, **shared, **self._embedded_choices())

    def _embedded_choices(self) -> dict[str, Any]:
        entry = self.config.engine_entry
        if entry.dtype != "auto" and (entry.threads is not None or self.device == "cuda"):
            return {"dtype": entry.dtype, "threads": entry.threads}
        if self.self_test is None:
            raise PlanError(
                f"engines.{self.config.engine}: dtype and threads are chosen by a self-test that has not run here; "
                "run `make setup`, or set both"
            )
        return {
            "dtype": self.self_test.dtype if entry.dtype == "auto" else entry.dtype,
            "threads": entry.threads or self.self_test.threads,
        }


def installed_version(python: Path, package: str) -> str:
    """The version by the metadata folder beside an interpreter; `unknown` where there is none."""
    found = sorted(python.parent.parent.glob(f"lib/python*/site-packages/{package}-*.dist-info"))
    return found[-1].name.removeprefix(f"{package}-").removesuffix(".dist-info") if found else "unknown"
