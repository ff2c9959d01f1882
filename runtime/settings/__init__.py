"""Settings: the types of their fields, and reading them from flags, environment and file."""
