"""The HTTP endpoints, in SGLang's contract; they know an engine only through its thread."""

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from aiohttp import web

from draftbench.engine import http_responses as responses
from draftbench.engine.http_engine_thread import EngineThread
from draftbench.engine.http_generate import GenerateCall, ServedModel
from draftbench.engine.http_request_state import wall_time
from draftbench.engine.http_requests import GenerateBody, parse_generate
from draftbench.engine.http_sampling import BadRequestError
from draftbench.engine.http_text import TextCodec
from draftbench.engine.metrics_text import CONTENT_TYPE, ServerMetrics

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_BODY_BYTES = 256 * 1024 * 1024
HEALTH_BODY = {"input_ids": [0], "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}
DONE = b"data: [DONE]\n\n"


class Front:
    """The endpoints over one engine thread."""

    def __init__(self, model: ServedModel, engine: EngineThread, codec: TextCodec) -> None:
        self.model = model
        self.engine = engine
        self.codec = codec
        self.metrics = ServerMetrics(model.name)
        self.started = time.time()

    def build_app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._observe])
        app.add_routes(
            [
                web.get("/health", self.health),
                web.get("/health_generate", self.health_generate),
                web.post("/generate", self.generate),
                web.put("/generate", self.generate),
                web.get("/server_info", self.server_info),
                web.get("/get_server_info", self.server_info),
                web.get("/model_info", self.model_info),
                web.get("/get_model_info", self.model_info),
                web.get("/flush_cache", self.flush_cache),
                web.post("/flush_cache", self.flush_cache),
                web.post("/abort_request", self.abort_request),
                web.get("/metrics", self.metrics_text),
                web.get("/v1/models", self.models),
                web.post("/v1/chat/completions", self.not_offered),
                web.post("/v1/completions", self.not_offered),
            ]
        )
        return app

    async def health(self, _request: web.Request) -> web.Response:
        """Whether the server takes requests."""
        return web.Response()

    async def health_generate(self, _request: web.Request) -> web.Response:
        """Whether the engine really generates: one token, greedily, not in the metrics."""
        replies = await self._finished(self._call(parse_generate(HEALTH_BODY), time.perf_counter(), counted=False))
        return web.Response(status=200 if replies[0]["output_ids"] else 503)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """`/generate`, streamed or not."""
        received = time.perf_counter()
        try:
            body = parse_generate(orjson.loads(await request.read()))
            call = self._call(body, received)
            if body.stream:
                return await self._stream(request, call, body.is_batch)
            replies = await self._finished(call)
            return json_response(replies if body.is_batch else replies[0])
        except orjson.JSONDecodeError as error:
            return json_response(responses.bad_json_error(str(error)), 400)
        except BadRequestError as error:
            return json_response(error.body, error.status)

    async def server_info(self, _request: web.Request) -> web.Response:
        """`/server_info`: resolved flags, the engine's own description, SGLang's internal state."""
        return json_response(self.server_info_body())

    async def model_info(self, _request: web.Request) -> web.Response:
        """`/model_info`."""
        model = self.model
        return json_response(responses.model_info(model.flags, model.model_type, model.architectures))

    async def models(self, _request: web.Request) -> web.Response:
        """`/v1/models`."""
        return json_response(responses.models_list(self.model.name, self.model.context_length, int(self.started)))

    async def flush_cache(self, _request: web.Request) -> web.Response:
        """Forget kept prefixes; 400 while any request is running or waiting."""
        if await self.engine.flush_cache():
            self.metrics.forget_speculation()
            return web.Response(text=responses.FLUSHED_TEXT)
        return web.Response(text=responses.FLUSH_REFUSED_TEXT, status=400)

    async def abort_request(self, request: web.Request) -> web.Response:
        """End the requests whose id begins with `rid`, or all."""
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError as error:
            return json_response(responses.bad_json_error(str(error)), 400)
        if not isinstance(body, dict):
            return json_response({"error": {"message": "Request body must be a JSON object."}}, 400)
        everything = bool(body.get("abort_all"))
        prefix = str(body.get("rid") or "")
        for request_id in self.engine.request_ids():
            if everything or (prefix and request_id.startswith(prefix)):
                self.engine.abort(request_id)
        return web.Response()

    async def metrics_text(self, _request: web.Request) -> web.Response:
        """`/metrics`, Prometheus text."""
        engine = self.engine
        text = self.metrics.render(engine.running_count, engine.waiting_count, self._token_capacity())
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def not_offered(self, request: web.Request) -> web.Response:
        """The chat and completion endpoints, which are left to SGLang."""
        message = f"{request.path} is not offered by this server; render the prompt and use /generate."
        return json_response({"error": {"message": message}}, 400)

    def server_info_body(self) -> dict[str, Any]:
        """The body of `/server_info`."""
        flags = dict(self.model.flags)
        internal: dict[str, Any] = {
            "effective_max_running_requests_per_dp": flags["max_running_requests"],
            "memory_usage": {"token_capacity": self._token_capacity()},
        }
        if self.metrics.accept_length:
            internal["avg_spec_accept_length"] = self.metrics.accept_length
        return flags | {
            "status": "ready",
            "max_total_num_tokens": self._token_capacity(),
            "max_req_input_len": self.model.context_length - 1,
            "internal_states": [flags | internal],
            "version": self.model.version,
            "engine": self.engine.description,
        }

    def encode_chunk(self, _request: web.Request, body: Mapping[str, Any]) -> bytes:
        """One server-sent event of a request's stream."""
        return b"data: " + orjson.dumps(body) + b"\n\n"

    def _token_capacity(self) -> int:
        """Tokens that all running requests together can hold."""
        return self.model.context_length * int(self.model.flags["max_running_requests"])

    def _call(self, body: GenerateBody, received: float, counted: bool = True) -> GenerateCall:
        """One call, not yet started."""
        metrics = self.metrics if counted else None
        return GenerateCall(body, received, self.model, self.engine, self.codec, metrics)

    async def _finished(self, call: GenerateCall) -> list[dict[str, Any]]:
        """The final bodies of a call that is not streamed."""
        try:
            call.start()
            replies = await call.last_bodies()
        finally:
            call.close()
        for reply in replies:
            reply["meta_info"]["response_sent_to_client_ts"] = wall_time(time.perf_counter())
        return replies

    async def _stream(self, request: web.Request, call: GenerateCall, is_batch: bool) -> web.StreamResponse:
        """Server-sent events: one a step and prompt, in the order in which they come.

        As in SGLang a refused stream is HTTP 200 with the error as its only event.
        """
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        try:
            call.start()
            async for index, body in call.bodies():
                call.states[index].mark_first_sent(body, time.perf_counter())
                await response.write(self.encode_chunk(request, body | {"index": index} if is_batch else body))
        except BadRequestError as error:
            refusal = responses.stream_error(error.message, error.status)
            await response.write(self.encode_chunk(request, refusal))
        finally:
            call.close()
        await response.write(DONE)
        await response.write_eof()
        return response

    @web.middleware
    async def _observe(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count requests and responses; an unknown path gets FastAPI's body."""
        self.metrics.http_requests[(request.path, request.method)] += 1
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = json_response({"detail": error.reason}, error.status)
        self.metrics.http_responses[(request.path, request.method, response.status)] += 1
        return response


def json_response(body: object, status: int = 200) -> web.Response:
    """A JSON reply."""
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
