"""No components: this distribution supplies the command `studio` alone."""

from __future__ import annotations
