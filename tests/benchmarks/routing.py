"""Which model to send a question to: learned, beside the routers people use, at several prices.

    python dev.py python -m tests.benchmarks.routing TABLE PRICES                # held out of it
    python dev.py python -m tests.benchmarks.routing TABLE PRICES TEST           # judged on TEST
    python dev.py python -m tests.benchmarks.routing TABLE PRICES - 0,0.05,0.2 seed=3 shift=2

TABLE and TEST are tables of scores as the task `recorded` reads them, with texts; PRICES has the
price of a call of each model. Without TEST (or `-`), 50 questions of each group that has 150 are
held out, others by other seeds (`held=1`); `shift=2` leaves whole groups out, every
fourth from the third, which is a test of how a router bears questions of a new kind. Then weights
of cost, and overrides of docs/examples/routing.yaml. `online=0` leaves out learning online.

`learned` and `learned online` are trained by the engine: the first plays every model on every
question, the second one model on each of 5,000 questions. All else is fitted here by scikit-learn
and torch, on TF-IDF (20,000 runs of one and two words) reduced to 100 components, or on all of it
(`ridge`). `kNN`, `SVM`, `MLP` and `MF` are what LLMRouter calls by these names: they learn the
label of the best model (5 neighbours; radial kernel; layers of 64 and 32; factors of 128 by pairs
of best and other). `100 neighbours` takes the mean score of each model among them. Nobody but
`oracle` and `best of group` is told a test question's group.

Intervals are 95 %, paired bootstrap over the questions judged. The area under the curve is the mean
accuracy over all prices between the cheapest and the dearest model, where a price between two
points of the curve is reached by tossing a coin; values at weight 0 give its points.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray
from orchestrion_recorded.reading import read_prices, read_table
from orchestrion_recorded.table import Row

from orchestrion import Key, Situation, SplitShares, Trajectory, split_of
from orchestrion.config import Config, load
from orchestrion.runs import RunReader, difference, open_run
from tests.benchmarks.support import EXAMPLES, train

CONFIG = EXAMPLES / "routing.yaml"
PER_GROUP, LEAST = 50, 150
ONLINE = 5000
NEIGHBOURS = 100
CURVE = (0, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.8, 1.2, 2, 5)
RESAMPLES = 1000

Floats = NDArray[np.float64]


@frozen(eq=False)
class Questions:
    """Texts, groups and scores [n, models]."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    groups: tuple[str, ...]
    scores: Floats


def questions(rows: Sequence[Row], models: Sequence[str]) -> Questions:
    """Rows of a table as arrays; a model without a score has 0."""
    told = [[row.answers.get(model) for model in models] for row in rows]
    scores = [[0.0 if a is None or a.score is None else a.score for a in row] for row in told]
    return Questions(
        tuple(row.id for row in rows),
        tuple(row.text for row in rows),
        tuple(row.group for row in rows),
        np.array(scores),
    )


def held_out(rows: Sequence[Row], seed: int, shift: int | None) -> set[str]:
    """Ids that are kept aside."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row.id)
    if shift is not None:
        return {name for group in sorted(groups)[shift::4] for name in groups[group]}
    chosen: set[str] = set()
    for group, ids in sorted(groups.items()):
        if len(ids) >= LEAST:
            Key(seed).child("routing", group).random().shuffle(ids)
            chosen |= set(ids[:PER_GROUP])
    return chosen


def write(path: Path, train: Questions, test: Questions, models: Sequence[str]) -> None:
    """One table, with ids that the task's split puts where they belong."""
    shares = SplitShares(0.5, 0.0, 0.5)
    lines = []
    for part, split in ((train, "train"), (test, "test")):
        for i, name in enumerate(part.ids):
            own = next(
                one
                for n in range(10_000)
                if split_of(one := f"{split}-{name}-{n}", shares) == split
            )
            scores = dict(zip(models, part.scores[i].tolist(), strict=True))
            fields = {"id": own, "group": part.groups[i], "question": part.texts[i]}
            lines.append(json.dumps({**fields, "scores": scores}))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def trained(
    table: Path, prices: Path, folder: Path, overrides: Sequence[str]
) -> tuple[Floats, float]:
    """Return rewards on the test questions, in their order, and CPU seconds of training."""
    settings = [
        f"task={{use: recorded, table: {table}, prices: {prices}, unit: none}}",
        "task.split={train: 0.5, validation: 0.0, test: 0.5}",
        f"agents.ask={{use: recorded, table: {table}}}",
        "evaluation.baselines={}",
        *overrides,
    ]
    config: Config = load(CONFIG, settings)
    spent, _ = train(config, folder)
    with RunReader(folder) as reader:
        rows: Mapping[str, Any] = reader.load_evaluations()["learned"]["outcomes"]
    order = sorted(rows, key=_place)
    return np.array([rows[name]["reward"] for name in order]), spent


def _place(name: str) -> int:
    """Return a question's place, from the id that `write` gave it."""
    return int(name.split("-")[1])


async def learned_values(folder: Path) -> Floats:
    """Return what a trained policy expects of each model on the test questions [n, models]."""
    async with open_run(folder) as run:
        policy = run.opened.runtimes["policy"]
        task = run.opened.runtimes["task"]
        problems = sorted(task.problems("test"), key=lambda one: _place(one.id))
        shown = [
            Situation(one, Trajectory(), task.start(one, Key(0)).observation) for one in problems
        ]
        scores = policy.model.scores(shown, policy.allowed(shown))
        order = [policy.names.index(f"ask:{model}") for model in task.models]
        result: Floats = scores[:, order]
        return result


# ------------------------------------------------------------------------------ routers


@frozen(eq=False)
class Features:
    """Of training and test questions: TF-IDF, and its components."""

    sparse: tuple[Any, Any]
    dense: tuple[Floats, Floats]


def features(train: Questions, test: Questions) -> Features:
    """Fitted on training questions."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(max_features=20_000, ngram_range=(1, 2))
    sparse = words.fit_transform(train.texts), words.transform(test.texts)
    components = TruncatedSVD(100, random_state=0).fit(sparse[0])
    return Features(sparse, (components.transform(sparse[0]), components.transform(sparse[1])))


def values(train: Questions, test: Questions, given: Features) -> dict[str, Floats]:
    """Return expected scores of each model on the test questions [n, models], by router."""
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import KNeighborsRegressor

    near = KNeighborsRegressor(NEIGHBOURS, metric="cosine").fit(given.dense[0], train.scores)
    ridge = Ridge(1.0).fit(given.sparse[0], train.scores)
    overall = train.scores.mean(axis=0)
    groups = np.array(train.groups)
    by_group = {g: train.scores[groups == g].mean(axis=0) for g in sorted({*train.groups})}
    return {
        "best single": np.tile(overall, (len(test.ids), 1)),
        "ridge": ridge.predict(given.sparse[1]),
        "100 neighbours": near.predict(given.dense[1]),
        "best of group": np.array([by_group.get(g, overall) for g in test.groups]),
        "oracle": test.scores,
    }


def labels(rewards: Floats, given: Features) -> dict[str, NDArray[np.int64]]:
    """Return the model chosen on each test question [n] by routers that learn labels."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC

    best = rewards.argmax(axis=1)
    x, new = given.dense
    result = {"MF": factors(x, rewards, new)}
    for name, model in (
        ("kNN", KNeighborsClassifier(5, metric="cosine")),
        ("SVM", SVC()),
        ("MLP", MLPClassifier((64, 32), early_stopping=True, random_state=0)),
    ):
        result[name] = model.fit(x, best).predict(new)
    return result


def factors(x: Floats, rewards: Floats, new: Floats) -> NDArray[np.int64]:
    """Matrix factorisation: v (P[model] * W q), by pairs of the best model and each other."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    models, width = rewards.shape[1], 128
    p = torch.nn.Parameter(torch.randn(models, width) / width**0.5)
    project, out = torch.nn.Linear(x.shape[1], width, bias=False), torch.nn.Linear(width, 1, False)
    optimiser = torch.optim.Adam([p, *project.parameters(), *out.parameters()], 1e-3)
    rows = torch.tensor(x / np.linalg.norm(x, axis=1, keepdims=True), dtype=torch.float32)
    best = torch.tensor(rewards.argmax(axis=1))

    def scored(q: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = out(project(q)[:, None] * p[None])[..., 0]
        return result

    for _ in range(30):
        for part in torch.split(torch.randperm(len(rows)), 256):
            score = scored(rows[part])
            ahead = score.gather(1, best[part, None]) - score
            loss = -torch.nn.functional.logsigmoid(ahead).mean()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    with torch.no_grad():
        unit = new / np.linalg.norm(new, axis=1, keepdims=True)
        chosen: NDArray[np.int64] = (
            scored(torch.tensor(unit, dtype=torch.float32)).argmax(1).numpy()
        )
    return chosen


# ------------------------------------------------------------------------------ figures


def area(scores: Floats, costs: Floats, low: float, high: float) -> float:
    """Return mean accuracy over prices from `low` to `high`, of points [points] of a curve."""
    hull: list[tuple[float, float]] = []
    for cost, score in sorted(zip(costs.tolist(), scores.tolist(), strict=True)):
        if hull and score <= hull[-1][1]:
            continue
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (cost - hull[-1][0]) <= (
            score - hull[-1][1]
        ) * (hull[-1][0] - hull[-2][0]):
            hull.pop()
        hull.append((cost, score))
    x, y = np.array(hull).T
    prices = np.linspace(low, high, 200)
    return float(np.interp(prices, x, y).mean())


def curve(expected: Floats, test: Questions, costs: Floats) -> tuple[Floats, Floats]:
    """Return scores and costs [points, n] along the weights."""
    chosen = np.array([(expected - w * costs).argmax(axis=1) for w in CURVE])
    rows = np.arange(len(test.ids))
    return test.scores[rows, chosen], costs[chosen]


def resampled(points: tuple[Floats, Floats], costs: Floats, seed: int = 0) -> tuple[float, ...]:
    """Return the area with its interval."""
    scores, prices = points
    rng = np.random.default_rng(seed)
    low, high = float(costs.min()), float(costs.max())
    draws = []
    for _ in range(RESAMPLES // 4):
        at = rng.integers(0, scores.shape[1], scores.shape[1])
        draws.append(area(scores[:, at].mean(axis=1), prices[:, at].mean(axis=1), low, high))
    ends = np.quantile(draws, [0.025, 0.975])
    return area(scores.mean(axis=1), prices.mean(axis=1), low, high), *map(float, ends)


def show(weight: float, mine: Floats, rewards: Mapping[str, Floats]) -> None:
    """Rewards at one weight, and how far the learned router is ahead of each."""
    for name, reward in rewards.items():
        ahead = difference(mine.tolist(), reward.tolist(), Key(1).child(name))
        mark = "*" if ahead.excludes_zero else " "
        print(
            f"{weight:6g}  {name:<18}{reward.mean():8.4f}   learned minus it {ahead.mean:+.4f} "
            f"[{ahead.low:+.4f}, {ahead.high:+.4f}]{mark}"
        )
    sys.stdout.flush()


def main(table: str, prices: str, test_table: str = "-", *rest: str) -> None:
    """Train and judge at each weight, then print curves."""
    weights = [0.0, 0.05, 0.2]
    if rest and "=" not in rest[0]:
        weights, rest = [float(w) for w in rest[0].split(",")], rest[1:]
    own = {name: int(value) for name, _, value in (one.partition("=") for one in rest)
           if name in ("shift", "online", "held")}  # fmt: skip
    overrides = [one for one in rest if one.partition("=")[0] not in own]
    whole = read_table(Path(table))
    models = whole.models
    listed = read_prices(Path(prices), models)
    costs = np.array([listed[model] for model in models])
    if test_table == "-":
        kept = held_out(whole.rows, own.get("held", 0), own.get("shift"))
        learn = questions([row for row in whole.rows if row.id not in kept], models)
        test = questions([row for row in whole.rows if row.id in kept], models)
    else:
        learn = questions(whole.rows, models)
        test = questions(read_table(Path(test_table)).rows, models)
    learn, test = _numbered(learn), _numbered(test)
    print(f"{len(models)} models, {len(learn.ids)} questions to learn from, {len(test.ids)} judged")
    given = features(learn, test)
    expected = values(learn, test, given)
    online = own.get("online", ONLINE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.jsonl"
        write(path, learn, test, models)
        for weight in weights:
            every = len(learn.ids) * len(models)
            changes = [f"reward.cost_weight={weight}", *overrides]
            full = [*changes, f"trainer.episodes={every}", "trainer.feedback=full"]
            mine, spent = trained(
                path, Path(prices).resolve(), Path(folder) / f"full-{weight:g}", full
            )
            print(f"\ncost weight {weight:g}: trained in {spent:.0f} s CPU")
            rewards = {"learned": mine}
            if online:
                played = [*changes, f"trainer.episodes={online}", "trainer.feedback=played"]
                rewards["learned online"], _ = trained(
                    path, Path(prices).resolve(), Path(folder) / f"online-{weight:g}", played
                )
            rows = np.arange(len(test.ids))
            for name, expect in expected.items():
                worth = test.scores - weight * costs
                rewards[name] = worth[rows, (expect - weight * costs).argmax(axis=1)]
            for name, chosen in labels(learn.scores - weight * costs, given).items():
                rewards[name] = test.scores[rows, chosen] - weight * costs[chosen]
            show(weight, mine, rewards)
            if weight == 0:
                values_at_0 = asyncio.run(learned_values(Path(folder) / "full-0"))
    if 0 in weights:
        expected = {"learned": values_at_0, **expected}
    print("\narea under the curve of accuracy at price, and accuracy at price along the weights")
    for name, expect in expected.items():
        points = curve(expect, test, costs)
        at, low, high = resampled(points, costs)
        along = [
            f"{s:.3f} at {c:.2f}"
            for s, c in zip(points[0].mean(axis=1), points[1].mean(axis=1), strict=True)
        ]
        print(f"{name:<18}{at:.4f} [{low:.4f}, {high:.4f}]  " + ", ".join(along[::3]))


def _numbered(given: Questions) -> Questions:
    """Return the same, with their place as id, so that order survives."""
    return Questions(
        tuple(map(str, range(len(given.ids)))), given.texts, given.groups, given.scores
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
