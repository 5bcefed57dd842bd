"""Hidden states: the log that tells of them, their model, and plans over beliefs."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from orchestrion_orchestration_bench.process import optimum
from orchestrion_orchestration_bench.stop import Stop, StopState
from orchestrion_orchestration_bench.stop_exact import beliefs_of
from orchestrion_values.optimism.beliefs import BeliefPlan, Beliefs, Believer, _Episodes, plan
from orchestrion_values.optimism.hidden import Hidden, find_log, fit
from orchestrion_values.optimism.states import ObservedState, StateMoves

TASK = Stop(horizon=3)
NAMES = (*TASK.solvers, *TASK.checkers, "submit", "abstain")
CALLS = len(NAMES) - 2


def shown(kind: int, history: tuple[int, ...]) -> ObservedState:
    seen = TASK.rules.observe(kind, history)
    allowed = tuple(name not in seen.blocked for name in NAMES)
    return ObservedState(TASK.rules.types[kind], seen.features, allowed)


def played(episodes: int, seed: int) -> StateMoves:
    """Random episodes of Stop."""
    rng = np.random.default_rng(seed)
    seen, rules = StateMoves(len(NAMES)), TASK.rules
    for n in range(episodes):
        kind = n % len(rules.types)
        hard = rng.random() < list(TASK.types.values())[kind]
        state, path, taken, costs = StopState(kind, hard, 0, ()), [], [], []
        while True:
            path.append(shown(kind, state.history))
            choice = int(rng.choice(np.flatnonzero(path[-1].allowed)))
            name = NAMES[choice]
            taken.append(choice)
            costs.append(-_cost(choice))
            if choice >= CALLS:
                right = float(state.answer == 2)
                paid = TASK.abstain if name == "abstain" else right
                seen.add(path, taken, costs, path[-1], paid)
                break
            answer, said = state.answer, rules.first[name]
            if name in TASK.solvers:
                solver = TASK.solvers[name]
                answer = 1 + (rng.random() < (solver.hard if hard else solver.easy))
            else:
                said += int(rng.random() >= rules.chance_of_ok(name, answer))
            state = StopState(kind, hard, answer, (*state.history, said))
    return seen


def _cost(choice: int) -> float:
    rows: list[Any] = [*TASK.solvers.values(), *TASK.checkers.values()]
    return rows[choice].cost if choice < CALLS else 0.0


def true_model(beliefs: Beliefs) -> Hidden:
    """Stop as its tables say, with the symbols and amounts that were learned; K = 2 x 3."""
    amounts, symbols = beliefs.plan.game.amounts, beliefs.symbols
    begin = np.zeros((len(TASK.types), 6))
    for name, place in beliefs.categories.items():
        begin[place, 0], begin[place, 3] = 1 - TASK.types[name], TASK.types[name]
    move, say = np.tile(np.eye(6), (len(NAMES), 1, 1)), np.zeros((len(NAMES), 6, len(symbols)))
    by_place = sorted({symbol[0][0] for symbol in symbols})
    place_of = {symbol[0][0]: place for symbol, place in symbols.items()}
    for a, solver in enumerate(TASK.solvers.values()):
        for hard, right in enumerate((solver.easy, solver.hard)):
            move[a, 3 * hard : 3 * hard + 3] = 0.0
            move[a, 3 * hard : 3 * hard + 3, 3 * hard + 1] = 1 - right
            move[a, 3 * hard : 3 * hard + 3, 3 * hard + 2] = right
        say[a, :, place_of[by_place[a]]] = 1.0
    for c, name in enumerate(TASK.checkers):
        ok = np.array([TASK.rules.chance_of_ok(name, z % 3) for z in range(6)])
        a, first = len(TASK.solvers) + c, len(TASK.solvers) + 2 * c
        say[a, :, place_of[by_place[first]]] = ok
        say[a, :, place_of[by_place[first + 1]]] = 1 - ok
    pay = np.zeros((len(NAMES) + 1, 6, len(amounts)))
    is_right = np.array([float(z % 3 == 2) for z in range(6)])
    for amount, chance in ((1.0, is_right), (0.0, 1 - is_right)):
        pay[CALLS, :, int(np.abs(amounts - amount).argmin())] = chance
    pay[CALLS + 1, :, int(np.abs(amounts - TASK.abstain).argmin())] = 1.0
    return Hidden(begin, move, say, pay)


@pytest.fixture(scope="module")
def learned() -> tuple[StateMoves, Beliefs]:
    seen = played(1500, 0)
    beliefs = Believer(6, 4).think(seen, 1)
    assert beliefs is not None
    return seen, beliefs


def read(seen: StateMoves) -> _Episodes:
    """Episodes as sequences, by the log that is in them."""
    log = find_log(seen)
    assert log is not None
    return _Episodes(seen, log, {})


def test_a_symbol_of_a_log_is_the_same_in_every_slot() -> None:
    log = find_log(played(300, 1))
    assert log is not None
    assert log.width == len(TASK.rules.sayings) - 1
    small, ok = 0, TASK.rules.first["lint"]
    first, second, third = log.read(shown(0, (small, ok, ok)).features, 3)
    assert second == third != first
    assert log.read(shown(2, (ok, small, small)).features, 2) == (second, first)


def test_amounts_that_differ_by_rounding_are_one() -> None:
    seen = played(300, 1)
    noisy = copy.copy(seen)
    noisy.outcomes = [paid - paid * 1e-16 * (i % 3) for i, paid in enumerate(seen.outcomes)]
    assert len(set(noisy.outcomes)) > len(set(seen.outcomes))
    assert read(noisy).game.amounts.tolist() == [0.0, TASK.abstain, 1.0]


def test_what_is_allowed_is_known_of_each_episode_and_not_of_the_first_alone() -> None:
    seen = played(300, 1)
    seen._places = {
        state._replace(allowed=(*state.allowed[:-1], state.category != TASK.rules.types[0])): place
        for state, place in seen._places.items()
    }
    game = read(seen).game
    last = game.modes[:, -1].tolist()
    followed = {(last[mode], last[after]) for (_, mode, _), after in game.then.items()}
    assert followed == {(True, True), (False, False)}


def test_places_on_a_road_are_no_history() -> None:
    seen = StateMoves(2)
    for n in range(100):
        path = [
            ObservedState("", (float(i >= 1), float(i >= 2), 0.5), (True, True))
            for i in (0, 1, 1, 2)
        ]
        cut = path[: 2 + n % 3]
        seen.add(cut, [0] * len(cut), [0.0] * len(cut), path[-1], 1.0)
    assert find_log(seen) is None


def test_with_the_true_model_the_plan_is_worth_the_optimum(
    learned: tuple[StateMoves, Beliefs],
) -> None:
    _, beliefs = learned
    model, game = true_model(beliefs), beliefs.plan.game
    met: dict[Any, Any] = {}
    # Every belief that can be met: a game of this size has few.
    empty = BeliefPlan(model, game, {})
    layer: dict[Any, Any] = {(place, ()): model.begin[place] for place in range(len(model.begin))}
    begun = [int(mode) for mode in range(len(game.modes)) if (0, mode, 0) in game.then]
    nodes = dict.fromkeys(layer, begun[0])
    for t in range(TASK.horizon + 1):
        following: dict[Any, Any] = {}
        modes: dict[Any, int] = {}
        for key, belief in layer.items():
            met.setdefault((t, nodes[key]), []).append(belief)
            for a in range(CALLS):
                mode = game.then.get((t, nodes[key], a))
                if mode is None:
                    continue
                chances = (belief @ model.move[a]) @ model.say[a]
                for said in np.flatnonzero(chances > 0).tolist():
                    after = (key[0], (*key[1], a, said))
                    following[after] = empty.after(belief[None], a, said)[0]
                    modes[after] = mode
        layer, nodes = following, modes
    exact = plan(model, game, {node: np.array(points) for node, points in met.items()})
    values = exact.values(model.begin, (0, begun[0])).max(axis=1)
    process = beliefs_of(TASK)
    best, _ = optimum(process, 1.0)
    wanted = [best.by_type[name] for name in beliefs.categories]
    assert values == pytest.approx(wanted, abs=2e-3)  # beliefs a hundredth apart are one


def test_what_is_learned_from_random_episodes_is_worth_nearly_as_much(
    learned: tuple[StateMoves, Beliefs],
) -> None:
    _, beliefs = learned
    process = beliefs_of(TASK)
    best, _ = optimum(process, 1.0)
    first = shown(0, ()).allowed
    mode = beliefs.plan.game.modes.tolist().index(list(first))
    for name, place in beliefs.categories.items():
        belief = beliefs.plan.model.begin[place]
        value = beliefs.plan.values(belief[None], (0, mode)).max()
        assert value == pytest.approx(best.by_type[name], abs=0.08)


def test_what_is_learned_is_the_same_on_every_machine(
    learned: tuple[StateMoves, Beliefs],
) -> None:
    plan = learned[1].plan
    mode = plan.game.modes.tolist().index(list(shown(0, ()).allowed))
    assert plan.values(plan.model.begin, (0, mode))[:, [0, 1, 5]] == pytest.approx(
        np.array(
            [
                [0.7503422859241272, 0.650647339057866, 0.15040523425037355],
                [0.6578729702771109, 0.6075013466570435, 0.15042745290229415],
                [0.5074130328852764, 0.5493399024612977, 0.15041718617690186],
            ]
        ),
        rel=1e-6,
    )


def test_every_step_of_the_fit_raises_the_likelihood(
    learned: tuple[StateMoves, Beliefs], monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrion_values.optimism import hidden

    monkeypatch.setattr(hidden, "FEW", 1e-9)  # no prior: what climbs is the likelihood itself
    monkeypatch.setattr(hidden, "STAY", 0.0)
    episodes = read(learned[0])
    model = hidden._random(episodes.shape, 3, np.random.default_rng(5))
    path = []
    for _ in range(12):
        model, likelihood = hidden._step(model, episodes.sequences)
        path.append(likelihood)
    assert (np.diff(path) >= -1e-6 * abs(path[0])).all(), path


def test_a_start_that_is_likely_on_a_sample_is_not_kept_for_that(
    learned: tuple[StateMoves, Beliefs], monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrion_values.optimism import hidden

    episodes = read(learned[0])
    data, shape = episodes.sequences, episodes.shape

    def likelihood(seed: int, best: int) -> float:
        monkeypatch.setattr(hidden, "BEST", best)
        return hidden._step(fit(data, shape, 4, None, 6, seed), data)[1]

    gains = [likelihood(seed, 3) - likelihood(seed, 1) for seed in range(4)]
    assert min(gains) >= 0
    assert max(gains) > 1


def test_beliefs_are_what_was_saved(learned: tuple[StateMoves, Beliefs]) -> None:
    _, beliefs = learned
    again = Beliefs.load(beliefs.save())
    assert again.save() == beliefs.save()
    features = shown(1, (0, 2)).features
    name = TASK.rules.types[1]
    assert again.belief(name, features, [0, 2]) == pytest.approx(
        beliefs.belief(name, features, [0, 2])
    )
