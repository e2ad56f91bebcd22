"""The routes, by the nouns of the services."""
