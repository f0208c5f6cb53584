"""What a step is: prefill, decode or mixed, its requests and tokens, from what the scheduler hands over.

decode: every request schedules tokens after its prompt; prefill: none does; mixed: both. A step without
tokens (requests that ended are told to the worker) is `dummy`. What cannot be read is None.
"""


class Prompts:
    """Remembers how long each request's prompt is: V1 sends it once, with the first step of a request."""

    def __init__(self):
        self._lengths: dict = {}

    def of(self, order):
        """(phase, requests, tokens) of a V1 SchedulerOutput or of V0's list of sequence groups.

        An order with an attribute `phase` says it itself, with `reqs` and `tokens` (decodelab's simulator).
        """
        if hasattr(order, "phase"):
            return order.phase, getattr(order, "reqs", None), getattr(order, "tokens", None)
        if hasattr(order, "num_scheduled_tokens"):
            return self._of_v1(order)
        groups = getattr(order, "seq_group_metadata_list", order)
        if isinstance(groups, tuple):
            groups = groups[0]
        return _of_v0(groups) if isinstance(groups, list) else (None, None, None)

    def _of_v1(self, order):
        for request in getattr(order, "finished_req_ids", None) or ():
            self._lengths.pop(request, None)
        scheduled = order.num_scheduled_tokens
        prefills = len(order.scheduled_new_reqs)
        for new in order.scheduled_new_reqs:
            tokens = getattr(new, "prompt_token_ids", None)
            tokens = getattr(new, "prompt_embeds", None) if tokens is None else tokens
            if tokens is not None:
                self._lengths[new.req_id] = len(tokens)
        drafts = getattr(order, "scheduled_spec_decode_tokens", None) or {}
        for request, computed in _cached(order.scheduled_cached_reqs):
            prompt = self._lengths.get(request)
            usual: int = 1 + len(drafts.get(request) or ())
            again = (
                scheduled.get(request, 0) > usual
            )  # a chunk, or what was preempted computed once more
            prefills += bool(again or (prompt is not None and computed < prompt))
        phase = _phase(prefills, len(scheduled) - prefills)
        return phase, len(scheduled), order.total_num_scheduled_tokens


def _cached(told):
    """(request, tokens computed so far): one object of lists from 0.9.0 on, before it one object a request."""
    if isinstance(told, list):
        return [(c.req_id, c.num_computed_tokens) for c in told]
    return list(zip(told.req_ids, told.num_computed_tokens))


def _of_v0(groups):
    prefills: int = sum(1 for g in groups if g.is_prompt)
    sequences = [max(1, len(getattr(g, "seq_data", None) or ())) for g in groups]
    chunks: list = [getattr(g, "token_chunk_size", None) for g in groups]
    tokens = None
    if all(chunk is not None for chunk in chunks):
        tokens = sum(c if g.is_prompt else n for c, n, g in zip(chunks, sequences, groups))
    return _phase(prefills, len(groups) - prefills), sum(sequences), tokens


def of_model_input(told):
    """The same from V0's model input, which is all that a rank without the scheduler gets."""
    metadata = getattr(told, "attn_metadata", None)
    prefills = getattr(metadata, "num_prefills", None)
    decodes = getattr(metadata, "num_decode_tokens", None)
    if prefills is None or decodes is None:
        return None, None, None
    tokens = getattr(metadata, "num_prefill_tokens", 0) + decodes
    return _phase(prefills, decodes), prefills + decodes, tokens


def _phase(prefills, decodes):
    if prefills:
        return "mixed" if decodes else "prefill"
    return "decode" if decodes else "dummy"
