"""The generated world: its answers are in its corpus, its splits share no person."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from orchestrion_search.world import SearchTeacher, World, chain_in, facts_in, generate, query_for

from orchestrion import CallError, Key, UsageError

SIZES = {"train": 30, "validation": 8, "test": 16}
FORMS = pytest.mark.parametrize("form", ["prose", "codes"])


def world(form: str, **more: int) -> World:
    return World(**{"form": form, "people": 20, **SIZES, **more})  # type: ignore[arg-type]


@FORMS
def test_every_answer_follows_from_the_corpus(form: str) -> None:
    divided, documents = generate(world(form, hops=3))
    if form == "codes":
        shown = "".join(f"|{one.title}{one.text}" for one in documents)
    else:
        shown = " ".join(one.text for one in documents)
    facts, titles = facts_in(shown), {one.title for one in documents}
    for problem in (one for found in divided.values() for one in found):
        question = chain_in(problem.text)
        person = question.person
        for relation in question.relations:
            person = facts[person, relation]
        assert problem.hidden["answers"] == [person] != [question.person]
        assert set(problem.hidden["documents"]) <= titles
        assert problem.category == f"{len(question.relations)}-hop"
        assert person not in problem.text.split()


@FORMS
def test_splits_share_no_person(form: str) -> None:
    divided, _ = generate(world(form))
    people = [
        {chain_in(one.text).person for one in found}
        | {answer for one in found for answer in one.hidden["answers"]}
        for found in divided.values()
    ]
    assert not people[0] & people[1]
    assert not people[0] & people[2]
    assert not people[1] & people[2]
    assert [len(found) for found in divided.values()] == [30, 8, 16]


@given(seed=st.integers(0, 5), form=st.sampled_from(["prose", "codes"]))
def test_equal_seeds_give_equal_worlds(seed: int, form: str) -> None:
    assert generate(world(form, seed=seed)) == generate(world(form, seed=seed))
    assert generate(world(form, seed=seed)) != generate(world(form, seed=seed + 1))


def test_codes_have_one_length_and_prose_can_be_read() -> None:
    divided, _ = generate(world("codes"))
    assert all(re.fullmatch(r"[a-z]{3}[a-z-]", one.text) for one in divided["train"])
    divided, _ = generate(world("prose"))
    assert all(re.fullmatch(r"Who is .*\?", one.text) for one in divided["train"])


def test_too_few_different_questions_are_an_error() -> None:
    with pytest.raises(UsageError, match=r"only .* different questions .* test: 400"):
        generate(world("codes", people=3, train=1, validation=1, test=400))


def say(prompt: str, teacher: SearchTeacher, n: int = 0) -> str:
    request = {"messages": [{"role": "user", "content": prompt}]}
    answer = asyncio.run(teacher.complete(request, Key(n), None))  # type: ignore[arg-type]
    return str(answer.data["text"])


RIGHT = SearchTeacher(wrong_verdict=0, wrong_query=0, wrong_answer=0)


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("V1abmt=", "n"),
        ("S1abmt=", "abm"),
        ("V2abmt|abmcd=", "n"),
        ("S2abmt|abmcd=", "cdt"),
        ("S3abmt|-----|abmcd=", "cdt"),
        ("V3abmt|abmcd|cdtef=", "y"),
        ("Aabmt|abmcd|cdtef=", "ef"),
        ("Aabm-|abmcd=", "cd"),
        ("VWho is the boss of Ada Lum?", "n"),
        ("SWho is the boss of Ada Lum?", "boss of Ada Lum"),
        ("AWho is the boss of Ada Lum?\nThe boss of Ada Lum is Bo Tin.", "Bo Tin"),
    ],
)
def test_the_teacher_knows_what_is_next(prompt: str, text: str) -> None:
    assert say(prompt, RIGHT) == text


def test_the_teacher_is_as_wrong_as_it_says() -> None:
    teacher = SearchTeacher(wrong_verdict=0.3, wrong_query=0.4, wrong_answer=0.1)

    def rate(prompt: str, right: str) -> float:
        return sum(say(prompt, teacher, n) == right for n in range(1000)) / 1000

    assert rate("V1abmt=", "n") == pytest.approx(0.7, abs=0.06)
    assert rate("S1abmt=", "abm") == pytest.approx(0.6, abs=0.06)
    assert rate("Aabm-|abmcd=", "cd") == pytest.approx(0.9, abs=0.06)


@pytest.mark.parametrize("prompt", ["", "abmt=", "Vhello there", "S12="])
def test_the_teacher_refuses_what_is_no_generated_question(prompt: str) -> None:
    with pytest.raises(CallError, match="search-teacher"):
        say(prompt, RIGHT)


def test_a_query_is_what_finds_the_fact() -> None:
    assert query_for("ab", "mother") == "abm"
    assert query_for("Ada Lum", "mother") == "mother of Ada Lum"
