"""`python -m orchestrion`, for where the script is not on the path."""

from orchestrion._cli import main

if __name__ == "__main__":
    main()
