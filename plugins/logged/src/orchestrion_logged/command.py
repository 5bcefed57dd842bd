"""Commands: `logs` imports and checks logs; `ope` judges policies by one; `learn` learns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict

from orchestrion import UsageError
from orchestrion.cli import (
    answer,
    block_option,
    emit,
    in_loop,
    json_option,
    note,
    override_option,
    table,
)

if TYPE_CHECKING:
    from orchestrion.config import Config
    from orchestrion.runs import Report, RunStore
    from orchestrion_logged.decisions import Decisions, Floats
    from orchestrion_logged.evaluating import PolicyEvaluation
    from orchestrion_logged.from_logs import FromLogs
    from orchestrion_logged.importing import Imported
    from orchestrion_logged.records import LoggedEpisode

FILE = click.Path(path_type=Path, dir_okay=False)
LOG = click.Path(path_type=Path)
"""A file, or the folder of a served team."""
REFUSED = 3
"""The exit code if there is no estimate."""


@click.group("logs")
def logs() -> None:
    """Import logs of decisions, and check them."""


@logs.command("check")
@click.argument("log", type=LOG)
@json_option
def check(log: Path, as_json: bool) -> int:
    """Read LOG strictly, and print a summary."""
    from orchestrion_logged.reading import read

    content = read(log)
    for text in content.notes:
        note(text)
    lines = [line for episode in content.episodes for line in episode]
    choices = dict(sorted(Counter(line.choice for line in lines).items()))
    facts: dict[str, Any] = {
        "log": str(log),
        "episodes": len(content.episodes),
        "decisions": len(lines),
        "with_propensity": sum(line.propensity is not None for line in lines),
        "with_reward": sum(line.reward is not None for line in lines),
        "with_score": sum(line.score is not None for line in lines),
    }
    if as_json:
        emit({**facts, "choices": choices})
        return 0
    for name, value in facts.items():
        answer(f"{name.replace('_', ' ')}: {value}")
    answer(table([["choice", "times"], *([name, str(n)] for name, n in choices.items())]))
    return 0


@logs.group("import")
def importing() -> None:
    """Write a log from a run, a chat log or a table."""


_force = click.option("--force", is_flag=True, help="Overwrite LOG.")


@importing.command("run")
@click.argument("run")
@click.argument("log", type=FILE)
@click.option("--of", "source", default="train", show_default=True, help="Or an evaluation's name.")
@_force
@block_option
def from_a_run(run: str, log: Path, source: str, force: bool, block: tuple[str, ...]) -> int:
    """Write the decisions of RUN to LOG."""
    from orchestrion_logged.importing import from_run

    _refuse_existing(log, None, force)
    return _write(log, in_loop(from_run(run, source, block)))


@importing.command("chat")
@click.argument("file", type=FILE)
@click.argument("log", type=FILE)
@click.option("--category", default="category", show_default=True, help="Tag of the category.")
@click.option("--reward", default="reward", show_default=True, help="Tag of the feedback.")
@click.option("--cost", default="cost", show_default=True, help="Tag of the cost.")
@_force
def from_a_chat_log(
    file: Path, log: Path, category: str, reward: str, cost: str, force: bool
) -> int:
    """Write the requests of FILE (JSON lines, as OpenAI's) to LOG; the model is the choice."""
    from orchestrion_logged.importing import from_chats

    _refuse_existing(log, file, force)
    return _write(log, from_chats(file, category, reward, cost))


@importing.command("csv")
@click.argument("file", type=FILE)
@click.argument("log", type=FILE)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="FIELD=COLUMN",
    help="The column of a field, e.g. --column choice=model --column features=length,hour.",
)
@_force
def from_a_table(file: Path, log: Path, columns: tuple[str, ...], force: bool) -> int:
    """Write the rows of FILE to LOG."""
    from orchestrion_logged.importing import from_table

    _refuse_existing(log, file, force)
    named: dict[str, str] = {}
    for pair in columns:
        field, equals, column = pair.partition("=")
        if not equals:
            raise UsageError(f"--column {pair}: must be FIELD=COLUMN")
        named[field] = column
    return _write(log, from_table(file, named))


def _refuse_existing(log: Path, source: Path | None, force: bool) -> None:
    if not log.exists():
        return
    if source is not None and source.exists() and log.samefile(source):
        raise UsageError(f"{log}: is what is imported; name another file for the log")
    if not force:
        raise UsageError(f"{log} exists; --force overwrites it")


def _write(log: Path, imported: Imported) -> int:
    from orchestrion_logged.importing import write

    for line in imported.notes:
        note(line)
    write(log, imported)
    note(f"{log}: {len(imported.records)} decisions")
    return 0


@click.command("ope")
@click.argument("log", type=LOG)
@click.option(
    "--policy", "targets", multiple=True, metavar="RUN|CONFIG", help="The policy to evaluate."
)
@click.option(
    "--cost-weight",
    type=click.FloatRange(min=0),
    help="Use scores minus this weight times the cost; by default rewards.",
)
@click.option(
    "--estimate-propensities",
    is_flag=True,
    help="Estimate propensities that are not in the log; right only if the choices depended on "
    "nothing else.",
)
@click.option(
    "--least",
    type=click.FloatRange(min=2),
    default=20,
    show_default=True,
    help="The minimum of effective episodes for an estimate.",
)
@override_option
@block_option
@json_option
def ope(
    log: Path,
    targets: tuple[str, ...],
    cost_weight: float | None,
    estimate_propensities: bool,
    least: float,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    as_json: bool,
) -> int:
    """Estimate from LOG the rewards of the policy of RUN, and of each single choice.

    Prints a doubly robust estimate with its 95 % interval, other estimates, and how well the log
    covers the policy. If the log is not sufficient, it says so, and the exit code is 3.
    """
    from orchestrion_logged.decisions import as_decisions, choices_of
    from orchestrion_logged.evaluating import Evaluator, estimated_propensities
    from orchestrion_logged.reading import read

    if len(targets) > 1:
        raise UsageError("--policy: give one; each policy is a command of its own")
    target = targets[0] if targets else None
    if overrides and target is None:
        raise UsageError("-o has no effect without --policy; name one")
    content = read(log)
    episodes, notes = content.episodes, [*content.notes]
    wanted = None
    if target is None:
        decisions = as_decisions(episodes, choices_of(episodes), cost_weight, str(log))
    else:
        read_target = _target(target, overrides, block, log.resolve(), cost_weight, episodes)
        decisions, wanted, learned_from_it = in_loop(read_target)
        if learned_from_it:
            notes.append("the policy learned from this log, so its value is overestimated")
    if decisions.missing:
        notes.append(f"left out: {decisions.missing} episodes without feedback")
    if not decisions.known and estimate_propensities:
        decisions = estimated_propensities(decisions)
        notes.append("propensities are estimated: right only if choices depended on nothing else")
    elif not decisions.known:
        notes.append(
            "without all propensities these are estimates of the model alone (direct), wrong if "
            "choices depended on what is not in the log; or use --estimate-propensities"
        )
    if forced := int((decisions.allowed.sum(axis=1) == 1).sum()):
        notes.append(
            f"{forced} of {len(decisions.choice)} decisions allowed one choice only: they tell "
            "nothing of another one"
        )
    if decisions.several and target is None:
        notes.append(
            "single choices are not estimated: there are episodes of several decisions; name a "
            "--policy"
        )
    evaluator = Evaluator(decisions, least=least)
    baselines = [evaluator.logging(), *evaluator.single()]
    if target is not None and wanted is not None:
        questions = [evaluator.judge(target, wanted)]
        judged = [*questions, *baselines]
    else:
        questions, judged = baselines[1:], baselines
    if as_json:
        emit({"log": str(log), "notes": notes, "policies": [asdict(policy) for policy in judged]})
    else:
        for line in notes:
            note(line)
        for line in _lines(judged):
            answer(line)
    return REFUSED if questions and all(question.refusal for question in questions) else 0


@click.command("learn")
@click.argument("log", type=LOG)
@click.option("--from", "source", required=True, metavar="RUN|CONFIG", help="The team that learns.")
@click.option(
    "--cost-weight",
    type=click.FloatRange(min=0),
    help="Of cost against score; by default that of the team's reward, if it has one.",
)
@override_option
@block_option
@json_option
def learn(
    log: Path,
    source: str,
    cost_weight: float | None,
    overrides: tuple[str, ...],
    block: tuple[str, ...],
    as_json: bool,
) -> int:
    """Make a new run: the team of RUN, with a policy that learned from LOG.

    LOG is a file of decisions, or the folder of a served team, which may go on serving. The new
    run has the config of RUN with the trainer `from-logs`, and the policy `values` if it has
    another one; it is evaluated as any run, and so is RUN: as "parent (RUN)", the report of the new
    run has it beside the baselines.
    """
    from orchestrion.runs import RunStore, diagnose, stored_report
    from orchestrion_logged.reading import read

    content = read(log)
    for text in content.notes:
        note(text)
    if not any(line.context.text for episode in content.episodes for line in episode):
        note(
            "the log has no contents, so nothing can be learned from what is asked; "
            "`serve --log-contents` keeps them"
        )
    folder, before = in_loop(_learn(log.resolve(), source, cost_weight, overrides, block))
    parent = f"parent ({Path(source).stem if Path(source).is_file() else Path(source).name})"
    with RunStore.open(folder) as store:
        _keep_parent(store, parent, before)
        report, findings = stored_report(store), diagnose(store)
    assert report is not None  # the run was evaluated
    if as_json:
        reports = {"report": report.as_json(), "before": before.as_json()}
        diagnosis = [asdict(finding) for finding in findings]
        emit({"run": str(folder), **reports, "diagnosis": diagnosis})
        return 0
    note(f"run: {folder}")
    for finding in findings:
        word = "warning: " if finding.level > 1 else ""
        advice = finding.advice
        if parent in finding.about:
            advice = (
                f"go on with {source}; log more, explore more (`serve --explore`), or be more "
                "cautious (`-o trainer.caution=3`)"
            )
        note(f"{word}{finding.text}; {advice}")
    answer(report.verdict.as_text(report))
    contenders = {contender.name: contender for contender in report.contenders}
    if parent not in contenders:  # it was judged on other problems
        contenders[f"{before.contenders[0].name} ({source})"] = before.contenders[0]
    for name, contender in contenders.items():
        reward = "" if isnan(contender.reward.mean) else f", reward {contender.reward.mean:.3f}"
        answer(f"{name}: solved {contender.solved.mean:.1%}{reward}")
    return 0


def _keep_parent(store: RunStore, name: str, before: Report) -> None:
    """Store the evaluation of the run that a run came from, if it was on the same problems."""
    from orchestrion.runs import stored_report

    after, own = stored_report(store), before.contenders[0]
    if after is not None and after.digests == before.digests:
        results = {"outcomes": before.outcomes[own.name], "trained_on": own.trained_on}
        store.save_evaluation(name, {**results, "of_another_run": True})


async def _learn(
    log: Path,
    source: str,
    cost_weight: float | None,
    overrides: Sequence[str],
    block: Sequence[str],
) -> tuple[Path, Report]:
    """Train a new run; return its folder, and the report of the one that it came from."""
    import json

    from orchestrion.config import load
    from orchestrion.runs import aevaluate, atrain, open_run, run_directory
    from orchestrion_logged.learning import decisions_for

    directory = run_directory(source)
    path = Path(source) if directory is None else directory / "config.yaml"
    before = load(path, block=block)
    weight = cost_weight
    if weight is None and before.reward is not None:
        weight = getattr(before.components[before.reward].component, "cost_weight", None)
    # Flow mappings of JSON are YAML.
    trainer = {"use": "from-logs", "log": str(log), "cost_weight": weight}
    changes = [f"trainer={json.dumps(trainer)}"]
    if before.components[before.policy].found.component.name != "values":
        changes.append("policy={use: values}")
    config = load(path, [*changes, *overrides], block=block)
    base = path.stem if directory is None else re.sub(r"-\d+$", "", directory.name)
    async with open_run(config) as opened:  # before there is a folder: the log may be refused
        for settings in _from_logs(config):
            decisions_for(settings, opened.opened.runtimes["policy"])
    folder = _claimed(Path(config.run.directory), config.run.name, base)
    try:
        await atrain(config, folder)
    except BaseException:
        with suppress(OSError):  # it is empty if there was no run yet
            folder.rmdir()
        raise
    return folder, await aevaluate(source, baselines=False, block=block)


def _from_logs(config: Config) -> list[FromLogs]:
    """Return the trainers of a config that learn from logs."""
    from orchestrion_logged.from_logs import FromLogs

    trainers = [config.components[path].component for path in config.stages]
    return [trainer for trainer in trainers if isinstance(trainer, FromLogs)]


def _claimed(root: Path, name: str | None, base: str) -> Path:
    """Make the folder of a new run: the name that the config gives, or the next number.

    It exists from now on, so that another process that learns takes another one.
    """
    root = root.expanduser()
    numbered = (root / f"{base}-{n}" for n in count(1))
    path = next(numbered) if name is None else root / name
    while True:
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            path = next(numbered)
        else:
            return path


async def _target(
    target: str,
    overrides: Sequence[str],
    block: Sequence[str],
    log: Path,
    cost_weight: float | None,
    episodes: Sequence[LoggedEpisode],
) -> tuple[Decisions, Floats, bool]:
    """Return the log as the policy's team sees it, the policy's probabilities, and whether it
    learned from this log.
    """
    from orchestrion import choice_name, choices
    from orchestrion.runs import open_run
    from orchestrion_logged.decisions import STOP, as_decisions
    from orchestrion_logged.evaluating import target_of

    async with open_run(target, overrides, block, live=False) as trained:
        for line in trained.notes:
            note(line)
        policy = trained.opened.runtimes["policy"]
        if getattr(policy, "prepares", False):
            raise UsageError(
                f"{target}: its policy calls a service before it decides; a log cannot do that"
            )
        names = (*map(choice_name, choices(trained.opened.roster())), STOP)
        decisions = as_decisions(episodes, names, cost_weight, str(log))
        is_source = any(trainer.log == log for trainer in _from_logs(trained.config))
        learned = is_source and trained.directory is not None
        return decisions, target_of(policy, names, decisions.situations), learned


def _lines(judged: Sequence[PolicyEvaluation]) -> list[str]:
    rows = [["policy", "estimate", "value", "95 % interval", "effective", "weights"]]
    refused = []
    for policy in judged:
        if policy.refusal:
            refused.append(f"refused: {policy.name}: {policy.refusal}")
            continue
        cover, overlap = ["", ""], policy.overlap
        if overlap is not None:
            weights = f"max {overlap.largest:.1f}, top 1 % has {overlap.top_share:.0%}"
            cover = [f"{overlap.effective:.0f}", weights]
        label = policy.name
        for name, estimate in policy.estimates.items():
            interval = f"{estimate.low:.4f} to {estimate.high:.4f}"
            rows.append([label, name, f"{estimate.mean:.4f}", interval, *cover])
            label, cover = "", ["", ""]
        if policy.gain is not None:
            gain = policy.gain
            interval = f"{gain.low:+.4f} to {gain.high:+.4f}"
            rows.append(["", "over logged", f"{gain.mean:+.4f}", interval, "", ""])
    return [table(rows), *refused]
