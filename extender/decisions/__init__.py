"""What was decided for pods: recorded behind the answers, explained, and held against what came of it."""
