"""Keys and records: names for randomness, and what never changes."""

from __future__ import annotations

import ast
import copy
import pickle
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from orchestrion import Array, Decision, Episode, Key, Output, Problem, Trajectory, Turn
from orchestrion import _records as records

names = st.lists(st.text(max_size=5) | st.integers(), min_size=1, max_size=4)


@given(st.integers(0, 2**63), names)
def test_equal_paths_give_equal_draws_however_they_are_spelled(seed: int, path: list[str]) -> None:
    one, two = Key(seed), Key(seed)
    for name in path:
        one = one.child(name)
    assert one.uniforms(9) == one.uniforms(9)
    assert two.child(*path).digest == Key(seed).child(*path).digest


@given(names, names)
def test_different_paths_give_different_draws(one: list[str], two: list[str]) -> None:
    if one != two:
        assert Key(1).child(*one) != Key(1).child(*two)


def test_a_number_and_its_text_are_different_names() -> None:
    assert Key(1).child(3) != Key(1).child("3")
    assert Key() == Key(0) != Key(1)


def test_draws_are_the_same_in_every_process_and_fixed_for_good() -> None:
    code = "from orchestrion import Key; print(Key(7).child('beam', 3).uniforms(2))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(Key(7).child("beam", 3).uniforms(2))
    assert Key(7).child("beam", 3).hex() == "ef4090c0da7ca4f4f99ee0998b8cabca"


def test_uniforms_are_uniform() -> None:
    draws = Key(3).uniforms(20_000)
    assert all(0 <= draw < 1 for draw in draws)
    assert sum(draws) / len(draws) == pytest.approx(0.5, abs=0.01)
    for edge in (0.1, 0.5, 0.9):
        assert sum(draw < edge for draw in draws) / len(draws) == pytest.approx(edge, abs=0.015)


def test_records_are_frozen_and_have_hashes() -> None:
    kinds = [kind for kind in vars(records).values() if isinstance(kind, type)]
    structs = [kind for kind in kinds if issubclass(kind, Struct) and kind is not Struct]
    assert len(structs) > 10
    assert all(kind.__struct_config__.frozen for kind in structs)
    data = {"x": [1]}
    for one, other in (
        (Key(1).child("a"), Key(1).child("a")),
        (Output("a", data), Output("a", data)),
        (Trajectory([Turn(0, "a")]), Trajectory([Turn(0, "a")])),
        (Trajectory(), Trajectory()),
        (Decision(record=data), Decision()),
        (Episode("e", Problem("p"), Trajectory()), Episode("e", Problem("p"), Trajectory())),
    ):
        assert len({one, other}) == 1
    assert repr(Key(1).child("a")) == f"Key({Key(1).child('a').hex()[:8]})"


@pytest.mark.parametrize(
    ("part", "is_image"),
    [
        ({"type": "image", "url": "https://a/b.png"}, True),
        ({"type": "image", "url": "http://a/b.png"}, True),
        ({"type": "image", "data": "aGk=", "media_type": "image/png"}, True),
        ({"type": "image", "url": "data:text/html,x", "data": "a", "media_type": "image/x"}, False),
        ({"type": "image", "data": "aGk=", "media_type": "text/html"}, False),
        ({"type": "image", "media_type": "image/png"}, False),
        ({"type": "image", "data": 5, "media_type": "image/png"}, False),
        ({"type": "text", "url": "https://a/b.png"}, False),
        ("image", False),
    ],
)
def test_only_what_a_page_may_show_is_an_image(part: object, is_image: bool) -> None:
    assert Output(data={"images": [part]}).images == [part] * is_image
    assert Output(data={"images": 3}).images == Output(data=[part]).images == []


@given(st.lists(st.integers(0, 99), max_size=30), st.integers(0, 30))
def test_forks_share_their_prefix_and_never_touch_it(agents: list[int], at: int) -> None:
    whole = Trajectory()
    steps = [whole]
    for i, agent in enumerate(agents):
        whole = whole.append(Turn(i, str(agent)))
        steps.append(whole)
    fork = steps[min(at, len(agents))]
    before = fork.turns
    left, right = fork.append(Turn(50, "left")), fork.append(Turn(50, "right"))
    assert fork.turns == before
    assert left.turns[:-1] == right.turns[:-1] == before
    assert all(a is b for a, b in zip(left.turns, fork.turns, strict=False))
    assert len(left) == len(fork) + 1


def test_turns_stand_in_the_order_of_activation_not_of_arrival() -> None:
    trajectory = Trajectory().append(Turn(1, "late")).append(Turn(0, "early"))
    assert [turn.agent for turn in trajectory] == ["early", "late"]
    assert trajectory.last is not None
    assert trajectory.last.agent == "early"


def test_the_public_part_of_a_problem_hides_what_is_hidden() -> None:
    assert Problem("p", "text", hidden=42).public() == Problem("p", "text")


def test_the_record_behind_a_decision_is_no_part_of_its_value() -> None:
    assert Decision(stop=True, record=[1]) == Decision(stop=True, record=[2])


PUBLIC = {
    "orchestrion": """
        Activation Activations Agent Answer Array Branch BudgetError CallError CallLimits Calls
        CheckpointError Component ConfigError Decision END Episode Executor Experience Fault JSON
        Job Key Kind Link LinkLost Member Meta Metrics Model Observation OpenContext
        OrchestrionError Output Plan PluginError Policy Problem ReplayError Request Reward
        RewardFunction Run RunError START Saved Scores Secret Session Situation Split SplitShares
        Stateful Status Step StoreError Task Trainer Trajectory Turn TurnStatus Usage UsageError
        View aevaluate answering aresume atrain ceiling_of choice_name choices did_you_mean evaluate
        fold gather hidden hidden_bytes hookimpl in_thread is_blocked is_local is_loopback
        json_object laps learnable load load_function load_object names_on_first_use no_calls
        note_line parse_choice refuse_idle register register_named replace resume router split_of
        splits_of supports team_ceiling times train waves work
    """.split(),
    "orchestrion.config": """
        Baseline Budget Config Draft Entry Evaluation Limits Problem RunSettings draft flat
        from_data load read_as read_data read_section text_as to_yaml value_at
    """.split(),
    "orchestrion.runs": """
        Allowance AskedTeam ComparedResult Comparison EpisodeFilter EpisodeOrder EpisodePage
        EpisodeRow Estimate Finding Forecast Glance Iteration Progress Report Route Router Run
        RunLock RunReader RunStore StoredCall StoredEpisode TeamAnswer Trained add_note aevaluate
        aresume as_data atrain compare_outcomes convergence diagnose difference dollars_by_part
        estimate evaluate fewer_collections find_run forecast_of glance load make_folder manifest
        mean newest_checkpoint newest_states open_run orders_by_category paying problem_and_turns
        resume router run_directory run_folders run_identity spent_before stored_config
        stored_report stored_results structure train write_atomic
    """.split(),
    "orchestrion.cli": """
        Impatient Main Options UVICORN answer block_option emit find_config in_loop json_option
        listener main note options override_option running stopped_by_signals table
    """.split(),
}


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_public_names_are_what_they_were(module: str) -> None:
    """A change here is a change of the plugin interface: make it knowingly."""
    public = import_module(module)
    assert sorted(set(public.__all__) - {"API_VERSION", "__version__"}) == PUBLIC[module]
    assert all(hasattr(public, name) for name in public.__all__)
    assert set(public.__all__) <= set(dir(public))
    typed = {
        alias.name
        for node in ast.walk(ast.parse(Path(str(public.__file__)).read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert typed == set(PUBLIC[module]), "what a type checker sees"


def test_importing_orchestrion_imports_next_to_nothing() -> None:
    code = "import sys, orchestrion; print(sorted(m for m in sys.modules if 'orchestrion' in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['orchestrion', 'orchestrion._lazy']"


def test_arrays_and_outputs_have_values() -> None:
    assert Array("F64", (1,), b"12345678") == Array("F64", (1,), b"12345678")
    assert Output("a") == Output("a")


def test_a_trajectory_may_be_long_however_it_is_made() -> None:
    turns = [Turn(i, "a") for i in range(5_000)]
    long = Trajectory(turns)
    assert (long.turns, len(long), long.before) == (tuple(turns), 5_000, Trajectory(turns[:-1]))
    for again in (pickle.loads(pickle.dumps(long)), copy.deepcopy(long)):  # noqa: S301
        assert again == long
        assert again.last == turns[-1]
