"""What is wrong with metrics: each fetch by itself (``analyzer``) and against those before (``suspicion``)."""
