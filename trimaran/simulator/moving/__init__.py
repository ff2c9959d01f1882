"""Ways to move pods that run, beside a policy: when, how many, which, and where to."""
