"""The algebra of scheduling: requirements, taints, resources, host ports, volumes, and the no that knows why."""
