"""The settings that models behind an API share, and how such a model is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from attrs import field, frozen

from orchestrion import Meta, Model, OpenContext, UsageError, did_you_mean
from orchestrion_llm.faults import Place
from orchestrion_llm.prices import Price, known_models, known_price
from orchestrion_llm.wire import Wire

if TYPE_CHECKING:
    from orchestrion_llm.client import Sdk
    from orchestrion_llm.model import ApiModel

__all__ = ["ApiSettings", "Limits", "Vendor", "opened"]

_NO_KEY = "none"


@frozen
class Limits:
    """How fast a service may be asked.

    Args:
        concurrency: calls in flight; null means as many as there are.
        requests_per_minute: calls begun in a minute; null means no limit.
        tokens_per_minute: tokens reserved in a minute; null means no limit.
    """

    concurrency: Annotated[int, Meta(ge=1)] | None = None
    requests_per_minute: Annotated[int, Meta(ge=1)] | None = None
    tokens_per_minute: Annotated[int, Meta(ge=1)] | None = None


def _address(instance: object, attribute: Any, value: str | None) -> None:
    if value is None:
        return
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("base_url: must be an address like https://example.com/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("base_url: must hold neither a password nor a query; see key_env")


_OWN = {"model", "messages", "input", "stream", "background", "n", "best_of"}
_OWN |= {"max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens"}


def _beside(instance: object, attribute: Any, value: Mapping[str, Any]) -> None:
    for name in sorted(_OWN & set(value)):
        raise ValueError(
            f"extra: must not hold {name!r}: what a call may take is reserved by the settings"
        )


@frozen(kw_only=True)
class ApiSettings:
    """What every model behind an API can be told.

    Args:
        model: its name at the service.
        max_tokens: most tokens of one answer; a call may ask for less, and is refused more.
        temperature: of sampling; null leaves it to the service. Some models take none.
        top_p: of sampling, likewise.
        stop: texts that end an answer.
        timeout: most seconds of one attempt, all together.
        idle_timeout: most seconds between two pieces of a streamed answer.
        limits: how fast the service may be asked.
        base_url: the address of a compatible server; null is the vendor's own.
        key_env: the environment variable that holds the key; null is the vendor's usual one for
            its own address, and no key for another: no key goes where it was not meant to.
        headers: sent with every call; values may be "${env:NAME}" and are treated as secrets.
        extra: further fields of the request's body, as they are; none that the settings or the
            call give, and none that asks for more than one answer.
        service: the name of the service in limits, journal and cache; null makes it from vendor,
            model and address. Models that share a limit share a name.
        cache: whether an equal call (same content, same key) may be answered from the cache: true
            in this run and with earlier ones, if `run.cache` is given; null with earlier ones only.
        price: US dollars per million tokens; null looks it up among the prices of the vendors that
            `genai-prices` knows. A budget in US dollars needs one.
        image_tokens: the most tokens that the service counts for an image; reserved for each.
        fallback: asked instead when this one fails for good by overload, limits, network or
            malformed answers; null means that nobody is.
        preflight: whether the key and the model's name are tried, by a free request, before a
            run begins.
    """

    model: Annotated[str, Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=1)] = 4096
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    stop: Sequence[str] = ()
    timeout: Annotated[float, Meta(gt=0, le=86400)] = 600.0
    idle_timeout: Annotated[float, Meta(gt=0, le=86400)] = 120.0
    limits: Limits = Limits()
    base_url: str | None = field(default=None, validator=_address)
    key_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    headers: Mapping[str, str] = field(factory=dict, repr=False, metadata={"secret": True})
    extra: Mapping[str, Any] = field(factory=dict, validator=_beside)
    service: Annotated[str, Meta(min_length=1)] | None = None
    cache: bool | None = None
    price: Price | None = None
    image_tokens: Annotated[int, Meta(ge=0)] = 16_000
    fallback: Model | None = None
    preflight: bool = True


@frozen
class Vendor:
    """A vendor's own place.

    Args:
        name: as in services and in the table of prices.
        base_url: where its API is.
        key_env: where its key usually is.
        models: the path of its list of models.
        sdk: makes its client.
    """

    name: str
    base_url: str
    key_env: str
    models: str
    sdk: Callable[..., Sdk]


@asynccontextmanager
async def opened(
    settings: ApiSettings, vendor: Vendor, wire: Wire, ctx: OpenContext
) -> AsyncIterator[ApiModel]:
    """The model at work: one client, closed at the end.

    Raises:
        UsageError: live, and there is no key, a wrong one, or no such model.
    """
    from orchestrion_llm.model import ApiModel

    price = settings.price or known_price(
        vendor.name, settings.model, settings.base_url, settings.extra
    )
    close = ""
    if price is None and settings.base_url is None:
        close = did_you_mean(settings.model, known_models(vendor.name))
    key_env = settings.key_env or ("" if settings.base_url else vendor.key_env)
    place = Place(ctx.path, _service(settings, vendor), settings.model, key_env)
    if not ctx.live:
        yield ApiModel(settings, wire, place, price, None, close)
        return
    key = _key(key_env, ctx)
    from orchestrion_llm.client import Client
    from orchestrion_llm.preflight import check

    base_url = settings.base_url or vendor.base_url
    sdk = vendor.sdk(key, base_url, settings.headers, settings.timeout)
    client = Client(sdk, wire, place, price, settings)
    try:
        if settings.preflight:
            await check(client, vendor.models, place, base_url, ctx.note)
        yield ApiModel(settings, wire, place, price, client, close)
    finally:
        await client.close()


def _service(settings: ApiSettings, vendor: Vendor) -> str:
    if settings.service is not None:
        return settings.service
    name = f"{vendor.name}:{settings.model}"
    if settings.base_url is not None:
        name += f"@{urlsplit(settings.base_url).netloc}"
    # Another key has limits of its own.
    return name if settings.key_env is None else f"{name}#{settings.key_env}"


def _key(key_env: str, ctx: OpenContext) -> str:
    """The key as the SDK is given it; secret from now on, wherever it turns up."""
    if not key_env:
        return _NO_KEY
    key = ctx.secret(key_env).reveal()
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"{ctx.path}: what {key_env} holds is no key: it has odd characters")
    return key
