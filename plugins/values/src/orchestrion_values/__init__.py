"""What each choice is worth, learned from few episodes."""
