"""A generated world, and the model `search-teacher`, which plays the roles of `search` in it.

The world has people, relations such as mother and boss, and questions over several relations. The
splits share no people, so that nothing about test questions can be memorized.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from string import ascii_lowercase
from typing import Annotated, Literal

from attrs import frozen

from orchestrion import (
    JSON,
    Answer,
    CallError,
    Calls,
    Key,
    Meta,
    Model,
    Problem,
    Split,
    Usage,
    UsageError,
    no_calls,
)
from orchestrion_search.documents import Document

Count = Annotated[int, Meta(ge=0)]
RELATIONS = ("mother", "boss", "teacher", "doctor", "friend", "neighbour")
SIGNS = {relation[0]: relation for relation in RELATIONS}
"""A relation's letter in codes."""

_ONSETS, _VOWELS = "b d f g k l m n p r s t v z br dr kl st tr".split(), "a e i o u".split()
_ASKED = re.compile(r"Who is ((?:the \w+ of )+)([A-Z]\w* [A-Z]\w*)\?")
_FACT = re.compile(r"The (\w+) of ([A-Z]\w* [A-Z]\w*) is ([A-Z]\w* [A-Z]\w*)\.")
TRIES = 40
"""Draws for each wanted question, after which there are not enough different ones."""


@frozen
class World:
    """A generated world.

    Args:
        form: `prose`, for people and language models; or `codes` for the smallest models: "abmt"
            asks for the teacher of the mother of person "ab".
        people: in each split.
        relations: number of kinds of relations.
        hops: the most relations of a question, which has at least one.
        train: training questions.
        validation: validation questions.
        test: test questions.
        seed: of the world.
    """

    form: Literal["prose", "codes"] = "prose"
    people: Annotated[int, Meta(ge=3, le=220)] = 200
    relations: Annotated[int, Meta(ge=2, le=6)] = 4
    hops: Annotated[int, Meta(ge=1, le=4)] = 2
    train: Count = 2048
    validation: Count = 128
    test: Count = 512
    seed: int = 0

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of its relations."""
        return RELATIONS[: self.relations]


@frozen
class RelationChain:
    """The content of a question: a person, and relations one after the other."""

    person: str
    relations: tuple[str, ...]


Facts = Mapping[tuple[str, str], str]
"""The other person, by person and relation."""


def generate(settings: World) -> tuple[dict[Split, tuple[Problem, ...]], tuple[Document, ...]]:
    """Return the questions of every split, and the documents of the whole world.

    Raises:
        UsageError: there are not enough different questions.
    """
    key = Key(settings.seed).child("world")
    names = _names(settings, key.child("names").random())
    splits: tuple[Split, ...] = ("train", "validation", "test")
    made: dict[Split, tuple[Problem, ...]] = {}
    documents: list[Document] = []
    for i, split in enumerate(splits):
        people = names[i * settings.people : (i + 1) * settings.people]
        draw = key.child("facts", split).random()
        facts = {
            (person, relation): draw.choice([other for other in people if other != person])
            for person in people
            for relation in settings.kinds
        }
        made[split] = _questions(settings, split, people, facts, key.child("questions", split))
        documents += _documents(settings, people, facts)
    # The order must not show the split or the person.
    key.child("order").random().shuffle(documents)
    return made, tuple(documents)


def _names(settings: World, draw: random.Random) -> list[str]:
    if settings.form == "codes":
        codes = ["".join(letters) for letters in product(ascii_lowercase, repeat=2)]
        draw.shuffle(codes)
        return codes
    words = ["".join(letters) for letters in product(_ONSETS, _VOWELS, _ONSETS, _VOWELS)]
    draw.shuffle(words)
    count = 3 * settings.people
    pairs = zip(words[:count], words[count : 2 * count], strict=True)
    return [f"{first.capitalize()} {last.capitalize()}" for first, last in pairs]


def _documents(settings: World, people: Sequence[str], facts: Facts) -> Iterator[Document]:
    """Yield a page for each person; in codes, a document for each fact."""
    for person in people:
        if settings.form == "codes":
            yield from (Document(person + name[0], facts[person, name]) for name in settings.kinds)
        else:
            page = " ".join(
                f"The {name} of {person} is {facts[person, name]}." for name in settings.kinds
            )
            yield Document(person, page)


def _questions(
    settings: World, split: Split, people: Sequence[str], facts: Facts, key: Key
) -> tuple[Problem, ...]:
    size = getattr(settings, split)
    problems: dict[str, Problem] = {}
    for n in range(TRIES * (size + 20)):
        if len(problems) == size:
            break
        draw = key.child(n).random()
        hops = draw.randint(1, settings.hops)
        chain = tuple(draw.choice(settings.kinds) for _ in range(hops))
        question = RelationChain(draw.choice(people), chain)
        text = _text(settings, question)
        answer, titles = _followed(settings, question, facts)
        # An answer that the question itself names needs no search.
        if text not in problems and answer != question.person:
            hidden = {"answers": [answer], "documents": titles}
            name = f"{split}-{len(problems) + 1}"
            problems[text] = Problem(name, text, category=f"{hops}-hop", hidden=hidden)
    if len(problems) < size:
        raise UsageError(
            f"task search: generated: only {len(problems)} different questions were found, fewer "
            f"than {split}: {size}; allow more people, relations or hops"
        )
    return tuple(problems.values())


def _text(settings: World, question: RelationChain) -> str:
    if settings.form == "codes":
        return question.person + "".join(name[0] for name in question.relations).ljust(
            settings.hops, "-"
        )
    chain = "".join(f"the {name} of " for name in reversed(question.relations))
    return f"Who is {chain}{question.person}?"


def _followed(settings: World, question: RelationChain, facts: Facts) -> tuple[str, list[str]]:
    """Return the answer, and the titles of the documents that lead to it."""
    person, titles = question.person, []
    for name in question.relations:
        titles.append(person + name[0] if settings.form == "codes" else person)
        person = facts[person, name]
    return person, list(dict.fromkeys(titles))


def chain_in(text: str) -> RelationChain:
    """Return the content of a generated question.

    Raises:
        ValueError: the text is no generated question.
    """
    if match := _ASKED.search(text):
        chain = re.findall(r"the (\w+) of", match[1])
        return RelationChain(match[2], tuple(reversed(chain)))
    if match := re.match(r"([a-z]{2})([a-z]+)-*(?:\||$)", text):
        return RelationChain(match[1], tuple(SIGNS.get(sign, sign) for sign in match[2]))
    raise ValueError(f"{text[:80]!r} is no generated question")


def facts_in(shown: str) -> dict[tuple[str, str], str]:
    """Return the facts in an observation."""
    facts = {(person, name): other for name, person, other in _FACT.findall(shown)}
    for person, sign, other in re.findall(r"\|([a-z]{2})([a-z])([a-z]{2})", shown):
        facts[person, SIGNS.get(sign, sign)] = other
    return facts


def query_for(person: str, relation: str) -> str:
    """Return the query that finds a fact."""
    return person + relation[0] if len(person) == 2 else f"{relation} of {person}"


Share = Annotated[float, Meta(ge=0, le=1)]


@frozen
class SearchTeacher(Model):
    """Plays all three roles on generated questions with stated mistakes, to learn from.

    A prompt begins with "V" for the verifier, "S" for the searcher or "A" for the answerer, and
    optionally a digit. The observation follows, and optionally "=".

    Args:
        wrong_verdict: how often the verifier says the opposite.
        wrong_query: how often the searcher gets a letter of its query wrong.
        wrong_answer: how often the answerer gets a letter of the answer wrong.
        enough: what the verifier says when the answer is known.
        more: what it says when it is not.
    """

    wrong_verdict: Share = 0.25
    wrong_query: Share = 0.4
    wrong_answer: Share = 0.3
    enough: str = "y"
    more: str = "n"

    ceiling = no_calls

    async def complete(self, request: Mapping[str, JSON], key: Key, calls: Calls) -> Answer:
        """Return one verdict, query or answer."""
        prompt = str(request["messages"][-1]["content"])
        shown = prompt[1:].lstrip("0123456789").rstrip("=")
        if prompt[:1] not in ("V", "S", "A"):
            raise CallError(f"search-teacher: {prompt[:80]!r} begins with no role", "permanent")
        try:
            text = self._say(prompt[0], shown, key.random())
        except ValueError as error:
            raise CallError(f"search-teacher: {error}", "permanent") from error
        return Answer({"text": text, "stop": "end", "tool_calls": [], "model": "teacher"}, Usage())

    def _say(self, role: str, shown: str, draw: random.Random) -> str:
        question, facts = chain_in(shown), facts_in(shown)
        person, missing, last = question.person, "", ""
        for relation in question.relations:
            last = query_for(person, relation)
            if (person, relation) not in facts:
                missing = last
                break
            person = facts[person, relation]
        wrong = draw.random()
        if role == "V":
            return self.more if bool(missing) != (wrong < self.wrong_verdict) else self.enough
        if role == "S":
            return _mistaken(missing or last, draw) if wrong < self.wrong_query else missing or last
        return _mistaken(person, draw) if wrong < self.wrong_answer else person


def _mistaken(right: str, draw: random.Random) -> str:
    """Return the same with one letter changed."""
    at = draw.choice([i for i, other in enumerate(right) if other.isalpha()])
    letter = draw.choice([other for other in ascii_lowercase if other != right[at].lower()])
    return right[:at] + letter + right[at + 1 :]
