"""Learn routing, cascades and stopping from a table of recorded answers."""
