"""Fits the ranking of edits of `learned.py` to what episodes and known repairs showed.

The weights are the most likely ones of a conditional logit (McFadden, 1974). Deviations:

- Several candidates may be right: the likelihood is that any of them is.
- Of the wrong ones that were not tried, the likeliest and a sample of the rest stand for all.
- The rates of a problem's kinds are counted without the problem: else they would seem to say more
  than they do of problems that were not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from orchestrion_repair.counts import Kind
from orchestrion_repair.learned import (
    RATE,
    EditModel,
    EditSituation,
    Floats,
    effects,
    log_rate,
    table_of,
)
from orchestrion_repair.ranking import Program
from orchestrion_repair.traits import SIZE, Trait, of_crossing, of_effect, of_kind, of_line


@frozen(eq=False)
class Rows:
    """A case as the fit needs it.

    Args:
        matrix: traits [n, SIZE], sparse.
        right: which rows are right [n].
        offset: what is added to their scores [n].
        kinds: of their candidates [n].
    """

    matrix: Any
    right: NDArray[np.bool_]
    offset: Floats
    kinds: Sequence[Kind]


def rows_of(
    program: Program,
    situation: EditSituation,
    right: Sequence[int],
    wrong: Sequence[int],
    others: Sequence[int],
    rest: int,
) -> Rows:
    """Return the traits of a case, without rates.

    In this situation the candidates `right` were right and `wrong` were not; `others` stand for
    all `rest` candidates of which nothing is known.
    """
    from scipy.sparse import csr_matrix

    table = table_of(program)
    evidence = table.evidence(situation)
    _, changed = effects(program, situation.seen)
    named = dict(situation.symptoms)
    numbers = (*right, *wrong, *others)
    shared: dict[tuple[int, int], tuple[Trait, ...]] = {}
    indices: list[int] = []
    values: list[float] = []
    starts = [0]
    for number in numbers:
        line, kind = int(table.line[number]), int(table.kind[number])
        if (line, kind) not in shared:
            pair, line_evidence = table.kinds[kind], evidence[line]
            shared[line, kind] = (
                *of_line(line_evidence),
                *of_kind(*pair, table.number[kind], named),
                *of_crossing(pair[0], line_evidence),
            )
        effect = of_effect(table.kinds[kind][0], float(changed[number]))
        for index, value in (*table.traits(number), *shared[line, kind], *effect):
            indices.append(index)
            values.append(value)
        starts.append(len(indices))
    offset = np.zeros(len(numbers))
    if others:
        offset[-len(others) :] = np.log(rest / len(others))
    matrix = csr_matrix((values, indices, starts), shape=(len(numbers), SIZE))
    kinds = [table.kinds[table.kind[number]] for number in numbers]
    return Rows(matrix, np.arange(len(numbers)) < len(right), offset, kinds)


def with_rates(rows: Rows, rates: Mapping[Kind, float]) -> Any:
    """Return the traits of a case with those that rates give [n, SIZE]."""
    from scipy.sparse import csr_matrix

    values = [log_rate(rates, kind) for kind in rows.kinds]
    column = (np.arange(len(values)), np.full(len(values), RATE))
    return rows.matrix + csr_matrix((values, column), shape=rows.matrix.shape)


def fit(
    cases: Sequence[tuple[Any, Rows]], first: EditModel, doubt: float, steps: int = 100
) -> EditModel:
    """Return the most likely ranking, drawn towards `first`.

    Args:
        cases: each with its traits [n, SIZE].
        first: the ranking before.
        doubt: half of it times the squared distance of the weights is what the distance costs.
        steps: of the search.
    """
    from scipy.optimize import minimize
    from scipy.sparse import vstack

    matrix = vstack([traits for traits, _ in cases]).tocsr()
    right = np.concatenate([rows.right for _, rows in cases])
    offset = np.concatenate([rows.offset for _, rows in cases])
    sizes = np.array([len(rows.right) for _, rows in cases])
    starts, case = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(cases)), sizes)
    columns = np.unique(matrix.indices)
    matrix = matrix[:, columns].tocsr()
    transposed = matrix.T.tocsr()
    base = matrix @ first.weights[columns]

    def softmax(scores: Floats) -> tuple[float, Floats]:
        """Return the sum over the cases of the logarithm of their sums, and shares of these."""
        top = np.maximum.reduceat(scores, starts)
        parts = np.exp(scores - top[case])
        sums = np.add.reduceat(parts, starts)
        return float((top + np.log(sums)).sum()), parts / sums[case]

    def loss(change: Floats) -> tuple[float, Floats]:
        scores = base + matrix @ change
        every, shares = softmax(scores + offset)
        good, mine = softmax(np.where(right, scores, -1e9))
        value = every - good + doubt / 2 * float(change @ change)
        return value, transposed @ (shares - mine) + doubt * change

    optimum = minimize(
        loss, np.zeros(len(columns)), jac=True, method="L-BFGS-B", options={"maxiter": steps}
    )
    weights = first.weights.copy()
    weights[columns] += optimum.x
    return EditModel(weights, first.rates)
