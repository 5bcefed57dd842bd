"""The setting `server` of a model `hf`. What it does stands in `serving`."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from attrs import Attribute, field, frozen

from orchestrion import Meta

__all__ = ["Server"]


def _address(instance: object, attribute: Attribute[Any], value: str) -> None:
    parts = urlsplit(value)
    plain = not (parts.username or parts.password or parts.query or parts.fragment)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
        raise ValueError(
            "base_url: must be an address like http://127.0.0.1:8000/v1, without password or query"
        )


@frozen
class Server:
    """A server that samples in this process's place: vLLM, SGLang, or another that speaks OpenAI's
    completions and takes and gives token ids.

    Args:
        base_url: its address, usually ending in "/v1".
        model: what the weights are called there; with `sync: lora`, what the base is called.
        key_env: the environment variable that holds its key; null sends none.
        sync: how it learns of weights that were changed. `none`: it does not, and what it says
            bears version 0. `lora`: the adapter is put into `folder` and loaded under a name of its
            own (vLLM). `disk`: the whole model is put there, and the server takes it over (SGLang).
        folder: for that; the server must find it under the same path.
        timeout: most seconds of one request.
    """

    base_url: str = field(validator=_address)
    model: Annotated[str, Meta(min_length=1)]
    key_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    sync: Literal["none", "lora", "disk"] = "none"
    folder: Annotated[str, Meta(min_length=1)] | None = None
    timeout: Annotated[float, Meta(gt=0, le=86400)] = 600.0

    def __attrs_post_init__(self) -> None:
        if self.sync == "none" and self.folder is not None:
            raise ValueError("folder: nothing is put there with `sync: none`")
        if self.sync != "none" and self.folder is None:
            raise ValueError(
                f"folder: `sync: {self.sync}` needs one that the server sees under the same path"
            )
