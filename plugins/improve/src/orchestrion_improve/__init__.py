"""What agents are told, improved: habits that were shown to help, and evolved instructions."""
