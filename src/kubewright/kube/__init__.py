"""Talking to Kubernetes: client, informers, work queues, leases, events."""
