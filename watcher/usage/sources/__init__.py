"""Sources of pod use: running pods, containers, node capacity and autoscalers."""
