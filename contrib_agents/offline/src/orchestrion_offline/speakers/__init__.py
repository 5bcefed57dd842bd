"""The speakers that come with the plugin, a module each."""
