"""Provider Kubelet: metrics of nodes and containers from the kubelets themselves."""
