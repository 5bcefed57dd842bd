"""Mathematics for teams: problems, generated ones too, and a verdict by value."""
