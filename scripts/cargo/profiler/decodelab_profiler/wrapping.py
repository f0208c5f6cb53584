"""Wrappers of the table's kinds around one callable: plain, coroutine or generator.

What the callable returns and raises passes through unchanged. A fault of the profiler's own is told in the file
and ends the timing, never the call. Under torch.compile a wrapper is its callable: the tracer takes the first
branch as constant and never sees the rest.
"""

import functools
import inspect
import sys
from typing import Any

from .spans import MUTED, close, close_around, current, now

MARK = "decodelab_region"  # attribute of a wrapper: the region that it times


def _never():
    return False


def compiling_asker():
    """torch's own "is this being traced", as the engine's torch spells it."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return _never
    for path in ("compiler.is_compiling", "_utils.is_compiling", "_dynamo.is_compiling"):
        found = torch
        for name in path.split("."):
            found = getattr(found, name, None)
        if callable(found):
            return found
    return _never


def region(method, name, recorder, look=None):
    """Times `method` as a region of the step it is called in; outside of a step it is only called.

    `look(step, args, kwargs, result)` is called inside a step, before the region is closed.
    """
    if inspect.iscoroutinefunction(method):
        return _marked(_region_coroutine(method, name, recorder, look), name)
    if inspect.isasyncgenfunction(method):
        return _marked(_region_async_generator(method, name), name)
    if inspect.isgeneratorfunction(method):
        return _marked(_region_generator(method, name), name)
    if name == "collective":
        return _marked(_alone_it_is_none(_region_plain(method, name), method), name)
    if look is None and name != "sync":
        return _marked(_region_plain(method, name), name)
    return _marked(_region_seen(method, name, recorder, look), name)


def _marked(wrapper, name):
    setattr(wrapper, MARK, name)
    return wrapper


def _region_plain(method, name):
    compiling = compiling_asker()
    get = current.get

    @functools.wraps(method)
    def timed(*args, **kwargs):
        if compiling():
            return method(*args, **kwargs)
        step = get()
        if step is None or name in step.opened:
            return method(*args, **kwargs)
        step.opened.add(name)
        mark = None if step.device is None else step.device.enter(name)
        step.stack.append(0)
        begin = now()
        try:
            return method(*args, **kwargs)
        finally:
            close(step, name, begin, mark)

    return timed


def _alone_it_is_none(timed, method):
    """A group of one rank hands back what it was given: no collective, and not counted as one."""

    @functools.wraps(method)
    def grouped(*args, **kwargs):
        if args and getattr(args[0], "world_size", None) == 1:
            return method(*args, **kwargs)
        return timed(*args, **kwargs)

    return grouped


def _region_seen(method, name, recorder, look):
    """As plain; with a look at arguments and result, and timed outside of a step as well where it waits there."""

    @functools.wraps(method)
    def timed(*args, **kwargs):
        step = current.get()
        if step is None:
            if name != "sync":
                return method(*args, **kwargs)
            begin = now()
            try:
                return method(*args, **kwargs)
            finally:
                recorder.aside(name, now() - begin)
        if name in step.opened:
            return method(*args, **kwargs)
        step.opened.add(name)
        mark = None if step.device is None else step.device.enter(name)
        step.stack.append(0)
        begin = now()
        try:
            result = method(*args, **kwargs)
            if look is not None:
                recorder.guarded(look, step, args, kwargs, result)
            return result
        finally:
            close(step, name, begin, mark)

    return timed


def _region_coroutine(method, name, recorder, look):
    @functools.wraps(method)
    async def timed(*args, **kwargs):
        step = current.get()
        if step is None or name in step.opened:
            return await method(*args, **kwargs)
        step.opened.add(name)
        mark = None if step.device is None else step.device.enter(name)
        step.stack.append(0)
        begin = now()
        try:
            result = await method(*args, **kwargs)
            if look is not None:
                recorder.guarded(look, step, args, kwargs, result)
            return result
        finally:
            close(step, name, begin, mark)

    return timed


def _region_generator(method, name):
    """Timed while its own code runs, not while its consumer has what it yielded; each time is a call."""

    @functools.wraps(method)
    def timed(*args, **kwargs):
        inner = method(*args, **kwargs)
        resume = _resume(inner.send, name)
        throw = _resume(inner.throw, name)
        try:
            given = resume(None)
            while True:
                try:
                    sent = yield given
                except GeneratorExit:
                    inner.close()
                    raise
                except BaseException as fault:
                    given = throw(fault)
                else:
                    given = resume(sent)
        except StopIteration as end:
            return end.value

    return timed


def _region_async_generator(method, name):
    @functools.wraps(method)
    async def timed(*args, **kwargs):
        inner = method(*args, **kwargs)
        resume = _resume_async(inner.asend, name)
        throw = _resume_async(inner.athrow, name)
        try:
            given = await resume(None)
            while True:
                try:
                    sent = yield given
                except GeneratorExit:
                    await inner.aclose()
                    raise
                except BaseException as fault:
                    given = await throw(fault)
                else:
                    given = await resume(sent)
        except StopAsyncIteration:
            return

    return timed


def _resume(step_of, name):
    return _region_plain(lambda value: step_of(value), name)


def _resume_async(step_of, name):
    async def one(value):
        return await step_of(value)

    return _region_coroutine(one, name, None, None)


def around(method, name):
    """What `method` does between the regions inside it counts as `name`; no call of that region."""

    @functools.wraps(method)
    def surrounded(*args, **kwargs):
        step = current.get()
        if step is None or step is MUTED:
            return method(*args, **kwargs)
        step.stack.append(0)
        begin = now()
        try:
            return method(*args, **kwargs)
        finally:
            close_around(step, name, begin)

    return surrounded


def muted(method):
    """The engine's own pass: nothing inside it is a step, nor part of one."""

    @functools.wraps(method)
    def quiet(*args, **kwargs):
        outer = current.get()
        current.set(MUTED)
        try:
            return method(*args, **kwargs)
        finally:
            current.set(outer)

    return quiet


def looked(method, recorder, look):
    """Not timed; `look(step, args, kwargs, None)` before the call, inside a step."""

    @functools.wraps(method)
    def seen(*args, **kwargs):
        step = current.get()
        if step is not None and step is not MUTED:
            recorder.guarded(look, step, args, kwargs, None)
        return method(*args, **kwargs)

    return seen


def arrival(method):
    """Waits for a step's order: the step begins when this returns, and what was timed before is not of it."""

    quiet = muted(method)

    @functools.wraps(method)
    def waits(*args, **kwargs):
        outer = current.get()
        try:
            return quiet(*args, **kwargs)
        finally:
            if outer is not None and outer is not MUTED:
                outer.t0 = outer.begin = now()

    return waits


def loads(method, recorder):
    """After it the runner, its first argument, has its model."""

    @functools.wraps(method)
    def load(*args, **kwargs):
        result = method(*args, **kwargs)
        recorder.guarded(recorder.loaded, args[0])
        return result

    return load


def step(method, role, recorder):
    """The call that is a step, or its first half; one inside another of the same role is part of it."""
    if inspect.iscoroutinefunction(method):
        return _step_coroutine(method, role, recorder)

    @functools.wraps(method)
    def stepped(*args, **kwargs):
        outer = current.get()
        if outer is not None and (outer is MUTED or outer.role == role):
            return method(*args, **kwargs)
        mine = recorder.guarded(recorder.begin, role, outer, args, kwargs)
        if mine is None:
            return method(*args, **kwargs)
        try:
            result = method(*args, **kwargs)
        except BaseException:
            recorder.guarded(recorder.failed, mine)
            raise
        recorder.guarded(recorder.called, mine, result)
        return result

    return stepped


def _step_coroutine(method, role, recorder):
    @functools.wraps(method)
    async def stepped(*args, **kwargs):
        outer = current.get()
        if outer is not None and (outer is MUTED or outer.role == role):
            return await method(*args, **kwargs)
        mine = recorder.guarded(recorder.begin, role, outer, args, kwargs)
        if mine is None:
            return await method(*args, **kwargs)
        try:
            result = await method(*args, **kwargs)
        except BaseException:
            recorder.guarded(recorder.failed, mine)
            raise
        recorder.guarded(recorder.called, mine, result)
        return result

    return stepped


def rest(method, recorder):
    """The second half of the worker's step."""

    @functools.wraps(method)
    def second(*args, **kwargs):
        outer = current.get()
        mine = None if outer is MUTED else recorder.guarded(recorder.resume, outer)
        if mine is None:
            return method(*args, **kwargs)
        try:
            result = method(*args, **kwargs)
        except BaseException:
            recorder.guarded(recorder.failed, mine)
            raise
        recorder.guarded(recorder.finished, mine)
        return result

    return second
