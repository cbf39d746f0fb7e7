"""Example questions: topics of titles that read well, and no others."""

from __future__ import annotations

import pytest

from biorag.indexes.overview import examples
from biorag.types import Snippet


@pytest.mark.parametrize(
    ("title", "content", "question"),
    [
        (
            "Statin-associated muscle symptoms: what to do",
            "x",
            "What is known about statin-associated muscle symptoms?",
        ),
        ("Effect of aspirin on stroke", "x", "What is known about the effect of aspirin on stroke?"),
        (
            "Kawasaki disease in infants",
            "Kawasaki disease is rare.",
            "What is known about Kawasaki disease in infants?",
        ),
        ("DNA repair in yeast.", "x", "What is known about DNA repair in yeast?"),
        ("Does aspirin prevent stroke?", "x", "Does aspirin prevent stroke?"),
        ("US Rotavirus Vaccine Efficacy Group", "x", ""),
        ("Aspirin reduces the risk of stroke", "x", ""),
        ("Reply to the authors", "x", ""),
    ],
)
def test_an_example(title, content, question):
    assert examples([Snippet("1", title, content)]) == ((question,) if question else ())
