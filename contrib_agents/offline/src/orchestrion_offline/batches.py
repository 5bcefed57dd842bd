"""The batch APIs of OpenAI and Anthropic: requests that are answered later, at half the price."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from attrs import define, field

from orchestrion_offline.http import Handle, Reply

_MESSAGES, _BATCHES, _FILES = "/v1/messages/batches", "/v1/batches", "/v1/files"


@define
class _Batch:
    id: str
    requests: Mapping[str, tuple[str, dict[str, Any]]]  # path and body by name
    looks: int = 0


@define
class BatchService:
    """Keeps files and batches; a batch is answered when it is looked at for the second time.

    Args:
        answer: answers one request.
        ready: whether batches may end.
    """

    answer: Handle
    ready: bool = True
    batches: list[_Batch] = field(factory=list)
    _files: list[bytes] = field(factory=list)

    def handle(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Reply | None:
        """Return the reply to a request; None if it does not concern files and batches.

        Raises:
            ValueError: there is no such file or batch, or it is malformed.
        """
        routes: list[tuple[str, Callable[..., Any]]] = [
            (_MESSAGES, self._of_anthropic),
            (_BATCHES, self._of_openai),
            (_FILES, self._file),
        ]
        for root, route in routes:
            if path == root or path.startswith(f"{root}/"):
                name, _, part = path.removeprefix(root).strip("/").partition("/")
                reply = route(method, name, part, headers, body)
                data = reply if isinstance(reply, bytes) else msgspec.json.encode(reply)
                return Reply(200, ((0.0, data),))
        return None

    def _find(self, name: str) -> _Batch:
        batch = next((batch for batch in self.batches if batch.id == name), None)
        if batch is None:
            raise ValueError(f"there is no batch {name!r}")
        return batch

    def _add(self, requests: Mapping[str, tuple[str, dict[str, Any]]]) -> _Batch:
        batch = _Batch(f"batch_{len(self.batches)}", requests)
        self.batches.append(batch)
        return batch

    def _ended(self, batch: _Batch) -> bool:
        batch.looks += 1
        return self.ready and batch.looks > 1

    def _answers(self, batch: _Batch, headers: Mapping[str, str]) -> dict[str, tuple[int, Any]]:
        """Return the status and body of each answer, not in the order of the requests."""
        answers = {}
        for name, (path, body) in sorted(batch.requests.items(), reverse=True):
            # What names the call stands before "-": a batch's names have no ".".
            own = {**headers, "idempotency-key": name.replace("-", ".", 1)}
            reply = self.answer("POST", path, own, msgspec.json.encode(body))
            text = b"".join(part for _, part in reply.parts)
            try:
                answer = msgspec.json.decode(text)
            except msgspec.DecodeError:  # a page of HTML
                answer = {"type": "error", "error": {"type": "api_error", "message": "injected"}}
            answers[name] = (reply.status, answer)
        return answers

    # ---------------------------------------------------------------- Anthropic

    def _of_anthropic(
        self, method: str, name: str, part: str, headers: Mapping[str, str], body: bytes
    ) -> Any:
        if method == "POST":
            listed = msgspec.json.decode(body)["requests"]
            requests = {entry["custom_id"]: ("/v1/messages", entry["params"]) for entry in listed}
            return self._anthropic_batch(self._add(requests), False)
        batch = self._find(name)
        if part == "results":
            lines = []
            for custom_id, (status, answer) in self._answers(batch, headers).items():
                result = {"type": "succeeded", "message": answer}
                if status != 200:
                    result = {"type": "errored", "error": answer}
                lines.append(msgspec.json.encode({"custom_id": custom_id, "result": result}))
            return b"\n".join(lines)
        return self._anthropic_batch(batch, self._ended(batch))

    def _anthropic_batch(self, batch: _Batch, ended: bool) -> Any:
        kinds = ("processing", "succeeded", "errored", "canceled", "expired")
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": {**dict.fromkeys(kinds, 0), "processing": len(batch.requests)},
            "created_at": "1970-01-01T00:00:00Z",
            "expires_at": "1970-01-02T00:00:00Z",
            # Not to be followed: it may lie elsewhere.
            "results_url": "http://127.0.0.1:9/results",
        }

    # ---------------------------------------------------------------- OpenAI

    def _of_openai(
        self, method: str, name: str, part: str, headers: Mapping[str, str], body: bytes
    ) -> Any:
        if method == "POST":
            given = msgspec.json.decode(body)
            lines = self._content(given["input_file_id"]).splitlines()
            bodies = [msgspec.json.decode(line) for line in lines if line.strip()]
            if any(request["url"] != given["endpoint"] for request in bodies):
                raise ValueError("the requests of a batch have its endpoint")
            requests = {
                request["custom_id"]: (request["url"], request["body"]) for request in bodies
            }
            return self._openai_batch(self._add(requests), {})
        batch = self._find(name)
        if not self._ended(batch):
            return self._openai_batch(batch, {})
        files: dict[str, list[bytes]] = {}
        for custom_id, (status, answer) in self._answers(batch, headers).items():
            response = {"status_code": status, "request_id": custom_id, "body": answer}
            line = {"id": custom_id, "custom_id": custom_id, "response": response, "error": None}
            kind = "output" if status == 200 else "error"
            files.setdefault(kind, []).append(msgspec.json.encode(line))
        stored = {f"{kind}_file_id": self._store(b"\n".join(x)) for kind, x in files.items()}
        return self._openai_batch(batch, {"status": "completed", **stored})

    def _openai_batch(self, batch: _Batch, more: Mapping[str, str]) -> Any:
        return {
            "id": batch.id,
            "object": "batch",
            "endpoint": next(path for path, _ in batch.requests.values()),
            "input_file_id": "file_0",
            "completion_window": "24h",
            "created_at": 0,
            "status": "in_progress",
            **more,
        }

    def _file(
        self, method: str, name: str, part: str, headers: Mapping[str, str], body: bytes
    ) -> Any:
        if method == "GET":
            return self._content(name)
        stored = self._store(_uploaded(headers.get("content-type", ""), body))
        about = {"object": "file", "bytes": len(body), "created_at": 0, "status": "processed"}
        return {"id": stored, "filename": "requests.jsonl", "purpose": "batch", **about}

    def _store(self, content: bytes) -> str:
        self._files.append(content)
        return f"file_{len(self._files) - 1}"

    def _content(self, name: str) -> bytes:
        number = name.removeprefix("file_")
        if not number.isdigit() or int(number) >= len(self._files):
            raise ValueError(f"there is no file {name!r}")
        return self._files[int(number)]


def _uploaded(kind: str, body: bytes) -> bytes:
    """Return the part `file` of a form."""
    boundary = kind.partition("boundary=")[2].strip('"').encode()
    for part in body.split(b"--" + boundary) if boundary else ():
        head, _, content = part.partition(b"\r\n\r\n")
        if b'name="file"' in head:
            return content.removesuffix(b"\r\n")
    raise ValueError("a form without a file")
