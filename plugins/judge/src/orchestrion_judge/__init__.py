"""Rewards by judgement: of a language model by a rubric, or of a person."""
