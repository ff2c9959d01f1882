"""Profiles: plugins with weights, their scores and explanations, and configurations."""
