"""What comparisons come to: intervals over worlds, cases that were lost, and a page with pictures."""
