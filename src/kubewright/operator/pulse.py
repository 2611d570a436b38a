"""How long the event loop was held up: while it is, nobody renews the lease."""

import asyncio

from kubewright.metrics import Registry

EVERY_S = 0.1
METRIC = "kubewright_event_loop_longest_block_seconds"


async def pulse(registry: Registry) -> None:
    """Keep the metric until cancelled: the longest time since the start in which the loop did not come round."""
    loop = asyncio.get_running_loop()
    longest = 0.0
    registry.set(METRIC, 0)
    while True:
        due = loop.time() + EVERY_S
        await asyncio.sleep(EVERY_S)
        late = loop.time() - due
        if late > longest:
            longest = late
            registry.set(METRIC, longest)
