"""Serves many requests at once: a step program, a paged cache, a scheduler and a sampler joined.

Not safe for use from several threads. A request's tokens depend on its prompt, its parameters and its seed only, as far
as the program's rows do: not on what else runs, on chunks, on prefixes found in the cache or on preemption.
"""

from __future__ import annotations

import secrets
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from attnc.runtime.engine_stats import EngineStats
from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.encoder import EncoderCache, Rows
from attnc.runtime.kv.pool import OutOfPages
from attnc.runtime.outbox import Outbox
from attnc.runtime.requests import Finish, Output, Request, RequestRefused
from attnc.runtime.sampling import Sampled, sample
from attnc.runtime.sampling_params import SamplingParams
from attnc.runtime.scheduler import Chunk, Limits, Scheduler
from attnc.runtime.step_program import StepProgram
from attnc.runtime.text import Detokenizer, Transcript


class Engine:
    """Runs requests until they end, in steps that hold tokens of many. The cache is its own: one engine for each.

    What comes out of a step goes to the streams of its requests; what has no stream is what ``step`` returns. An
    exception of the program or the detokenizer passes through ``step``; the engine stays usable: pages are freed,
    outputs made before are kept for the next call, and unfinished requests compute their tokens again.
    """

    def __init__(
        self,
        program: StepProgram,
        cache: KVCache,
        *,
        encoder: EncoderCache | None = None,
        detokenizer: Detokenizer | None = None,
        limits: Limits | None = None,
    ) -> None:
        if cache.groups != program.groups:
            names = [[group.name for group in groups] for groups in (cache.groups, program.groups)]
            raise ValueError(f"the cache has layer groups {names[0]}, the program's are {names[1]}: make it from those")
        self._program = program
        self._cache = cache
        self._encoder = encoder
        self._detokenizer = detokenizer
        self._scheduler = Scheduler(cache, limits or Limits())
        self._requests: dict[int, Request] = {}
        """Those that haven't ended."""
        self._outbox = Outbox()
        self._added = 0
        self._steps = 0
        self._computed = 0
        self._generated = 0
        self._finished: Counter[Finish] = Counter()

    def add(self, prompt: Sequence[int], params: SamplingParams | None = None, encoded: Rows | None = None) -> int:
        """Queue a request; its id. Raises RequestRefused where it can never run, with the reason.

        ``encoded``: what the request's encoder gave, where the program reads one. Its pages are taken now.
        """
        params = params or SamplingParams()
        tokens = [int(token) for token in prompt]
        self._check(tokens, params)
        seed = secrets.randbits(64) if params.seed is None else params.seed
        transcript = Transcript(self._detokenizer, tokens, params.stop)
        request = Request(self._added, params, seed, tokens, transcript)
        self._admit_encoder(request, encoded)
        self._added += 1
        self._requests[request.id] = request
        self._scheduler.add(request)
        return request.id

    def cancel(self, request_id: int) -> None:
        """End a request now and free its pages; nothing where it has ended. Text held back is dropped.

        Raises KeyError for an id that was never given.
        """
        if not 0 <= request_id < self._added:
            raise KeyError(f"cancelling request {request_id}: there is none of that id")
        request = self._requests.get(request_id)
        if request is not None:
            self._scheduler.remove(request)
            self._end(Output(request_id, None, "", finish="cancelled"))

    @property
    def idle(self) -> bool:
        """Whether no request is left to run and no output left for ``step`` to return."""
        return not self._requests and self._outbox.empty

    def step(self) -> list[Output]:
        """Run one step, if there is anything to run; all outputs made so far that no stream takes."""
        self._advance()
        return self._outbox.take()

    def run(self) -> Iterator[Output]:
        """All outputs until the engine is idle. Requests may be added and cancelled meanwhile."""
        while not self.idle:
            yield from self.step()

    def stream(self, request_id: int) -> Iterator[Output]:
        """The outputs of one request to its end, steps being run as needed; other requests go on as well.

        Closing the iterator, once begun, cancels the request; so does an exception of a step it ran. Raises KeyError
        at once for a request that is unknown, has a stream already, or has ended with its outputs taken.
        """
        if request_id not in self._requests and not self._outbox.knows(request_id):
            raise KeyError(f"streaming request {request_id}: it is unknown, or has ended and its outputs were taken")
        return self._read(request_id, self._outbox.claim(request_id))

    def stats(self) -> EngineStats:
        return EngineStats(
            running=self._scheduler.running,
            waiting=self._scheduler.waiting,
            steps=self._steps,
            computed_tokens=self._computed,
            generated_tokens=self._generated,
            finished=dict(self._finished),
            cache=self._cache.stats(),
        )

    def _admit_encoder(self, request: Request, encoded: Rows | None) -> None:
        """Keep what the encoder gave; prefixes of the decoder are then the request's own."""
        if self._encoder is None:
            return
        if encoded is None:
            raise RequestRefused("the program reads an encoder: give what it gave for this request")
        try:
            self._encoder.admit(request.id, encoded)
        except OutOfPages as error:
            raise RequestRefused(f"no pages for what the encoder gave: {error}") from error
        request.salt = request.id.to_bytes(8, "little")

    def _check(self, tokens: list[int], params: SamplingParams) -> None:
        """Raise RequestRefused for what can be known beforehand."""
        vocabulary, longest = self._program.vocabulary, self._program.max_length
        if not tokens:
            raise RequestRefused("a request needs at least one token in its prompt")
        foreign = next((token for token in tokens if not 0 <= token < vocabulary), None)
        if foreign is not None:
            raise RequestRefused(f"token {foreign} of the prompt is outside the vocabulary, 0 to {vocabulary - 1}")
        if params.stop and self._detokenizer is None:
            raise RequestRefused("stop strings need text: make the engine with a detokenizer, or use stop_tokens")
        computed = len(tokens) + params.max_new_tokens - 1  # the last one is never fed back
        if computed > longest:
            raise RequestRefused(
                f"a prompt of {len(tokens)} tokens and max_new_tokens={params.max_new_tokens} need {computed} "
                f"positions, the model has {longest}; shorten the prompt or lower max_new_tokens"
            )
        self._scheduler.check(computed)

    def _advance(self) -> None:
        """Run one step and put its outputs where their readers find them."""
        try:
            chunks = self._scheduler.plan()
            if chunks:
                logits = self._compute(chunks)
                self._scheduler.commit(chunks)
                self._draw(logits, [chunk.request for chunk in chunks if chunk.due])
        except BaseException:
            self._scheduler.restart()
            raise
        finally:
            while self._scheduler.refused:
                request, reason = self._scheduler.refused.pop()
                self._end(Output(request.id, None, "", finish="refused", detail=reason))

    def _compute(self, chunks: Sequence[Chunk]) -> Tensor:
        """Logits [R, vocabulary] behind the last tokens of the chunks that are due."""
        batch = self._cache.batch([(chunk.request.id, len(chunk.tokens)) for chunk in chunks])
        storage = self._cache.storage
        if self._encoder is not None:
            batch = self._encoder.joined(batch, [chunk.request.id for chunk in chunks])
            storage = {**storage, self._encoder.group.name: self._encoder.storage}
        ends = accumulate(len(chunk.tokens) for chunk in chunks)
        last = [end - 1 for chunk, end in zip(chunks, ends, strict=True) if chunk.due]
        device = batch.positions.device
        ids = torch.tensor([token for chunk in chunks for token in chunk.tokens], device=device)
        rows = torch.tensor(last, dtype=torch.int64, device=device)
        with torch.no_grad():
            logits = self._program.step(ids, batch, storage, rows)
        if list(logits.shape) != [len(last), self._program.vocabulary]:
            wanted = [len(last), self._program.vocabulary]
            raise RuntimeError(f"the step program returned logits of shape {list(logits.shape)}, not {wanted}")
        self._steps += 1
        self._computed += len(ids)
        return logits

    def _draw(self, logits: Tensor, requests: Sequence[Request]) -> None:
        """Draw the next token of each request and hand it out."""
        for request, sampled in zip(requests, sample(logits, [request.row for request in requests]), strict=True):
            output = self._output(request, sampled)
            self._generated += sampled is not None
            if output.finish:
                self._scheduler.remove(request)
                self._end(output)
            else:
                self._outbox.put(output)

    def _output(self, request: Request, sampled: Sampled | None) -> Output:
        if sampled is None:
            place = f"the logits for token {len(request.tokens)} are no distribution: NaN, +inf, or -inf throughout"
            return Output(request.id, None, "", finish="failed", detail=place)
        try:
            return request.take(sampled)
        except Exception as error:
            error.add_note(f"while turning the tokens of request {request.id} into text")
            raise

    def _end(self, output: Output) -> None:
        """Hand out the last output of a request."""
        assert output.finish is not None
        del self._requests[output.request]
        if self._encoder is not None:
            self._encoder.free(output.request)
        self._outbox.put(output)
        self._finished[output.finish] += 1

    def _read(self, request_id: int, outputs: deque[Output]) -> Iterator[Output]:
        try:
            while outputs or request_id in self._requests:
                if outputs:
                    yield outputs.popleft()
                else:
                    self._advance()
        finally:
            self.cancel(request_id)
            self._outbox.release(request_id)
