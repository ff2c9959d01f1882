"""Publishing: fill in missing measurements of a snapshot, and encode and cache the bodies of HTTP responses."""
