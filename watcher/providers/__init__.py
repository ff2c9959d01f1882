"""Where metrics come from: one file per provider, found by name through entry points."""
