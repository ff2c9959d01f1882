"""Verdict on a KubeSchedulerConfiguration: whether kube-scheduler of a given version starts with the file.

``verdict`` checks a file by the rules in kube-scheduler's source code, ``binary`` runs a kube-scheduler. The answer is
yes, no or not checked: it is never yes if a value is checked by a rule that is not known here.
"""
