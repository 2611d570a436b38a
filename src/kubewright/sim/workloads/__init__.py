"""The workload controllers of a pretend control plane, each as far as a user of `kubectl` can see."""
