"""Controller that moves running pods where the predicted congestion falls most: ``trimaran rebalance``."""
