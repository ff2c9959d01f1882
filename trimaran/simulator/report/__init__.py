"""Reports of comparisons: intervals over worlds, losing cases, tables, and a page with figures."""
