"""Episodes as a model reads them."""

from __future__ import annotations

from orchestrion_improve.asking import as_text, examples, group_of, shortened

from orchestrion import Episode, Output, Problem, Reward, Scores, Trajectory, Turn, replace


def episode(
    name: str,
    reward: float | None,
    *turns: tuple[str, str],
    problem: str = "p",
    about: str = "sums",
) -> Episode:
    all_turns = [Turn(n, agent, output=Output(text)) for n, (agent, text) in enumerate(turns)]
    return Episode(
        name,
        Problem(problem, f"text of {problem}", category=about),
        Trajectory(all_turns),
        scores=Scores(reward or 0.0, reward == 1.0, {"tests": 2.0}),
        reward=None if reward is None else Reward(reward),
    )


def test_examples_are_the_best_and_the_worst_episodes_in_which_a_role_acted() -> None:
    group = group_of(
        [
            episode("bad", 0.0, ("anna", "x")),
            episode("good", 1.0, ("anna", "y"), ("ben", "z")),
            episode("missing", None, ("anna", "w")),
        ]
    )
    best, worst = examples([group], "anna", 2)
    assert [example.episode.id for example in best] == ["good"]
    assert [example.episode.id for example in worst] == ["bad"]
    assert examples([group], "ben", 2)[1] == []
    assert group.advantages == (0.5, -0.5, None)


def test_equal_rewards_give_no_examples() -> None:
    group = group_of([episode(str(n), 1.0, ("anna", "x")) for n in range(3)])
    assert examples([group], "anna", 2) == ([], [])


def test_each_category_has_its_own_examples_from_different_problems_first() -> None:
    groups = [
        group_of(
            [
                episode(f"{name}-{n}", float(n > 0), ("anna", "x"), problem=name, about=about)
                for n in range(3)
            ]
        )
        for name, about in (("p", "sums"), ("q", "sums"), ("r", "poems"))
    ]
    best, _ = examples(groups, "anna", 2)
    assert [example.episode.problem.id for example in best] == ["r", "r", "p", "q"]


def test_a_role_inside_a_nested_team_is_found() -> None:
    inner = Trajectory([Turn(0, "deep", output=Output("thought"))])
    outer = episode("good", 1.0, ("team", "said"))
    [turn] = outer.turns
    nested = replace(turn, output=replace(turn.output, inner=inner))
    group = group_of([replace(outer, trajectory=Trajectory([nested])), episode("bad", 0.0)])
    assert [example.episode.id for example in examples([group], "deep", 1)[0]] == ["good"]
    assert "  deep: thought" in as_text(group.episodes[0])


def test_an_episode_reads_as_problem_turns_and_verdict() -> None:
    text = as_text(episode("e", 1.0, ("anna", "four"), ("ben", "")))
    assert text.splitlines() == [
        "Problem: text of p",
        "anna: four",
        "ben: (nothing)",
        "Verifier: solved, score 1, tests 2",
    ]


def test_long_texts_lose_their_middle_and_failed_turns_say_nothing() -> None:
    assert shortened("a" * 50 + "b" * 50, 20) == (
        "aaaaaaaaaa [... 80 characters left out ...] bbbbbbbbbb"
    )
    many = episode("e", 0.0, *(("anna", f"turn {n}") for n in range(40)))
    assert "(24 turns left out)" in as_text(many)
    failed = replace(many, trajectory=Trajectory([Turn(0, "anna", status="failed", error="boom")]))
    assert "anna: (failed)" in as_text(failed)
    assert "boom" not in as_text(failed)
