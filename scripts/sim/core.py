"""The simulated engine in real time: one step after the other, through scheduler, worker and output.

A step ends at an absolute time counted from the last one's: lateness does not add up.
"""

from __future__ import annotations

import time
from typing import Any, Optional

from sim.engine import Engine
from sim.parts import Pace
from sim.worker import Order, Worker

MAX_LAG_S = 0.25  # what is lost beyond it is not caught up


class Scheduler:
    def __init__(self, engine: Engine) -> None:
        self.engine, self.clock, self.busy = engine, 0.0, 0.0
        self.handed: list = []  # (sequence, tokens it gets at the end of the step)

    async def schedule(self) -> Optional[Order]:
        """The step that begins now; None: there is nothing to do."""
        engine, now = self.engine, time.monotonic()
        seconds, self.busy, self.handed = engine.step(now)
        if not self.handed or engine.terms is None:
            return None
        begin = max(self.clock, now - MAX_LAG_S)
        self.clock = begin + seconds
        pace = Pace(begin, seconds, engine.terms)
        prompts = engine.prompts
        order = Order(pace, len(self.handed) - len(prompts), prompts, engine.terms.worker_steps)
        await pace.spend("scheduler")
        return order

    def rest(self) -> None:
        """The clock begins anew after a pause."""
        self.clock = time.monotonic()


class OutputProcessor:
    async def process_outputs(self, order: Order, handed: list) -> None:
        await order.pace.finish()
        for chat, n in handed:
            chat.tokens.put_nowait(n)


class EngineCore:
    def __init__(self, flags: Any, engine: Engine) -> None:
        self.engine, self.scheduler = engine, Scheduler(engine)
        self.worker, self.output = Worker(flags), OutputProcessor()

    async def step(self) -> bool:
        """False: there was nothing to do."""
        for chat in [s for s in (*self.engine.running, *self.engine.waiting) if s.gone()]:
            self.engine.abort(chat)
            chat.tokens.put_nowait(0)
        order = await self.scheduler.schedule()
        if order is None:
            return False
        for _token in range(order.worker_steps):
            await self.worker.execute_model(order)
        await self.output.process_outputs(order, self.scheduler.handed)
        return True
