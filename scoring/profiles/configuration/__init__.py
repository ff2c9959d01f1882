"""From a scheduler's configuration to plugins and profiles."""
