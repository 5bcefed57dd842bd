"""Plans over transcripts at work: a model that scores choices, and what is kept of episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from orchestrion_encoders.interfaces import places_of

from orchestrion import Experience, Situation
from orchestrion_values.arrays import Floats, Mask, under
from orchestrion_values.policy import RecordedChoice, ValuePolicy
from orchestrion_values.replies import Cue, Cues, signature, words_of
from orchestrion_values.transcripts import DONE, LATE, Plan, Played, Tables, plan, set_of

PLAYED = 3
"""A plan is proved by so many episodes that went like it."""
UNKNOWN = "\0"
"""Stands for categories that were not met in training."""


class TranscriptModel:
    """Scores choices by plans: by who was called, and what was replied last.

    Args:
        tables: of the model.
        cues: of replies that it knows, by agent.
        policy: its choices are scored.
        turns: the most of an episode.
    """

    def __init__(self, tables: Tables, cues: Cues, policy: ValuePolicy, turns: int) -> None:
        self.tables, self.cues, self.turns = tables, cues, turns
        self._ending, self._places = policy.ending, places_of(policy.choices)
        self._heard = {reply: i for i, reply in enumerate(tables.heard)}
        self._plans: dict[str, Plan] = {}

    def scores(self, situations: Sequence[Situation], allowed: Mask) -> Floats:
        """Return the values of choices in each situation [n, k]."""
        return np.array([self._score(situation) for situation in situations])

    def _score(self, situation: Situation) -> Floats:
        turns, k = situation.trajectory.turns, len(self._ending)
        choices = [self._places.get((turn.agent, turn.option), k) for turn in turns]
        last_two = [words_of(turn) for turn in turns[-2:]]
        return self.after(situation.problem.category, choices, last_two)

    def after(self, category: str, choices: Sequence[int], replies: Sequence[str]) -> Floats:
        """Return the values of choices [k].

        Args:
            category: of the problem.
            choices: so far; k for a turn of somebody else.
            replies: at least to the last two of them, by `words_of`.
        """
        k = len(self._ending)
        category = category if category in self.tables.categories else UNKNOWN
        if category not in self._plans:
            self._plans[category] = plan(self.tables, category, self._ending, self.turns)
        best = self._plans[category]
        called = set_of(self.tables.agents, [choice for choice in choices if choice < k])
        heard = [self._place(*pair) for pair in zip(choices[-2:], replies[-2:], strict=True)]
        before, reply = [0, 0, *heard][-2:]
        count = min(len(choices), self.turns - 1)
        result: Floats = best.ahead[count, called, reply].copy()
        for end in np.flatnonzero(self._ending).tolist():
            result[end] = self.tables.ends(end, best.pays[called, before, reply], count)
        return result

    def _place(self, choice: int, reply: str) -> int:
        """Return the place of a reply to a choice; that of the beginning for none of ours."""
        if choice == len(self._ending):
            return 0
        pattern = signature(reply, self.cues.get(self.tables.agents[choice], ()))
        return self._heard.get((choice, pattern), self._heard[choice, ""])

    def proved(self, played: Sequence[Played]) -> bool:
        """Return whether episodes that went as planned did at least as well as all in the mean.

        What a plan promises is a sum of many estimates, and can be far from anything that was
        tried.
        """
        rewards = np.array([e.outcome + e.paid + sum(e.rewards) for e in played])
        own = np.array([self._goes_like(episode) for episode in played])
        return int(own.sum()) >= PLAYED and float(rewards[own].mean()) >= float(rewards.mean())

    def _goes_like(self, episode: Played) -> bool:
        choices = [*episode.choices, *([episode.end] if episode.end >= 0 else [])]
        return all(
            self.after(episode.category, choices[:i], episode.replies[:i]).argmax() == choice
            for i, choice in enumerate(choices)
        )

    def save(self) -> tuple[dict[str, Any], Any]:
        """Return arrays and plain data."""
        t = self.tables
        arrays = {f"weights.{name}": weights for name, weights in t.weights.items()}
        data = {
            "agents": list(t.agents),
            "heard": [list(reply) for reply in t.heard],
            "categories": list(t.categories),
            "late": t.late,
            "bounds": list(t.bounds),
            "cues": {agent: [list(cue) for cue in cues] for agent, cues in self.cues.items()},
            "turns": self.turns,
        }
        return {**arrays, "says": t.says, "costs": t.costs}, data

    @classmethod
    def load(cls, arrays: Mapping[str, Any], data: Any, policy: ValuePolicy) -> TranscriptModel:
        least, most = data["bounds"]
        tables = Tables(
            tuple(data["agents"]),
            tuple((choice, pattern) for choice, pattern in data["heard"]),
            tuple(data["categories"]),
            under(arrays, "weights."),
            arrays["says"],
            arrays["costs"],
            data["late"],
            (least, most),
        )
        cues = {agent: [Cue(*cue) for cue in cues] for agent, cues in data["cues"].items()}
        return cls(tables, cues, policy, data["turns"])


def played_of(policy: ValuePolicy, experience: Experience[RecordedChoice]) -> Played:
    """Return what is kept of an episode."""
    episode = experience.episode
    made = [step.choice for step in experience.taken]
    after = [step.situation.trajectory for step in experience.taken[1:]]
    last_turns = [past.last for past in (*after, episode.trajectory)]
    replies = ["" if turn is None else words_of(turn) for turn in last_turns]
    rewards = list(experience.rewards)
    rewards[-1] -= experience.outcome
    end, paid = LATE if episode.status == "limit" else DONE, 0.0
    if policy.ending[made[-1]]:
        end, paid = made.pop(), rewards.pop()
        replies.pop()
    problem = episode.problem
    outcome = experience.outcome
    return Played(problem.id, problem.category, made, replies, rewards, end, outcome, paid)
