"""No components: this distribution supplies the command `serve` alone."""

from __future__ import annotations
