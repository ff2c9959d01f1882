"""Plugins of the scheduler, a file or folder each, and the objects that they read."""
