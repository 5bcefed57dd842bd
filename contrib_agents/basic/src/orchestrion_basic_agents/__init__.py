"""Small agents for every team."""
