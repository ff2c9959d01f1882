"""Verdict on a KubeSchedulerConfiguration: whether a kube-scheduler of some version starts with it.

``verdict`` judges a file by the rules of kube-scheduler's sources, ``binary`` asks a kube-scheduler. Both have three
answers, yes, no and not checked: a rule that is not known here never counts as kept.
"""
