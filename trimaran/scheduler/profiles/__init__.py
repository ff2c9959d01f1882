"""Registry of the plugins, and the profiles of a KubeSchedulerConfiguration."""
