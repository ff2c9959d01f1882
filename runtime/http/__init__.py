"""Bounded HTTP client: cancellable sessions, classified failures, and concurrent calls under one deadline."""
