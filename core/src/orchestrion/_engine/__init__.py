"""The engine: episodes, the one call path, and the team they run with."""
