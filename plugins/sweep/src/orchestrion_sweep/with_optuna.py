"""Values by optuna's tree-structured Parzen estimator (Bergstra et al. 2011), from earlier trials.

Each suggestion depends on the trial's number and on what was told before, and on nothing else: the
sampler is seeded anew for each. A resumed sweep asks and tells all over again, in order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrion import JSON, Key, UsageError
from orchestrion_sweep.plan import SweepPlan
from orchestrion_sweep.settings import Dimension, rises
from orchestrion_sweep.space import Values, rounded

FILE = "optuna.log"


class Study:
    """A study of optuna in the sweep's folder, which this process alone writes to; begun anew.

    Raises:
        UsageError: optuna is not installed.
    """

    def __init__(self, plan: SweepPlan, folder: Path) -> None:
        try:
            import optuna
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend
        except ImportError:
            raise UsageError(
                "`method: optuna` needs optuna: pip install 'orchestrion-sweep[optuna]'"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._plan = optuna, plan
        for left in (FILE, f"{FILE}.lock"):
            with suppress(FileNotFoundError):
                (folder / left).unlink()
        settings = plan.settings
        self._distributions = {
            path: self._distribution(dimension) for path, dimension in plan.space.dimensions.items()
        }
        self._key = Key(plan.base.seed).child("sweep")
        # As many draws as a third of the sweep, before anything is concluded from them.
        self._startup = max(2, min(10, (settings.trials or 0) // 3))
        self._study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(folder / FILE))),
            directions=["maximize" if rises(name) else "minimize" for name in settings.objectives],
            pruner=optuna.pruners.MedianPruner(n_startup_trials=self._startup),
        )
        self._asked: dict[int, Any] = {}

    def _distribution(self, dimension: Dimension) -> Any:
        kinds = self._optuna.distributions
        if dimension.choice is not None:
            return kinds.CategoricalDistribution(range(len(dimension.choice)))
        if dimension.integers is not None:
            return kinds.IntDistribution(*dimension.integers)
        assert dimension.range is not None
        return kinds.FloatDistribution(*dimension.range, log=dimension.log_uniform is not None)

    def ask(self, numbers: Sequence[int]) -> list[Values]:
        """Return the values of trials that are to run at once."""
        values: list[Values] = []
        for number in numbers:
            self._study.sampler = self._optuna.samplers.TPESampler(
                seed=self._key.child(number).integer() % 2**32, n_startup_trials=self._startup
            )
            self._asked[number] = trial = self._study.ask(self._distributions)
            values.append(self._values(trial.params))
        return values

    def _values(self, params: Mapping[str, Any]) -> dict[str, JSON]:
        values: dict[str, JSON] = {}
        for path, dimension in self._plan.space.dimensions.items():
            value = params[path]
            if dimension.choice is not None:
                value = dimension.choice[value]
            elif dimension.integers is None:
                value = rounded(value, dimension)
            values[path] = value
        return values

    def goes_on(self, number: int, step: int, value: float) -> bool:
        """Take a trial's objective after an iteration of its training.

        Return whether it is not below the median of finished trials.
        """
        self._asked[number].report(value, step)
        return not self._asked[number].should_prune()

    def tell(self, number: int, status: str, figures: Sequence[float]) -> None:
        """Take how a trial ended: "completed" with its figures, "pruned" or "failed"."""
        states = self._optuna.trial.TrialState
        trial = self._asked.pop(number)
        if status == "completed":
            self._study.tell(trial, list(figures))
        else:
            self._study.tell(trial, state=states.PRUNED if status == "pruned" else states.FAIL)
