"""Plugins and profiles read from a scheduler's configuration."""
