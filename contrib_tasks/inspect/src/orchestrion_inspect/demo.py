"""A small evaluation for trying the task."""

from __future__ import annotations

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import match
from inspect_ai.solver import generate, prompt_template

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Peru": "Lima",
    "Kenya": "Nairobi",
    "Japan": "Tokyo",
    "Norway": "Oslo",
    "Egypt": "Cairo",
    "Cuba": "Havana",
    "Ghana": "Accra",
    "Spain": "Madrid",
    "Latvia": "Riga",
    "Nepal": "Kathmandu",
}


@task
def capitals() -> Task:
    """Ask for capitals; an answer is right if it ends with the city."""
    samples = [
        Sample(f"What is the capital of {country}?", target=city, id=country.lower())
        for country, city in CAPITALS.items()
    ]
    return Task(
        samples,
        solver=[prompt_template("{prompt}\n\nEnd with the name of the city."), generate()],
        scorer=match(),
    )
