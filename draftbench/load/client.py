"""The one seam to the network: SGLang's HTTP contract, bodies in and raw bytes out."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import aiohttp
import orjson

from draftbench.load.clock import Clock, MonotonicClock
from draftbench.load.stream import RawStream, Read, RequestError, excerpt

KEEP_ALIVE_S = 3.0
"""Below uvicorn's five seconds, so that a connection is never reused while the server closes it."""
READ_BUFFER_BYTES = 1 << 20
CONTROL_TIMEOUT_S = 30.0
_JSON = {"Content-Type": "application/json"}
_Note = Callable[[int], None]


@dataclass(frozen=True)
class TokenScore:
    """One output token and the target's two best tokens at its position, natural log-probabilities."""

    token: int
    top1_token: int
    top1_logprob: float
    top2_token: int
    top2_logprob: float


def generate_body(
    request_id: str, input_ids: Sequence[int], max_new_tokens: int, temperature: float, top_p: float
) -> bytes:
    """The streamed request as bytes, made before the clock starts; stops are the model's own.

    `request_id` names the request in the server's log and must be unique there.
    """
    parameters = {"temperature": temperature, "top_p": top_p, "max_new_tokens": max_new_tokens}
    body = {"rid": request_id, "input_ids": list(input_ids), "sampling_params": parameters, "stream": True}
    return orjson.dumps(body)


def score_body(input_ids: Sequence[int], start: int) -> bytes:
    """A request that scores `input_ids` from position `start` on.

    SGLang gives the first position it was asked for no score, hence the one before is asked for too.
    """
    return orjson.dumps(
        {
            "input_ids": list(input_ids),
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 1},
            "return_logprob": True,
            "logprob_start_len": start - 1,
            "top_logprobs_num": 2,
            "stream": False,
        }
    )


class Client:
    """One persistent session with one server; every failure is a classified RequestError."""

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        self._url = url.rstrip("/")
        self._clock = clock or MonotonicClock()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=READ_BUFFER_BYTES,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def open_connections(self, count: int) -> None:
        """Connect before the first request, so that no connect time stands in a TTFT.

        Not by /health: SGLang generates a token for each of those.
        """
        await asyncio.gather(*(self._call("GET", "/model_info") for _ in range(count)))

    async def generate(self, body: bytes, on_read: _Note | None = None) -> RawStream:
        """Send a streamed request and stamp each read; `on_read` hears every arrival time."""
        sent_ns = self._clock.now_ns()
        try:
            async with self._open.post(f"{self._url}/generate", data=body, headers=_JSON) as response:
                await _require_stream(response)
                reads = await self._collect(response, on_read)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise _classified(error) from error
        return RawStream(sent_ns, reads, self._clock.now_ns())

    async def _collect(self, response: aiohttp.ClientResponse, on_read: _Note | None) -> list[Read]:
        reads: list[Read] = []
        while data := await response.content.readany():
            now = self._clock.now_ns()
            reads.append(Read(now, data))
            if on_read is not None:
                on_read(now)
        return reads

    async def score(self, input_ids: Sequence[int], start: int, timeout_s: float) -> list[TokenScore]:
        """The target's two best tokens at each position from `start` on, by prefill; AR servers only."""
        assert 0 < start < len(input_ids), "a scored token has at least one token before it"
        body = await self._call("POST", "/generate", score_body(input_ids, start), timeout_s)
        return parse_scores(_parse_json(body), input_ids[start:])

    async def flush_cache(self) -> bool:
        """Empty the prefix cache; False = refused, since the server still has requests."""
        try:
            await self._call("POST", "/flush_cache")
        except RequestError as error:
            if error.kind == "http_status":
                return False
            raise
        return True

    async def server_info(self) -> dict[str, Any]:
        """The server's resolved settings."""
        info = _parse_json(await self._call("GET", "/server_info"))
        if not isinstance(info, dict):
            raise RequestError("malformed", "/server_info is not a JSON object")
        return info

    async def health(self) -> None:
        """Return where the server answers that it is well."""
        await self._call("GET", "/health")

    async def _call(
        self, method: str, path: str, body: bytes | None = None, timeout_s: float = CONTROL_TIMEOUT_S
    ) -> bytes:
        limit = aiohttp.ClientTimeout(total=timeout_s)
        headers = _JSON if body is not None else None
        try:
            request = self._open.request(method, f"{self._url}{path}", data=body, headers=headers, timeout=limit)
            async with request as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise _classified(error, path) from error
        if response.status != 200:
            raise RequestError("http_status", f"{path} answered HTTP {response.status}: {excerpt(content)}")
        return content

    @property
    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None, "the client is used inside `async with`"
        return self._session


async def _require_stream(response: aiohttp.ClientResponse) -> None:
    if response.status != 200:
        body = await response.read()
        raise RequestError("http_status", f"/generate answered HTTP {response.status}: {excerpt(body)}")
    if response.content_type != "text/event-stream":
        body = await response.read()
        raise RequestError("content_type", f"/generate answered {response.content_type}: {excerpt(body)}")


def _classified(error: Exception, path: str = "/generate") -> RequestError:
    if isinstance(error, TimeoutError):
        return RequestError("timeout", f"{path} did not answer in time")
    if isinstance(error, aiohttp.ClientPayloadError):
        return RequestError("truncated", f"{path}: the connection ended inside the reply")
    return RequestError("connection_lost", f"{path}: {type(error).__name__}: {error}")


def _parse_json(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        raise RequestError("malformed", f"not JSON: {excerpt(content)}") from None


def parse_scores(body: Any, tokens: Sequence[int]) -> list[TokenScore]:
    """The last len(tokens) scored positions, held against the tokens sent; raises RequestError (malformed)."""
    meta = body.get("meta_info", {}) if isinstance(body, dict) else {}
    scored, best = meta.get("input_token_logprobs") or [], meta.get("input_top_logprobs") or []
    count = len(tokens)
    if len(scored) < count or len(best) < count:
        raise RequestError("malformed", f"{min(len(scored), len(best))} positions scored where {count} were asked for")
    pairs = zip(tokens, scored[-count:], best[-count:], strict=True)
    return [_score(token, entry, candidates) for token, entry, candidates in pairs]


def _score(token: int, entry: Any, candidates: Any) -> TokenScore:
    try:
        scored_token = entry[1]
        (first_logprob, first_token), (second_logprob, second_token) = (pair[:2] for pair in candidates[:2])
    except (TypeError, ValueError, IndexError):
        raise RequestError("malformed", f"a scored position lacks its two best tokens: {candidates!r}") from None
    if scored_token != token:
        raise RequestError("malformed", f"token {scored_token} was scored where {token} was sent")
    return TokenScore(token, first_token, float(first_logprob), second_token, float(second_logprob))
