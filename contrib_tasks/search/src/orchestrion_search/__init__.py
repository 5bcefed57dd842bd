"""Questions for teams that search before they answer."""
