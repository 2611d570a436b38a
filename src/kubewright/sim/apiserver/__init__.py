"""An API server in memory, with two doors: direct calls for the sandbox on virtual time, HTTP for kubectl."""
