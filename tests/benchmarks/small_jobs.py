"""What one or two hundred episodes are worth on small jobs, beside simple rules at as many.

    python dev.py python -m tests.benchmarks.small_jobs                      # all jobs, 5 seeds
    python dev.py python -m tests.benchmarks.small_jobs tickets auto 5
    python dev.py python -m tests.benchmarks.small_jobs review fitted-q 5 6      # seeds 6 to 10

Arguments: the job, the trainer, the number of seeds, the first of them. A seed draws a job anew.
`tickets` is a desk: 20 tickets, four chat agents of other skills and prices on the offline service,
a dollar, 100 episodes. `review` is docs/examples/code-review.yaml with other luck, 100 episodes.
`kinds` has own data: questions of two to four kinds, cheap agents that know one kind well and a
dear one that knows all, 200 episodes. `checked` has one to three writers that may try again, and
one or two checkers whose replies say, in words of their own, whether an answer is right, mostly
truly: 150 episodes. `desk` has writers that know one kind of question well, in half of the jobs
without a column that says the kind, and reviewers that say in one of several sentences what they
found, between others that mean nothing: 200 episodes.

Rules: `best-sequence` twice, as wide as the episodes allow and as deep; for `kinds`, the best agent
by category. The best of them in the mean is what learning is compared with. Intervals are 95 %,
Student's t over seeds, of the reward on problems kept aside. For `checked` and `desk` there is also
what a person would write who can read the verdicts: of all loops "a writer, a checker, at most n
times, until it is content", and each writer alone, the one that is the best on the training
problems of each category.
"""

from __future__ import annotations

import importlib
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from orchestrion_jsonl.task import Jsonl, divided
from orchestrion_offline.tickets import CATEGORIES
from ruamel.yaml import YAML

from orchestrion import Output, Problem, SplitShares, Trajectory, Turn, View
from orchestrion.config import from_data
from orchestrion.runs import train
from tests.benchmarks.support import EXAMPLES, interval

EPISODES = {"tickets": 100, "review": 100, "kinds": 200, "checked": 150, "desk": 200}
SEQUENCES: dict[str, dict[str, dict[str, int]]] = {
    # Finished episodes: problems x (1 + candidates of all lengths).
    "tickets": {
        "wide": {"problems": 20, "length": 1},
        "deep": {"problems": 11, "length": 2, "beam": 1},
    },
    "review": {
        "wide": {"problems": 11, "length": 1},
        "deep": {"problems": 4, "length": 3, "beam": 1},
    },
    "kinds": {},
    "checked": {
        "wide": {"problems": 14, "length": 2, "beam": 1},
        "deep": {"problems": 7, "length": 4, "beam": 1},
    },
    "desk": {
        "wide": {"problems": 20, "length": 2, "beam": 1},
        "deep": {"problems": 10, "length": 4, "beam": 1},
    },
}
AGENT = """
def {name}(view):
    row = ROWS[view.problem.text]
    luck = random.Random("{name}" + row["question"])
    right = luck.random() < SKILLS["{name}"][row["kind"]]
    return row["answer"] if right else "b" + str(luck.randrange(1000))
"""
WRITER = """
def {name}(view):
    row = ROWS[view.problem.text]
    before = sum(turn.agent == "{name}" for turn in view.turns)
    luck = random.Random("{name}" + row["question"] + str(before))
    right = luck.random() < WRITERS["{name}"][row["kind"]] + row["ease"]
    return row["answer"] if right else "b" + str(luck.randrange(1000))
"""
CHECKER = """
def {name}(view):
    row = ROWS[view.problem.text]
    before = [turn for turn in view.turns if turn.agent == "{name}"]
    luck = random.Random("{name}" + row["question"] + str(len(before)))
    accuracy, (good, bad), around = CHECKERS["{name}"]
    written = [turn.output.content for turn in view.turns if turn.agent in WRITERS]
    if not written:
        return "There is no answer yet."
    right = (written[-1] == row["answer"]) == (luck.random() < accuracy)
    if around:
        before, after = luck.sample(AROUND, around), luck.sample(AROUND, around)
        return " ".join([*before, luck.choice(good if right else bad), *after])
    return good if right else bad + luck.choice(["", " Try again.", " Look at " + written[-1]])
"""
VERDICTS = [
    ("PASS", "FAIL"),
    ("Approved.", "Rejected:"),
    ("yes", "no,"),
    ("The answer is correct.", "The answer is wrong."),
    ('{"verdict": "accept"}', '{"verdict": "revise"}'),
]

ACCEPTING = [
    "I would let it through.",
    "Every claim is backed by the record.",
    "We may close the case with this.",
    "It answers the question in full.",
    "I agree with the outcome.",
    "My own computation gives the same.",
]
REFUSING = [
    "I would not let it through.",
    "One of the claims has no support.",
    "It leaves the question open.",
    "My own computation gives another outcome.",
    "The record says otherwise.",
    "Whoever wrote this should start over.",
]
AROUND = [
    "This took me a while.",
    "The case came in this morning.",
    "I compared it with the record.",
    "As always, I looked at the question first.",
    "The style is a matter of taste.",
    "My notes are in the usual place.",
]


def tickets(seed: int, folder: Path) -> dict[str, Any]:
    """Return a drawn desk."""
    luck = random.Random(seed)
    speakers: dict[str, Any] = {}
    models: dict[str, Any] = {}
    agents: dict[str, Any] = {}
    for i in range(4):
        skill = luck.uniform(0.35, 0.97)
        skills = {}
        if luck.random() < 0.4:
            for category in luck.sample(CATEGORIES, 2):
                skills[category] = min(0.99, skill + luck.uniform(0.1, 0.4))
        checks = luck.choice([0.0, 0.0, luck.uniform(0.3, 0.9)])
        price = luck.choice([0.2, 0.4, 1.0, 2.0])
        speakers[f"s{i}"] = {"use": "clerk", "skill": skill, "skills": skills, "checks": checks}
        models[f"m{i}"] = {
            "use": "offline",
            "speaker": f"s{i}",
            "max_tokens": 100,
            "price": {"input": price, "output": 4 * price},
        }
        agents[f"a{i}"] = {"use": "chat", "model": f"m{i}", "instructions": "You sort tickets."}
    return {
        "seed": seed,
        "task": {"use": "tickets", "seed": seed},
        "speakers": speakers,
        "models": models,
        "agents": agents,
        "reward": {"use": "outcome-minus-cost", "measure": "usd", "cost_weight": 500},
        "limits": {"turns": 3},
        "budget": {"usd": 1},
    }


def write_job(seed: int, folder: Path, rows: Sequence[Any], code: Sequence[str]) -> None:
    """Write the rows of a job, and the module with its agents, into a folder."""
    sys.path.insert(0, str(folder))
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    by_text = {row["question"]: row for row in rows}
    parts = ["import random", f"ROWS = {by_text}", *code]
    (folder / f"parts{seed}.py").write_text("\n".join(parts))


def functions(seed: int, costs: Mapping[str, float]) -> dict[str, Any]:
    """Return agents that are the functions of a job's file."""
    return {
        name: {"use": "function", "function": f"parts{seed}:{name}", "give": "view", "cost": cost}
        for name, cost in costs.items()
    }


def kinds(seed: int, folder: Path) -> dict[str, Any]:
    """Return a drawn job with own data; its agents are functions in a file of the folder."""
    luck = random.Random(seed)
    names, cheap = [f"k{i}" for i in range(luck.randint(2, 4))], luck.randint(3, 5)
    rows = [
        {"question": f"item {i} of {seed}", "answer": f"a{i}", "kind": luck.choice(names)}
        for i in range(luck.choice([40, 60, 120]))
    ]
    skills: dict[str, dict[str, float]] = {}
    costs: dict[str, int] = {}
    for i in range(cheap):
        best = luck.choice(names)
        skills[f"w{i}"] = {
            name: round(luck.uniform(0.75, 1) if name == best else luck.uniform(0, 0.5), 2)
            for name in names
        }
        costs[f"w{i}"] = luck.choice([1, 1, 2])
    skills["big"] = {name: round(luck.uniform(0.8, 1), 2) for name in names}
    costs["big"] = luck.choice([5, 8, 10])
    code = [AGENT.format(name=name) for name in skills]
    write_job(seed, folder, rows, [f"SKILLS = {skills}", *code])
    return {
        "seed": seed,
        "task": {
            "use": "jsonl",
            "file": "rows.jsonl",
            "category": "kind",
            "split": {"train": 0.6, "validation": 0.0, "test": 0.4},
        },
        "agents": functions(seed, costs),
        "reward": {"use": "outcome-minus-cost", "cost_weight": 0.02},
        "limits": {"turns": 4},
    }


def checked(seed: int, folder: Path) -> dict[str, Any]:
    """Return a drawn job with writers that may try again, and checkers that say what they found."""
    luck = random.Random(seed)
    rows = [
        {
            "question": f"item {i} of {seed}",
            "answer": f"a{i}",
            "ease": luck.uniform(-0.25, 0.25),
            "kind": "any",
        }
        for i in range(luck.choice([40, 60, 120]))
    ]
    writers = {
        f"w{i}": {"any": round(luck.uniform(0.25, 0.7), 2)} for i in range(luck.randint(1, 3))
    }
    checkers = {
        f"c{i}": (round(luck.uniform(0.75, 1), 2), luck.choice(VERDICTS), 0)
        for i in range(luck.randint(1, 2))
    }
    costs: dict[str, float] = {name: luck.choice([1, 1, 2]) for name in writers}
    costs |= {name: luck.choice([0.5, 1]) for name in checkers}
    return reviewed(seed, folder, rows, writers, checkers, costs)


def desk(seed: int, folder: Path) -> dict[str, Any]:
    """Return a drawn job with writers that know a kind, and reviewers that write sentences."""
    luck = random.Random(seed)
    names, shown = [f"k{i}" for i in range(luck.randint(1, 3))], luck.random() < 0.5
    rows = [
        {
            "question": f"item {i} of {seed}",
            "answer": f"a{i}",
            "ease": luck.uniform(-0.2, 0.2),
            "kind": luck.choice(names),
        }
        for i in range(luck.choice([60, 100, 160]))
    ]
    writers = {}
    for i in range(luck.randint(1, 3)):
        best = luck.choice(names)
        writers[f"w{i}"] = {
            name: round(luck.uniform(0.5, 0.9) if name == best else luck.uniform(0.1, 0.5), 2)
            for name in names
        }
    checkers = {}
    for i in range(luck.randint(1, 2)):
        count, around = luck.choice([1, 2, 3, 5]), luck.randint(1, 3)
        sentences = luck.sample(ACCEPTING, count), luck.sample(REFUSING, count)
        checkers[f"c{i}"] = (round(luck.uniform(0.8, 1), 2), sentences, around)
    costs: dict[str, float] = {name: luck.choice([1, 1, 2]) for name in writers}
    costs |= {name: luck.choice([0.5, 1]) for name in checkers}
    data = reviewed(seed, folder, rows, writers, checkers, costs)
    if shown:
        data["task"]["category"] = "kind"
    return data


def reviewed(
    seed: int,
    folder: Path,
    rows: Sequence[Any],
    writers: Mapping[str, Any],
    checkers: Mapping[str, Any],
    costs: Mapping[str, float],
) -> dict[str, Any]:
    """Return a job of writers that may try again, and checkers; its files are written."""
    code = [WRITER.format(name=name) for name in writers]
    code += [CHECKER.format(name=name) for name in checkers]
    parts = [f"WRITERS = {dict(writers)}", f"CHECKERS = {dict(checkers)}", f"AROUND = {AROUND}"]
    write_job(seed, folder, rows, [*parts, *code])
    return {
        "seed": seed,
        "task": {
            "use": "jsonl",
            "file": "rows.jsonl",
            "solver": list(writers),
            "split": {"train": 0.5, "validation": 0.0, "test": 0.5},
        },
        "agents": functions(seed, costs),
        "reward": {"use": "outcome-minus-cost", "cost_weight": 0.02},
        "limits": {"turns": 8},
    }


def review(seed: int, folder: Path) -> dict[str, Any]:
    """Return the example, with other luck."""
    data = YAML(typ="safe").load(EXAMPLES / "code-review.yaml")
    return {**data, "seed": seed, "evaluation": {"baselines": {}}}


JOBS: dict[str, Callable[[int, Path], dict[str, Any]]] = {
    "tickets": tickets,
    "review": review,
    "kinds": kinds,
    "checked": checked,
    "desk": desk,
}


def rewards(job: str, seed: int, policy: str, trainer: Mapping[str, Any]) -> tuple[float, float]:
    """Return mean reward and share solved on problems kept aside, after training."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = JOBS[job](seed, folder)
        settings = dict(trainer)
        if policy == "by-category":  # as often as the episodes allow
            rows = (folder / "rows.jsonl").read_text().splitlines()
            cells = len({json.loads(row)["kind"] for row in rows}) * (1 + len(data["agents"]))
            settings["problems"] = EPISODES[job] // cells
        config = {
            **data,
            "policy": {"use": policy},
            "trainer": settings,
            "run": {"retention": "none"},
        }
        report = train(from_data(config, directory=folder), folder / "run").report
    learned = report.contenders[0]
    return learned.reward.mean, learned.solved.mean


def by_hand(job: str, seed: int) -> tuple[float, float]:
    """Return mean reward and share solved of the best loops of a writer and a checker."""
    with tempfile.TemporaryDirectory() as name:
        data = JOBS[job](seed, Path(name))
        parts = importlib.import_module(f"parts{seed}")
        shares = SplitShares(**data["task"].pop("split"))
        category = data["task"].get("category")
        task = Jsonl(Path(name) / data["task"]["file"], category=category, split=shares)
        problems = divided(task)

    def content(checker: str, said: str) -> bool:
        good = parts.CHECKERS[checker][1][0]
        return any(each in said for each in ([good] if isinstance(good, str) else good))

    def played(problem: Problem, writer: str, checker: str, most: int) -> tuple[float, float]:
        turns: list[Turn] = []
        cost = 0.0
        for agent in (writer, checker) * most if checker else (writer,):
            said = getattr(parts, agent)(View(agent, None, problem, Trajectory(turns)))
            turns.append(Turn(len(turns), agent, output=Output(said)))
            cost += data["agents"][agent]["cost"]
            if agent == checker and content(checker, said):
                break
        answer = [turn.output.content for turn in turns if turn.agent == writer][-1]
        solved = float(answer == parts.ROWS[problem.text]["answer"])
        return solved - data["reward"]["cost_weight"] * cost, solved

    ways = [(w, c, n) for w in parts.WRITERS for c in parts.CHECKERS for n in (1, 2, 3)]
    ways += [(writer, "", 1) for writer in parts.WRITERS]
    chosen = {}
    for kind in {problem.category for problem in problems["train"]}:
        alike = [problem for problem in problems["train"] if problem.category == kind]
        chosen[kind] = max(
            ways, key=lambda way: mean(played(problem, *way)[0] for problem in alike)
        )
    results = [
        played(problem, *chosen.get(problem.category, ways[0])) for problem in problems["test"]
    ]
    return mean(reward for reward, _ in results), mean(solved for _, solved in results)


def compare(job: str, trainer: str, seeds: int, first: int) -> None:
    """Print the table of a job."""
    ways: dict[str, tuple[str, dict[str, Any]]] = {
        trainer: ("values", {"use": trainer, "episodes": EPISODES[job]}),
        **{
            f"best-sequence, {name}": ("sequence", {"use": "best-sequence", **settings})
            for name, settings in SEQUENCES[job].items()
        },
    }
    if job == "kinds":
        ways["by-category"] = ("by-category", {"use": "by-category", "length": 1})
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for seed in range(first, first + seeds):
        for name, way in ways.items():
            rows[name].append(rewards(job, seed, *way))
            print(f"  {job}, seed {seed}, {name}: {rows[name][-1][0]:.3f}", file=sys.stderr)
    print(f"{job}: {EPISODES[job]} episodes, {seeds} seeds from {first}")
    found = {name: [reward for reward, _ in pairs] for name, pairs in rows.items()}
    for name, values in found.items():
        solved = mean(share for _, share in rows[name])
        each = " ".join(f"{value:.3f}" for value in values)
        print(f"  {name:22} reward {interval(values)}  solved {solved:.0%}  ({each})")
    others = [max(list(found)[1:], key=lambda name: mean(found[name]))]
    if job in ("checked", "desk"):
        others.append("by hand")
        found["by hand"] = [by_hand(job, seed)[0] for seed in range(first, first + seeds)]
        print(f"  {'by hand':22} reward {interval(found['by hand'])}")
    for other in others:
        differences = [a - b for a, b in zip(found[trainer], found[other], strict=True)]
        print(f"  {trainer} minus {other}: {interval(differences)}")


if __name__ == "__main__":
    given = sys.argv[1:]
    chosen, learner, count, start = [*given, *["all", "auto", "5", "1"][len(given) :]][:4]
    for each_job in JOBS if chosen == "all" else (chosen,):
        compare(each_job, learner, int(count), int(start))
