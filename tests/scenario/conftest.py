"""Stories are read, not logged: only what goes wrong is shown, without the values of local variables."""

import structlog

structlog.configure(
    wrapper_class=structlog.make_filtering_bound_logger(40),
    processors=[structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer(["event"])],
)
