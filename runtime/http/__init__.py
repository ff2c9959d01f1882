"""Bounded HTTP for everybody: sessions that can be ended, failures in our words, calls under one deadline."""
