"""Publishing: substitution of missing measurements, and the encoded bodies of responses."""
