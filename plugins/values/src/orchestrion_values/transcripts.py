"""A model of transcripts: what ending pays, what agents reply, and the best plan.

Source: posterior sampling for reinforcement learning (Osband, Russo, Van Roy 2013) on a finite
horizon. A state is the set of agents that were called, the last two choices, and the replies to
them: what `replies` keeps of these.

    pays(state, end)       what ending pays: linear in features of the state
    says(reply, state, a)  the probability of a reply to choice a, after the last choice and reply
    costs(a)               what a choice pays itself: its mean

Deviations:
1. The plan knows how many turns are left; the model has only their number as a feature.
2. Means of what ending pays are cut at the lowest and the highest outcome seen; draws are not.
How the numbers are estimated: see `estimates`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from attrs import frozen

from orchestrion_values.arrays import Floats, Ints, Mask

SETS = 150_000
"""Up to so many numbers of a plan's step, the sets of agents are told apart."""

LATE, DONE = -2, -1
"""Ends of an episode that are no choices: at a limit, and by itself after the last turn."""
OVER = "over"
"""The reply after which an episode was over by itself."""


class Played(NamedTuple):
    """What is kept of an episode with t turns.

    Args:
        problem: its id.
        category: of the problem.
        choices: that were made [t].
        replies: to them, by `replies.words_of` [t].
        rewards: of them [t].
        end: the choice that ended the episode, or `LATE` or `DONE`.
        outcome: the reward of the end.
        paid: the reward of the choice `end` itself.
    """

    problem: str
    category: str
    choices: Sequence[int]
    replies: Sequence[str]
    rewards: Sequence[float]
    end: int
    outcome: float
    paid: float = 0.0


@frozen(eq=False)
class Tables:
    """A model as numbers, for k choices, h replies, c categories and a agents.

    Args:
        agents: the agent of each choice [k]; "" for stopping.
        heard: each reply as its choice and signature [h]; the first stands for the beginning, and
            the signature "" for a reply that was never met.
        categories: names [c].
        weights: of the features, by group; that of the constant is called "constant".
        says: probabilities of replies to their choices, by the last reply [h, h].
        costs: reward of each choice [k].
        late: outcome at a limit.
        bounds: of outcomes.
    """

    agents: tuple[str, ...]
    heard: tuple[tuple[int, str], ...]
    categories: tuple[str, ...]
    weights: Mapping[str, Floats]
    says: Floats
    costs: Floats
    late: float
    bounds: tuple[float, float]

    @property
    def choice(self) -> Ints:
        """Return the choice of each reply [h]; k at the beginning."""
        return np.array([choice for choice, _ in self.heard])

    def pays(self, category: str) -> Floats:
        """Return what ending pays, but for the end and the turns [sets, h, h]."""
        w, k, choice = self.weights, len(self.agents), self.choice
        result = w["constant"] + w["last"][choice] + w["reply"]
        result = result + w["pair"].reshape(k + 1, k + 1)[choice][:, choice]
        if "pair_reply" in w:
            result += w["pair_reply"].reshape(k + 1, -1)[choice]
        if "reply_last" in w:
            result += w["reply_last"].reshape(-1, k + 1)[:, choice]
        if category in self.categories and "category" in w:
            place, c = self.categories.index(category), len(self.categories)
            result = result + w["category"][place]
            result += w["category_last"].reshape(c, k + 1)[place, choice]
            if "category_reply" in w:
                result += w["category_reply"].reshape(c, -1)[place]
            if "category_pair" in w:
                result += w["category_pair"].reshape(c, k + 1, k + 1)[place][choice][:, choice]
        count = int(bits_of(self.agents).max(initial=0)).bit_length()
        members = (np.arange(2**count)[:, None] >> np.arange(count)) & 1
        inside: Floats = members @ w["called"]
        return inside[:, None, None] + result

    def ends(self, end: int, pays: Any, turns: int) -> Any:
        """Return the values of ending in some states.

        Args:
            end: the choice that ends the episode; k for an end by itself.
            pays: of the states, as `pays` gives it.
            turns: so far.
        """
        w = self.weights
        total = pays + w["turns"][min(turns, len(w["turns"]) - 1)]
        if "end" in w:
            total = total + w["end"][end]
        total = np.clip(total, *self.bounds)
        return total + self.costs[end] if end < len(self.agents) else total


def bits_of(agents: Sequence[str]) -> Ints:
    """Return the bit of each choice in the set of called agents [k]; zeros if it is not kept."""
    names = [name for name in dict.fromkeys(agents) if name]
    if 2 ** len(names) * len(agents) ** 3 > SETS:
        return np.zeros(len(agents), np.int64)
    return np.array([1 << names.index(name) if name else 0 for name in agents])


def set_of(agents: Sequence[str], choices: Sequence[int]) -> int:
    """Return the set of the agents that these choices call, as bits."""
    return int(np.bitwise_or.reduce(bits_of(agents)[list(choices)], initial=0)) if choices else 0


@frozen(eq=False)
class Plan:
    """The best plan for problems of one category.

    Args:
        pays: of states, see `Tables` [sets, h, h].
        ahead: values of choices that go on, by turns so far, set and reply [turns, sets, h, k].
    """

    pays: Floats
    ahead: Floats


def plan(tables: Tables, category: str, ending: Mask, turns: int) -> Plan:
    """Return the best plan by backward induction.

    Args:
        tables: of the model.
        category: of the problem; what all have in common counts if it was never met.
        ending: whether a choice ends the episode [k].
        turns: the most of an episode; at the limit it is too late to end it.
    """
    k, h, choice = len(tables.agents), len(tables.heard), tables.choice
    over = np.array([pattern == OVER for _, pattern in tables.heard])
    owner = np.eye(k + 1)[choice][:, :k]
    pays = tables.pays(category)
    sets = np.arange(len(pays))[:, None] | bits_of(tables.agents)  # after a choice [sets, k]
    after = sets[:, None], np.arange(h)[:, None], np.arange(k)
    ahead = np.empty((turns, len(pays), h, k))
    value = np.full(pays.shape, tables.late)
    for n in reversed(range(turns)):
        if over.any():
            value = np.where(over, tables.ends(k, pays, n + 1), value)
        ahead[n] = ((tables.says * value) @ owner)[after] + tables.costs
        going = np.where(ending, -np.inf, ahead[n]).max(axis=2)
        value = np.broadcast_to(going[:, None], pays.shape)
        for end in np.flatnonzero(ending).tolist():
            value = np.maximum(value, tables.ends(end, pays, n))
    return Plan(pays, ahead)
