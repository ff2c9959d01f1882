"""Who chooses the node: the policies that a replay compares."""
