"""The server: which behaviour each request gets, what is counted, and the endpoints beside the answers."""

import asyncio
import re
import secrets
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from . import chat, faults
from . import oddities as _oddities  # noqa: F401 - importing it adds its faults to the table
from .answer import BadRequest, Counted, asked_cap
from .bill import Bill, End, Start, credential
from .connection import Connection
from .exchange import Exchange, Gate
from .models import BadOption, Behaviour, Catalog, read
from .plan import Call, Plan, Request, whole
from .prompts import CHAT, SERVED
from .scripts import Scripts
from .scripts import read as read_script

JSON = (("Content-Type", "application/json"),)
MODEL_IN_PATH = re.compile(r"/models?/(.+)(?::\w+|/invoke(?:-with-response-stream)?)\Z")
SECRET_HEADERS = ("x-api-key", "api-key", "x-goog-api-key")
INSTANT = read("instant")


class Simulated:
    """One simulated provider. `keys`: the secrets it takes; empty: it takes anything."""

    def __init__(self, bill: Bill, keys: Sequence[str] = (), recordings: Path | None = None) -> None:
        self.bill = bill
        self.keys = frozenset(keys)
        self.catalog = Catalog()
        self.scripts = Scripts(recordings)
        self.gate = Gate()
        self.connections: set[Connection] = set()
        self.answering: set[Exchange] = set()
        self._began = time.monotonic()
        self._numbers = 0
        self._minted = 0
        self._prefix = f"chatcmpl-{secrets.token_hex(4)}-"
        self._instant = self._instant_answer()
        self._forget()

    def _forget(self) -> None:
        self.peak = 0
        self.requests: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()

    # --- connections ---
    async def listen(self, host: str, port: int) -> tuple[asyncio.Server, int]:
        """Starts to listen; gives the server and the port, which the kernel chose when asked for 0."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(self.begin, self._opened, self.connections.discard), host, port, backlog=4096
        )
        return server, server.sockets[0].getsockname()[1]

    def _opened(self, connection: Connection) -> int:
        self.connections.add(connection)
        self._numbers += 1
        return self._numbers

    def begin(self, connection: Connection, request: Request) -> Exchange | None:
        """Answers a request: at once (None), or as an exchange that frees the connection when it is over."""
        if request.path.startswith("/control/"):
            connection.control = True
            self._reply(connection, *self._control(request))
        elif request.method == "POST":
            return self._answer(connection, request)
        elif request.method == "GET" and request.path == "/v1/models":
            listed = [self._listing(name) for name in self.catalog.presets]
            self._reply(connection, 200, {"object": "list", "data": listed})
        elif request.method == "GET" and request.path.startswith("/v1/models/"):
            self._reply(connection, 200, self._listing(request.path.removeprefix("/v1/models/")))
        else:
            self._reply(connection, 404, {"error": {"message": f"No {request.method} {request.path} here."}})
        return None

    def _reply(self, connection: Connection, status: int, shown: Any) -> None:
        data = shown if isinstance(shown, bytes) else msgspec.json.encode(shown)
        connection.write(whole(data, status=status, headers=JSON).head(False) + data)

    def _listing(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": chat.CREATED, "owned_by": "simulated"}

    # --- answers ---
    def _answer(self, connection: Connection, request: Request) -> Exchange | None:
        self._minted += 1
        secret = _secret(request)
        body = _body(request)
        model = _model(request, body)
        start = Start(
            id=f"{self._prefix}{self._minted:08x}",
            model=model,
            path=request.path,
            stream=bool(body and body.get("stream") is True) or "streamGenerateContent" in request.path,
            attempt_id=request.header("x-attempt-id"),
            request_id=request.header("x-request-id"),
            credential=None if secret is None else credential(secret),
            connection=connection.number,
            at=time.time(),
        )
        # Before any byte of the answer, so that a dial leaves a trace however it ends.
        self.bill.write(start)
        exchange = Exchange(connection, self.bill, self.gate, start, self._over)
        behaviour, plan = self._planned(start, request, body, secret, exchange.end)
        self.answering.add(exchange)
        self.peak = max(self.peak, len(self.answering))
        if plan is None:
            exchange.at_once(self._instant[0] + start.id.encode() + self._instant[1], *self._instant[2:])
            return None
        exchange.play(plan, behaviour)
        return exchange

    def _over(self, exchange: Exchange) -> None:
        self.answering.discard(exchange)
        self.ended[exchange.end.ended] += 1

    def _planned(
        self, start: Start, request: Request, body: dict[str, Any] | None, secret: str | None, end: End
    ) -> tuple[Behaviour, Plan | None]:
        """What to play, and how; no plan: the instant answer."""
        behaviour = Behaviour()
        if self.keys and secret not in self.keys:
            return behaviour, _refusal(401, "invalid_request_error", "invalid_api_key", "Incorrect API key provided.")
        try:
            if start.model is None:
                raise BadRequest("the body must be a JSON object with a model")
            behaviour = self.catalog.behaviour(start.model)
            name = self._fault(start.model, behaviour)
            if behaviour.instant and not start.stream and request.path == CHAT:
                return behaviour, None
            call = Call(start.id, request, start.model, body or {}, behaviour, start.stream)
            plan = self._plan(call, name)
            end.fault = name
            return behaviour, plan
        except BadOption as problem:
            return Behaviour(), _refusal(400, "invalid_request_error", "bad_option", str(problem))
        except BadRequest as problem:
            return Behaviour(), _refusal(400, "invalid_request_error", "invalid_request", str(problem))

    def _plan(self, call: Call, name: str | None) -> Plan:
        needs_chat = call.behaviour.script is None and (name is None or faults.needs_chat(name))
        if needs_chat and call.request.path not in SERVED:
            return _refusal(404, "invalid_request_error", "not_found", f"No POST {call.request.path} here.")
        if name is not None:
            return faults.plan(call, name)
        if call.behaviour.script is not None:
            self.scripts.asked[call.behaviour.script] = call.request
            return self.scripts.find(call.behaviour.script).plan()
        most = call.behaviour.context
        if most is not None and call.answer.counted.prompt + (asked_cap(call.body) or 0) > most:
            message = f"This model's maximum context length is {most} tokens."
            return _refusal(400, "invalid_request_error", "context_length_exceeded", message)
        return chat.right(call)

    def _fault(self, model: str, behaviour: Behaviour) -> str | None:
        """The fault that this request, one more to this very name, is to have."""
        self.requests[model] += 1
        number = self.requests[model]
        if behaviour.fault is None:
            return None
        works = (
            (behaviour.fail_first is not None and number > behaviour.fail_first)
            or (behaviour.fail_every is not None and number % behaviour.fail_every != 0)
            or (behaviour.flap is not None and (time.monotonic() - self._began) // behaviour.flap % 2 == 1)
        )
        return None if works else behaviour.fault

    def _instant_answer(self) -> tuple[bytes, bytes, Counted, bytes]:
        """The instant answer: what comes before its id, what after it, what it counts and reports."""
        mark = f"{self._prefix}{0:08x}"
        request = Request("POST", CHAT, {}, (), b"")
        call = Call(mark, request, "sim-instant", {"messages": []}, INSTANT, stream=False)
        data = chat.completion(call)
        head = whole(data, headers=JSON).head(False)
        before, after = (head + data).split(mark.encode())
        return before, after, call.answer.counted, chat.reported(call) or b""

    # --- control ---
    def _control(self, request: Request) -> tuple[int, Any]:
        method, (noun, _, name) = request.method, request.path.removeprefix("/control/").partition("/")
        try:
            match method, noun:
                case "GET", "state":
                    return 200, self.state()
                case "GET", "bill":
                    return 200, self.bill.lines(int(request.query.get("after", ["0"])[-1]))
                case "GET", "asked" if name in self.scripts.asked:
                    asked = self.scripts.asked[name]
                    shown = {"path": asked.path, "target": asked.target, "headers": dict(asked.headers)}
                    return 200, {**shown, "body": asked.body.decode()}
                case "POST", "release":
                    most = request.query.get("n")
                    return 200, {"released": self.gate.release(None if most is None else int(most[-1]))}
                case "POST", "script" if name:
                    self.scripts.registered[name] = read_script(name, request.body, request.query)
                    return 200, {"bytes": len(request.body)}
                case "POST", "model" if name:
                    self.catalog.change(name, request.body.decode())
                    return 200, {"model": name}
                case "POST", "reset":
                    self.reset()
                    return 200, {}
        except (BadOption, ValueError) as problem:
            return 400, {"error": {"message": str(problem), "code": "bad_option"}}
        return 404, {"error": {"message": f"No {method} {request.path} here."}}

    def state(self) -> dict[str, Any]:
        """What GET /control/state shows. Sockets that asked for control endpoints are not counted."""
        return {
            "waiting": len(self.gate),
            "sockets": sum(1 for connection in self.connections if not connection.control),
            "answering": len(self.answering),
            "peak": self.peak,
            "requests": dict(self.requests),
            "ended": dict(self.ended),
        }

    def reset(self) -> None:
        """Aborts the answers under way and closes idle connections; forgets all but the bill's file, the keys and the
        folder.
        """
        for exchange in tuple(self.answering):
            exchange.abort()
        for connection in tuple(self.connections):
            if not connection.control:
                connection.close()
        self._forget()
        self.catalog.reset()
        self.scripts.registered.clear()
        self.scripts.asked.clear()
        self.bill.reset()


def _refusal(status: int, kind: str, code: str, message: str) -> Plan:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return whole(msgspec.json.encode({"error": error}), status=status, headers=JSON)


def _body(request: Request) -> dict[str, Any] | None:
    try:
        body = msgspec.json.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return body if isinstance(body, dict) else None


def _model(request: Request, body: dict[str, Any] | None) -> str | None:
    if body is not None and isinstance(body.get("model"), str):
        return str(body["model"])
    named = MODEL_IN_PATH.search(request.path)
    return unquote(named[1]) if named else None


def _secret(request: Request) -> str | None:
    """The credential, whichever of the usual headers it came in."""
    authorization = request.header("authorization")
    if authorization is not None:
        return authorization.removeprefix("Bearer ")
    return next((value for header in SECRET_HEADERS if (value := request.header(header)) is not None), None)
