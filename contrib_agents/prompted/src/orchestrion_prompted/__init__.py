"""An agent that is one prompt, one completion and one strict reading of it."""
