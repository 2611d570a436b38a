pytest_plugins = ["tests.plane.fixtures"]
