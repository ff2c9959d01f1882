"""State machine of the scheduler: extension points, queue and cycles. Imports no plugin."""
