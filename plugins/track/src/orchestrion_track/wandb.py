"""A run in Weights & Biases."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from attrs import frozen

from orchestrion_track.interfaces import Backend, Point, RunInfo, Tracker


@frozen
class Wandb(Tracker):
    """A run in Weights & Biases; its key comes from WANDB_API_KEY or `wandb login`.

    Args:
        project: its name.
        entity: the user or team it belongs to; by default the user's.
        mode: "offline" writes into `wandb` in the run's folder; `wandb sync` uploads that.
        base_url: of a server of your own.
        report: whether to keep `config.yaml` and `report.json` with the run at its end.
    """

    project: str = "orchestrion"
    entity: str | None = None
    mode: Literal["online", "offline"] = "online"
    base_url: str | None = None
    report: bool = False

    needs: ClassVar[tuple[str, ...]] = ("wandb",)
    extra: ClassVar[str] = "orchestrion-track[wandb]"

    def connect(self, run: RunInfo, known: str | None, sent: int) -> Backend:
        import wandb

        settings: dict[str, Any] = {"silent": True, "console": "off", "x_disable_stats": True}
        if self.base_url is not None:
            settings["base_url"] = self.base_url
        run_of_wandb: Any = wandb.init(
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            id=known or uuid.uuid4().hex[:12],
            name=run.name,
            dir=str(run.directory),
            config=dict(run.config),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(**settings),
        )
        return _WandbRun(run_of_wandb)


class _WandbRun:
    held: int | None = None

    def __init__(self, run: Any) -> None:
        self._run, self.id = run, str(run.id)

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            self._run.log(dict(point.values), step=point.step, commit=True)

    def attach(self, file: Path) -> None:
        self._run.log_artifact(str(file), name=f"{self.id}-{file.stem}", type="report")

    def finish(self, status: str) -> None:
        self._run.summary["orchestrion/status"] = status
        self._run.finish(exit_code=1 if status == "failed" else 0)
