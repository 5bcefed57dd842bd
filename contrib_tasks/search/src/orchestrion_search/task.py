"""The task `search`: questions whose answers are in a corpus that the team searches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from attrs import evolve, fields, frozen

from orchestrion import (
    Calls,
    Key,
    Meta,
    Observation,
    OpenContext,
    Problem,
    Scores,
    Split,
    SplitShares,
    Step,
    Task,
    Trajectory,
    Turn,
    UsageError,
    did_you_mean,
    no_calls,
    refuse_idle,
    replace,
    splits_of,
)
from orchestrion_search.answers import exact, f1, value_of
from orchestrion_search.documents import (
    Bm25,
    Document,
    Index,
    documents_of,
    read_corpus,
)
from orchestrion_search.questions import Questions, load
from orchestrion_search.world import World, generate

Count = Annotated[int, Meta(ge=1)]


@frozen
class Search:
    """Questions over a corpus: search as often as necessary, then answer.

    In each of at most `rounds` rounds the verifier says whether enough is known. Then the searcher
    writes a query, and the next observation has the documents; or the answerer answers and the
    episode ends. In the last round the searcher is blocked.

    Args:
        source: `generated`, or a file in the form of HotpotQA.
        test: another file for the test split; its questions are in no other split.
        corpus: a file of further documents, one {"title", "text"} a line.
        split: how the questions of `source` are divided.
        generated: the generated world.
        dense: a folder with a sentence encoder, or its name on a hub; without it, BM25.
        query_prompt: put before a query for `dense`, e.g. "query: "; by default the encoder's own.
        document_prompt: put before a document for `dense`; by default the encoder's own.
        dense_index: a folder where embeddings of the corpus are kept between runs.
        approximate: search a graph of neighbours (HNSW), kept in `dense_index`, instead of
            comparing with every document: for millions of documents, of which it misses some.
        retriever: the agent whose turns have the documents for the searcher's query, such as
            `retrieve`, which asks a server; without it, the task searches its own corpus.
        rounds: the most rounds.
        results: documents that a search shows.
        history: the number of latest searches that the observation shows.
        score: the value of an answer: 1 or 0 by `exact` match, or its `f1`. Only an exact match
            is a success.
        verifier: the agent that says whether enough is known.
        searcher: the agent that writes the queries.
        answerer: the agent that answers.
    """

    source: Literal["generated"] | Path = "generated"
    test: Path | None = None
    corpus: Path | None = None
    split: SplitShares = SplitShares()
    generated: World = World()
    dense: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    dense_index: Path | None = None
    approximate: bool = False
    retriever: str | None = None
    rounds: Count = 4
    results: Count = 3
    history: Count = 4
    score: Literal["exact", "f1"] = "exact"
    verifier: str = "verifier"
    searcher: str = "searcher"
    answerer: str = "answerer"

    def __attrs_post_init__(self) -> None:
        idle = ("generated",) if isinstance(self.source, Path) else ("test", "split")
        refuse_idle(self, idle, f"with `source: {self.source}`")
        if self.retriever is not None:
            refuse_idle(self, ("corpus", "dense", "results"), "with `retriever`")
        if self.dense is None:
            unused = ("query_prompt", "document_prompt", "dense_index", "approximate")
            refuse_idle(self, unused, "without `dense`")
        elif self.approximate and self.dense_index is None:
            # A graph that is built again may find other documents.
            raise ValueError("approximate: needs a `dense_index`, in which the graph is kept")

    @asynccontextmanager
    async def open(self, ctx: OpenContext) -> AsyncIterator[Task]:
        """Read the questions and index the corpus."""
        team = [member.name for member in ctx.roster]
        needed = {"searcher": self.searcher, "answerer": self.answerer}
        if self.verifier != fields(Search).verifier.default:
            needed["verifier"] = self.verifier  # the default one may be missing
        if self.retriever is not None:
            needed["retriever"] = self.retriever
        for field, name in needed.items():
            if team and name not in team:
                near = did_you_mean(name, team)
                raise UsageError(f"{ctx.path}.{field}: no agent {name!r} in the team{near}")
        divided, documents = self.read()
        index = await asyncio.to_thread(self._index, () if self.retriever else documents)
        try:
            yield RunningSearch(self, divided, index)
        finally:
            index.close()

    def _index(self, documents: Sequence[Document]) -> Index:
        if self.dense is None:
            return Bm25(documents)
        from orchestrion_search.dense import Dense

        return Dense(
            documents,
            self.dense,
            self.query_prompt,
            self.document_prompt,
            self.dense_index,
            self.approximate,
        )

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the questions of a split."""
        return self.read()[0][split]

    def read(self) -> tuple[dict[Split, tuple[Problem, ...]], tuple[Document, ...]]:
        """Return the questions by split, and the corpus.

        Raises:
            UsageError: a file is wrong, or there are not enough questions, or no documents.
        """
        more = read_corpus(self.corpus) if self.corpus is not None else ()
        if not isinstance(self.source, Path):
            made, documents = generate(self.generated)
            return made, tuple(dict.fromkeys([*documents, *more]))
        loaded = load(self.source)
        own = load(self.test) if self.test is not None else Questions((), ())
        tested = {problem.text for problem in own.problems}
        new = [problem for problem in loaded.problems if problem.text not in tested]
        named = splits_of((problem.text for problem in new), self.split)
        splits: dict[Split, list[Problem]] = {"train": [], "validation": [], "test": []}
        for problem in new:
            splits[named[problem.text]].append(problem)
        splits["test"] += own.problems
        all_documents = [*loaded.documents, *own.documents, *more]
        if not all_documents and self.retriever is None:
            wanted = "no question has a `context`: give a `corpus`, or an agent as `retriever`"
            raise UsageError(f"{self.source}: {wanted}")
        divided = {
            split: tuple(replace(problem, id=f"{split}/{problem.id}") for problem in problems)
            for split, problems in splits.items()
        }
        return divided, tuple(dict.fromkeys(all_documents))


@frozen
class _State:
    question: str
    rounds: int = 0
    searches: tuple[tuple[str, tuple[Document, ...]], ...] = ()
    answer: str = ""


@frozen(eq=False)
class RunningSearch(Task):
    """An opened task: questions, and an index."""

    settings: Search
    divided: dict[Split, tuple[Problem, ...]]
    index: Index

    ceiling = no_calls

    def problems(self, split: Split) -> Sequence[Problem]:
        """Return the questions of a split."""
        return self.divided[split]

    def start(self, problem: Problem, key: Key) -> Step:
        """Return the question."""
        return self._step(_State(problem.text))

    def step(self, state: _State, turn: Turn, key: Key) -> Step:
        """Return the state after a turn; a failed or unreadable turn uses up its round."""
        settings, text = self.settings, value_of(turn)
        if turn.agent == settings.verifier:
            return self._step(evolve(state, rounds=state.rounds + 1))
        if turn.agent == settings.searcher:
            documents = () if settings.retriever else self.index.search(text, settings.results)
            state = evolve(state, searches=(*state.searches, (text, documents)))
            return self._step(state, done=settings.retriever is None and self._is_last(state))
        if turn.agent == settings.retriever and state.searches:
            *before, (query, _) = state.searches
            state = evolve(state, searches=(*before, (query, documents_of(turn))))
            return self._step(state, done=self._is_last(state))
        if turn.agent == settings.answerer:
            return self._step(evolve(state, answer=text), done=True)
        return self._step(state)

    def _is_last(self, state: _State) -> bool:
        """Return whether the last search was made."""
        return len(state.searches) >= self.settings.rounds

    def _step(self, state: _State, done: bool = False) -> Step:
        settings = self.settings
        last = state.rounds >= settings.rounds
        used = len(state.searches) / settings.rounds
        data = {
            "searches": [
                {"query": query, "found": [{"title": d.title, "text": d.text} for d in documents]}
                for query, documents in state.searches
            ]
        }
        observation = Observation(
            self._observation_text(state),
            data=data,
            features=(min(1.0, state.rounds / settings.rounds), used),
            blocked=frozenset([settings.searcher]) if last else frozenset(),
        )
        return Step(state, observation, done)

    def _observation_text(self, state: _State) -> str:
        """Return question and searches in the form of Dr.MAS (arXiv 2602.08847), or as codes."""
        settings = self.settings
        first = max(0, len(state.searches) - settings.history)
        shown = list(enumerate(state.searches))[first:]
        if settings.source == "generated" and settings.generated.form == "codes":
            # Every search takes equally many characters: small models rely on positions.
            best = (
                documents[0].title + documents[0].text if documents else "-----"
                for _, (_, documents) in shown
            )
            return state.question + "".join(f"|{document}" for document in best)
        if not shown:
            return state.question
        lines = [f"{state.question}\n\nSearches so far: {len(state.searches)}"]
        for i, (query, documents) in shown:
            texts = "\n".join(f"{document.title}: {document.text}" for document in documents)
            lines.append(
                f"Step {i + 1}:<search>{query}</search> <information>{texts}</information>"
            )
        return "\n".join(lines)

    async def verify(
        self, problem: Problem, trajectory: Trajectory, state: Any, *, final: bool, calls: Calls
    ) -> Scores:
        """Return the scores of the answer; before the end, half the share of documents found."""
        hidden = problem.hidden if isinstance(problem.hidden, dict) else {}
        wanted = hidden.get("answers", [])
        if state.answer:
            right, overlap = exact(state.answer, wanted), f1(state.answer, wanted)
            value = float(right) if self.settings.score == "exact" else overlap
            return Scores(value, right, {"exact": float(right), "f1": overlap})
        parts = {"exact": 0.0, "f1": 0.0}
        needed = set(hidden.get("documents", []))
        if final or not needed:
            return Scores(0.0, parts=parts)
        titles = {document.title for _, documents in state.searches for document in documents}
        return Scores(0.5 * len(needed & titles) / len(needed), parts=parts)
