"""Benchmarks for orchestrators whose best possible value is computed exactly."""
