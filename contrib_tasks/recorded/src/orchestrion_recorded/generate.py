"""Made-up tables of recorded answers, with what makes real ones interesting.

Every question has a difficulty that all models feel, so their mistakes come together; every model
is better at some groups than at others; wrong answers gather at a popular one; and skill costs.

    P(model m is right on question q of group g) = logistic(s_m + a_mg - d_q)

with skills s_m from `weakest` to `strongest`, affinities a_mg and difficulties d_q logistic noise
scaled by `specialised` and `spread`. The i-th of n models costs dearest^(i / (n - 1)).
"""

from __future__ import annotations

from math import exp, log
from typing import Annotated

from attrs import frozen

from orchestrion import Key, Meta
from orchestrion_recorded.table import RecordedAnswer, Row, Table

Share = Annotated[float, Meta(ge=0, le=1)]


@frozen
class Generated:
    """What a made-up table is like. Models are called m1, m2, ... from weak and cheap to strong.

    Args:
        questions: how many.
        models: how many.
        groups: how many kinds of question.
        options: answers to choose from.
        weakest: skill of the first model, in logits.
        strongest: skill of the last one.
        specialised: how much better a model is at some groups than at others.
        spread: how much questions differ in difficulty.
        popular: how often a wrong answer is the question's popular one.
        none: how often a model gives no answer.
        missing: how often a model's answer is not recorded.
        dearest: price of the last model; the first costs 1.
        texts: every question has words, which depend on its group and on how hard it is.
        seed: another table of the same kind.
    """

    questions: Annotated[int, Meta(ge=1)] = 3000
    models: Annotated[int, Meta(ge=1, le=100)] = 6
    groups: Annotated[int, Meta(ge=1, le=100)] = 6
    options: Annotated[int, Meta(ge=2, le=26)] = 8
    weakest: float = -0.6
    strongest: float = 1.2
    specialised: Annotated[float, Meta(ge=0)] = 0.5
    spread: Annotated[float, Meta(ge=0)] = 0.8
    popular: Share = 0.4
    none: Share = 0.05
    missing: Share = 0.0
    dearest: Annotated[float, Meta(ge=1)] = 20.0
    texts: bool = False
    seed: int = 0


def generate(like: Generated) -> Table:
    """Return the table; equal settings give equal tables, on every machine."""
    key = Key(like.seed).child("recorded")
    models = tuple(f"m{i + 1}" for i in range(like.models))
    steps = max(like.models - 1, 1)
    skills = [
        like.weakest + (like.strongest - like.weakest) * i / steps for i in range(like.models)
    ]
    affinities = [
        [like.specialised * _noise(u) for u in key.child("group", g).uniforms(like.models)]
        for g in range(like.groups)
    ]
    rows = tuple(_question(like, key, n, models, skills, affinities) for n in range(like.questions))
    prices = {model: like.dearest ** (i / steps) for i, model in enumerate(models)}
    return Table("the generated table", models, rows, prices)


def _question(
    like: Generated,
    key: Key,
    number: int,
    models: tuple[str, ...],
    skills: list[float],
    affinities: list[list[float]],
) -> Row:
    draws = key.child("question", number).uniforms(4 + 4 * len(models))
    group = int(draws[0] * like.groups)
    difficulty = like.spread * _noise(draws[1])
    letters = [chr(ord("A") + i) for i in range(like.options)]
    right = letters.pop(int(draws[2] * like.options))
    popular = letters[int(draws[3] * len(letters))]
    answers = {}
    for i, model in enumerate(models):
        absent, silent, luck, other = draws[4 + 4 * i : 8 + 4 * i]
        if absent < like.missing:
            continue
        chance = 1 / (1 + exp(difficulty - skills[i] - affinities[group][i]))
        answer: str | None = right
        if luck >= chance:  # the rest of the draw says whether the mistake is the popular one
            follows = (luck - chance) / (1 - chance) < like.popular
            answer = popular if follows else letters[int(other * len(letters))]
        answers[model] = RecordedAnswer(None if silent < like.none else answer)
    text = _text(key.child("text", number), group, difficulty) if like.texts else ""
    return Row(f"q{number + 1}", f"g{group + 1}", right, like.options, answers, text=text)


def _text(key: Key, group: int, difficulty: float) -> str:
    """Return twelve words: half of them any, the others by the group and the difficulty."""
    words = []
    for kind, choice in zip(key.uniforms(12), key.child("words").uniforms(12), strict=True):
        if kind < 0.5:
            words.append(f"word{int(choice * 200)}")
        elif kind < 0.8:
            words.append(f"topic{group + 1}{chr(ord('a') + int(choice * 26))}")
        else:
            words.append(f"{'hard' if difficulty > 0 else 'plain'}{int(choice * 10)}")
    return " ".join(words)


def _noise(uniform: float) -> float:
    """Return logistic noise with deviation 1."""
    inside = min(max(uniform, 1e-9), 1 - 1e-9)
    return log(inside / (1 - inside)) * 0.5513288954217921  # sqrt(3) / pi
