"""A world in memory on a virtual clock: API server, kubelet, scheduler, workload controllers, EC2, faults."""
