"""Learning in use: what a served model decided is logged, with what its users thought of it.

Nothing is learned while it serves: a version is frozen. `orchestrion learn` makes a new one from
the log, which is tried beside the old one (`canary`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal
from weakref import WeakKeyDictionary

from attrs import frozen
from orchestrion_logged import Feedback, ServedLog, ServedRequest, ServedStep, read

from orchestrion import (
    Key,
    OrchestrionError,
    Problem,
    Status,
    StoreError,
    UsageError,
    replace,
)
from orchestrion.runs import TeamAnswer, Trained, add_note
from orchestrion_serve.canary import Canary, VersionTrial, trials_of
from orchestrion_serve.exploring import Exploration, Watched
from orchestrion_serve.keys import Keys
from orchestrion_serve.names import logs_of
from orchestrion_serve.recording import OpenRequest, decisions_of
from orchestrion_serve.refusals import Refusal
from orchestrion_serve.verifying import Verifier

Note = Callable[[str], None]
SCORES = 20
"""Limit of scores and comments for one answer: more would push other requests out of the log."""


@frozen
class UseSettings:
    """What is logged, explored, verified and tried.

    Args:
        folder: the log of a model is the folder of its name in this one.
        contents: whether questions and answers are logged too.
        size: bytes of one model's log; beyond it the oldest requests are removed.
        explore: the share of decisions that is drawn at random.
        explore_budget: the estimated cost at which exploring ends; None for no limit.
        verify: "task", or a function as "module:function" from question and answer to a score.
        verify_share: of answers that are verified.
        trial: how a new version is tried.
    """

    folder: Path
    contents: bool = False
    size: int = 100_000_000
    explore: float = 0.0
    explore_budget: float | None = None
    verify: str | None = None
    verify_share: float = 0.0
    trial: VersionTrial = VersionTrial()


class InUse:
    """The log of one model, and what follows from it.

    Args:
        model: its name.
        team: the version that serves.
        new: the version that is tried.
        note: called with what a person should know.
        own: the folder of a client's own log within that of all logs; "" for the one of the rest.
    """

    def __init__(
        self,
        model: str,
        settings: UseSettings,
        team: Trained,
        new: Trained | None = None,
        note: Note = lambda text: None,
        own: str = "",
    ) -> None:
        self.model, self._settings, self._new, self._note = model, settings, new, note
        self._said: set[str] = set()
        self._verifier = Verifier(
            settings.verify, settings.verify_share, self._verified, self._say_once
        )
        self._versions: WeakKeyDictionary[Trained, tuple[str, Watched]] = WeakKeyDictionary()
        self._requests: dict[str, ServedRequest] = {}
        """Requests by id; each holds only what it has in common with others of its kind."""
        self._ids: dict[str, str] = {}
        """Request ids by the key of their episode; the latest request wins."""
        self._of_file: dict[int, list[tuple[str, str]]] = {}
        """Ids and keys of the requests in each file of the log."""
        self._kinds: dict[ServedRequest, ServedRequest] = {}
        self._scores: dict[str, dict[str, float]] = {}
        """Scores by request id and author ("user" or "verifier")."""
        self._times: Counter[str] = Counter()
        """Number of scores and comments by request id."""
        self.exploration = Exploration(settings.explore, settings.explore_budget)
        self._syncing = asyncio.Lock()
        self._next_sync: asyncio.Task[None] | None = None
        """The sync that covers what is appended now."""
        self._serving = ""
        """The version that serves; not the one on trial."""
        self._runs: dict[str, Path] = {}
        """Run folders by version."""
        folder = settings.folder / own / model
        self._log = ServedLog(folder, settings.size, note, self._removed)
        self.canary: Canary | None = None
        try:
            self.canary = self._resumed(folder, team)
        except BaseException:
            self._log.close()
            raise

    def _resumed(self, folder: Path, team: Trained) -> Canary | None:
        """Take over what the log says; return the trial, if there is one."""
        log = read(folder)
        for text in log.notes:
            self._note(f"{folder}: {text}")
        for request in log.served.values():
            self._remember(request, self._log.number - 1)
        for score in log.scores:
            self._scored(score)
        for step in log.steps:
            if step.step == "serving":
                self._serving = step.version
        old = self._version(team)[0]
        if self._new is None:
            return None
        new = self._version(self._new)[0]
        if new == old:
            self._note(f"{self.model}: the canary is the version that is served; nothing is tried")
            return None
        for canary in trials_of(log):
            if (canary.old, canary.new) == (old, new):
                return canary
        canary = Canary(old, new, self._settings.trial)
        self._step(canary.begun(str(self._new.directory or "")))
        return canary

    # ------------------------------------------------------------------ requests

    def version_for(self, team: Trained, key: Key) -> tuple[Trained, float]:
        """Return the version that answers an episode, and the probability of that."""
        canary = self.canary
        if canary is None or self._new is None:
            return team, 1.0
        if (version := self._version(team)[0]) != canary.old:
            self._say_once(
                f"{version} was opened, and answers all requests: {canary.new} was tried beside "
                f"{canary.old}"
            )
            return team, 1.0
        new, share = canary.assign(key)
        return (self._new if new else team), share

    def begin(
        self,
        identity: str,
        tenant: str,
        team: Trained,
        problem: Problem,
        key: Key,
        share: float | None,
    ) -> OpenRequest:
        """Return the record of a request whose episode is about to begin.

        `share` is that of `version_for`; None if its client asked for this version alone: then it
        is no part of a trial.
        """
        version, policy = self._version(team)
        tried, canary = "", self.canary
        if canary is not None and canary.verdict is None and share is not None:
            tried = canary.new if version in (canary.old, canary.new) else ""
        request = ServedRequest(
            identity, self.model, version, tenant, key.hex(), canary=tried, share=share or 1.0
        )
        return OpenRequest(request, policy, policy.follow(key, problem.text), problem)

    def ended(self, answered: OpenRequest, answer: TeamAnswer | None) -> None:
        """Log a request whose episode has ended; None if it was cancelled or broke off."""
        trace, request = answered.trace, answered.request
        answered.policy.forget(trace)
        unanswered = answer is not None and (
            answer.status is Status.FAILED
            or (answer.text is None and answer.status in (Status.COMPLETED, Status.LIMIT))
        )
        status = str(answer.status.value) if answer is not None else "cancelled"
        status = "failed" if unanswered else status
        turns = answer.turns if answer is not None else trace.trajectory.turns
        lines = decisions_of(answered, turns, self._settings.contents)
        request = replace(
            request,
            status=status,
            decisions=len(lines),
            explored=any(seen.explored for seen in trace.seen),
            time=round(time.time(), 3),
        )
        try:
            number = self._log.append(*lines, request)
        except (OrchestrionError, TypeError, ValueError) as error:  # the answer goes out anyway
            self._say_once(f"a request is not logged: {error}")
            return
        self._remember(request, number)
        if (canary := self.canary) is not None and request.canary == canary.new:
            self._step(canary.answered())
        if unanswered:
            # Nobody scores an answer that he did not get; a version must not gain by that.
            record = Feedback(request.served, 0.0, "verifier", "no answer", request.time)
            try:
                self._log.append(record)
            except StoreError as error:
                self._say_once(f"a score is not logged: {error}")
            self._step(self._scored(record))
        elif answer is not None:
            self._verifier.answered(request.served, answered.problem, answer, trace.key)

    def _version(self, team: Trained) -> tuple[str, Watched]:
        """Return the version of a team, and its policy as it is watched."""
        known = self._versions.get(team)
        if known is None:
            engine = team.engine
            policy = engine.team.policy
            watched = Watched(policy, engine.team.roster, self.exploration)
            if (place := engine.places.get(id(policy))) is not None:
                engine.places[id(watched)] = place
            known = self._versions[team] = (team.version, watched)
            if team.directory is not None:
                self._runs[team.version] = team.directory
            if team is not self._new and known[0] != self._serving:
                self._serving = known[0]
                self._step(ServedStep("serving", known[0], {"run": str(team.directory or "")}))
        return known

    def _remember(self, request: ServedRequest, number: int) -> None:
        """Remember a request, as long as its file is there."""
        if request.explored and request.served not in self._requests:
            self.exploration.requests += 1
        # Of each kind one record is kept: there may be a million requests.
        kind = replace(request, served="-", key="", status="", decisions=0, time=None, share=1.0)
        self._requests[request.served] = self._kinds.setdefault(kind, kind)
        if request.key:
            self._ids[request.key] = request.served
        self._of_file.setdefault(number, []).append((request.served, request.key))

    def _removed(self, number: int) -> None:
        """Forget the requests of files up to this one."""
        for old in [n for n in self._of_file if n <= number]:
            for identity, key in self._of_file.pop(old):
                self._requests.pop(identity, None)
                self._scores.pop(identity, None)
                self._times.pop(identity, None)
                if self._ids.get(key) == identity:
                    del self._ids[key]

    # ------------------------------------------------------------------ feedback

    def find(self, identity: str, tenant: str) -> str | None:
        """Return the id of a tenant's request, by its own or its episode's id; None for others'."""
        name = identity if identity in self._requests else self._ids.get(identity, "")
        request = self._requests.get(name)
        return name if request is not None and request.tenant == tenant else None

    async def feedback(
        self,
        identity: str,
        score: float,
        comment: str = "",
        by: Literal["user", "verifier"] = "user",
    ) -> str:
        """Keep a score from 0 to 1 of a known request.

        Returns:
            "recorded", "corrected" or "unchanged", when that is on disk.

        Raises:
            StoreError: it could not be written.
            Refusal: there is too much of it.
        """
        before = self._scores.get(identity, {}).get(by)
        if before != score or comment:
            if self._times[identity] >= SCORES:
                raise Refusal(429, "too_much_feedback", f"this answer was scored {SCORES} times")
            record = Feedback(identity, score, by, comment, round(time.time(), 3))
            self._log.append(record)
            self._step(self._scored(record))
        await self._durable()
        if before is None:
            return "recorded"
        return "unchanged" if before == score else "corrected"

    def _scored(self, record: Feedback) -> ServedStep | None:
        """Take a score into account; return the step of the trial that it leads to."""
        kind = self._requests.get(record.feedback)
        if kind is None:
            return None
        self._times[record.feedback] += 1
        scores = self._scores.setdefault(record.feedback, {})
        before = scores.get("user", scores.get("verifier"))
        scores[record.by] = record.score
        now = scores.get("user", record.score)
        self.exploration.scored(kind.explored, now, before)
        if self.canary is None:
            return None
        return self.canary.scored(replace(kind, served=record.feedback), record.score)

    async def _durable(self) -> None:
        """Wait until everything appended so far is on disk; concurrent callers share one sync."""
        if self._next_sync is None:
            self._next_sync = asyncio.create_task(self._sync())
        await asyncio.shield(self._next_sync)

    async def _sync(self) -> None:
        async with self._syncing:
            self._next_sync = None  # who comes now waits for the one after this
            await asyncio.to_thread(self._log.sync)

    async def _verified(self, identity: str, score: float) -> None:
        if identity in self._requests:
            await self.feedback(identity, score, by="verifier")

    # ------------------------------------------------------------------ steps, and the end

    def _step(self, step: ServedStep | None) -> None:
        """Log a step, and note it on the runs that it concerns."""
        if step is None:
            return
        try:
            self._log.step(replace(step, time=round(time.time(), 3)))
        except StoreError as error:  # a restart computes it anew
            self._say_once(f"a step is not logged: {error}")
        # A run tells later what became of its versions.
        for version in {step.version, str(step.data.get("old"))} & self._runs.keys():
            try:
                data = {"model": self.model, "log": str(self._log.folder), "version": step.version}
                add_note(self._runs[version], step.step, {**data, **step.data})
            except StoreError as error:
                self._say_once(f"a step is not noted on its run: {error}")
        if step.step != "serving":
            self._note(f"{self.model}: {step.step}: {step.version}")

    def _say_once(self, text: str) -> None:
        if text not in self._said and len(self._said) < 100:
            self._said.add(text)
            self._note(f"{self.model}: {text}")

    async def close(self) -> None:
        """Wait for verifications, for a while, and close the log."""
        await self._verifier.close()
        self._log.close()


@asynccontextmanager
async def using(
    teams: Mapping[str, Trained],
    settings: UseSettings,
    new: Trained | None = None,
    note: Note = lambda text: None,
    keys: Keys | None = None,
) -> AsyncIterator[Mapping[str, InUse]]:
    """Open the logs of models until the block ends: by MODEL, those of clients by FOLDER/MODEL.

    Args:
        teams: by model name.
        settings: the same for all.
        new: a version of the only model, to be tried.
        note: called with what a person should know.
        keys: whose clients may have logs of their own, of the models that they may ask for.

    Raises:
        StoreError: a log cannot be written to.
        UsageError: a log is damaged or has the name of a model, a key names a model that is not
            served, or the verifier cannot be loaded.
    """
    opened: dict[str, InUse] = {}
    try:
        for own, models in logs_of(teams, keys).items():
            if own in teams:
                raise UsageError(f"--keys: log={own}: a model has this name; choose another one")
            for name in sorted(models):
                place = f"{own}/{name}" if own else name
                opened[place] = InUse(name, settings, teams[name], new, note, own)
        yield opened
    finally:
        for use in opened.values():
            await use.close()
