"""No components: this distribution supplies the command `sweep` alone."""

from __future__ import annotations
