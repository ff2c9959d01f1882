"""Verdict on a KubeSchedulerConfiguration: whether kube-scheduler of a given version starts with the file.

``verdict`` checks a file by the rules in kube-scheduler's source code, ``binary`` runs a kube-scheduler. The answer is
yes, no or not checked. It is never yes for a file with a value that neither of them can check.
"""
