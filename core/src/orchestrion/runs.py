"""Runs: train, open, ask, use, evaluate, read, and compare.

run = train("team.yaml")  # in a coroutine: await atrain("team.yaml")
run.report, run.metrics(), run.turns(source="train")
async with load("runs/team") as team:
    answer = await team("What is it?")
route = router("runs/team")
async with open_run("runs/team") as trained:
    episode = await trained.engine.run(...)
with RunReader(Path("runs/team")) as reader:
    ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrion._lazy import names_on_first_use

if TYPE_CHECKING:
    from orchestrion._asking import AskedTeam as AskedTeam
    from orchestrion._asking import TeamAnswer as TeamAnswer
    from orchestrion._asking import load as load
    from orchestrion._comparison import ComparedResult as ComparedResult
    from orchestrion._comparison import Comparison as Comparison
    from orchestrion._comparison import compare_outcomes as compare_outcomes
    from orchestrion._conversation import problem_and_turns as problem_and_turns
    from orchestrion._engine.budget import Allowance as Allowance
    from orchestrion._engine.budget import paying as paying
    from orchestrion._forecast import Forecast as Forecast
    from orchestrion._forecast import forecast_of as forecast_of
    from orchestrion._forecast import spent_before as spent_before
    from orchestrion._manifest import manifest as manifest
    from orchestrion._progress import Progress as Progress
    from orchestrion._report import Report as Report
    from orchestrion._routing import Route as Route
    from orchestrion._routing import Router as Router
    from orchestrion._routing import router as router
    from orchestrion._session import fewer_collections as fewer_collections
    from orchestrion._statistics import Estimate as Estimate
    from orchestrion._statistics import convergence as convergence
    from orchestrion._statistics import difference as difference
    from orchestrion._statistics import estimate as estimate
    from orchestrion._statistics import mean as mean
    from orchestrion._store.conduct import orders_by_category as orders_by_category
    from orchestrion._store.conversations import StoredCall as StoredCall
    from orchestrion._store.diagnosis import Finding as Finding
    from orchestrion._store.diagnosis import diagnose as diagnose
    from orchestrion._store.episodes import StoredEpisode as StoredEpisode
    from orchestrion._store.files import make_folder as make_folder
    from orchestrion._store.files import write_atomic as write_atomic
    from orchestrion._store.glance import Glance as Glance
    from orchestrion._store.glance import glance as glance
    from orchestrion._store.glance import run_folders as run_folders
    from orchestrion._store.glance import run_identity as run_identity
    from orchestrion._store.lock import RunLock as RunLock
    from orchestrion._store.names import find_run as find_run
    from orchestrion._store.notes import add_note as add_note
    from orchestrion._store.pages import EpisodeFilter as EpisodeFilter
    from orchestrion._store.pages import EpisodeOrder as EpisodeOrder
    from orchestrion._store.pages import EpisodePage as EpisodePage
    from orchestrion._store.pages import EpisodeRow as EpisodeRow
    from orchestrion._store.reader import Iteration as Iteration
    from orchestrion._store.reader import RunReader as RunReader
    from orchestrion._store.run_store import RunStore as RunStore
    from orchestrion._store.serial import as_data as as_data
    from orchestrion._store.serial import structure as structure
    from orchestrion._store.spending import dollars_by_part as dollars_by_part
    from orchestrion._stored import stored_config as stored_config
    from orchestrion._stored import stored_report as stored_report
    from orchestrion._stored import stored_results as stored_results
    from orchestrion._stored_run import Run as Run
    from orchestrion._trained import Trained as Trained
    from orchestrion._trained import newest_checkpoint as newest_checkpoint
    from orchestrion._trained import newest_states as newest_states
    from orchestrion._trained import open_run as open_run
    from orchestrion._trained import run_directory as run_directory
    from orchestrion._training import aevaluate as aevaluate
    from orchestrion._training import aresume as aresume
    from orchestrion._training import atrain as atrain
    from orchestrion._training import evaluate as evaluate
    from orchestrion._training import resume as resume
    from orchestrion._training import train as train

__getattr__, __dir__, __all__ = names_on_first_use(__name__)
