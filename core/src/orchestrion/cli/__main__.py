"""`python -m orchestrion.cli`, where the console script is not on the path."""

from orchestrion.cli import main

main()
