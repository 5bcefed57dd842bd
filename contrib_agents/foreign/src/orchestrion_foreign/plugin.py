"""No components: this distribution is a library for those that bring agents of a framework."""

from __future__ import annotations
