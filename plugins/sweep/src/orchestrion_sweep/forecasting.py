"""What a sweep will take: bounds and estimates of its runs, summed."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any

from orchestrion import Usage, times
from orchestrion.runs import forecast_of, spent_before
from orchestrion_sweep.plan import SweepPlan


async def forecast_lines(plan: SweepPlan, root: Path) -> tuple[list[str], dict[str, Any]]:
    """Return what a sweep would do and take at most, as lines and as plain data.

    Components are opened, without network access; nothing is run.
    """
    settings = plan.settings
    is_fixed = settings.method != "optuna"
    values = plan.draws() if is_fixed else [{}]
    count = len(values) if is_fixed else settings.trials or 0
    bounds = [await forecast_of(plan.trial(value)) for value in values]
    each = sum((bound.total for bound in bounds), Usage())
    total = times(each, settings.seeds * (1 if is_fixed else count))
    judging = await forecast_of(plan.test({}, plan.base.seed))
    parts = [part.usage for part in judging.parts if part.part.startswith("evaluation of")]
    judged = 2 * settings.seeds  # the winner and the config as it is
    total += times(sum(parts, Usage()), judged)
    unknown = list(dict.fromkeys(text for bound in bounds for text in bound.unknown))
    runs = count * settings.seeds
    data: dict[str, Any] = {
        "dry_run": True,
        "trials": count,
        "runs": runs,
        "judged_on_test": judged,
        "bound": {"calls": total.calls, "tokens": total.tokens, "usd": total.usd},
        "unknown": unknown,
        "estimate": None,
    }
    usd = "not known" if isnan(total.usd) else f"{total.usd:,.4f}"
    lines = [
        f"{count} trials by {settings.method}, {runs} runs, then {judged} runs judged on test at "
        "most",
        f"at most: {total.calls:,} calls, {total.tokens:,} tokens, {usd} US dollars",
    ]
    if not is_fixed:
        lines.append("  as if each trial took as much as the config as it is")
    lines += [f"  not known: {text}" for text in unknown]
    if (before := spent_before(plan.base, root)) is not None:
        origin, spent = before
        names = ("calls", "tokens", "usd")
        data["estimate"] = {name: getattr(spent, name) * runs for name in names}
        text = ", ".join(f"{value:,.4g} {name}" for name, value in data["estimate"].items())
        lines.append(f"estimate: {text}, as if each run took what {origin} took")
    elif total.calls or unknown:
        lines.append("no estimate: there is no completed run of this config")
    for name in ("calls", "tokens", "usd"):
        cap, need = getattr(plan.base.budget, name), getattr(total, name)
        if cap is not None:
            enough = not unknown and need <= cap  # NaN is not
            text = "is enough" if enough else "may run out; the sweep then ends resumable"
            lines.append(f"budget.{name}: {cap:,g}, for all trials together, {text}")
    return lines, data
