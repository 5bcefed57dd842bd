"""The common settings of models behind an API, and how they are opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any
from urllib.parse import urlsplit

from attrs import evolve, field, frozen
from attrs.validators import optional

from orchestrion import CallLimits, Meta, Model, OpenContext, UsageError, did_you_mean
from orchestrion_llm.addresses import check_address
from orchestrion_llm.caching import PromptCache
from orchestrion_llm.faults import Place
from orchestrion_llm.prices import Price, known_models, known_price
from orchestrion_llm.wire import Wire

_NO_KEY = "none"


@frozen
class Limits(CallLimits):
    """Rate limits of a service.

    Args:
        concurrency: the maximum of calls in flight; null sets no limit.
        requests_per_minute: the maximum of calls begun in a minute; null sets no limit.
        tokens_per_minute: the maximum of tokens reserved in a minute; null sets no limit.
    """

    concurrency: Annotated[int, Meta(ge=1)] | None = None
    requests_per_minute: Annotated[int, Meta(ge=1)] | None = None
    tokens_per_minute: Annotated[int, Meta(ge=1)] | None = None


@frozen
class Batch:
    """When training sends requests through the vendor's batch API.

    Args:
        gather: seconds without a new request after which a batch is sent.
        size: the maximum of requests of a batch.
        poll: seconds between two looks whether a batch has ended.
        hours: after which a request counts as unanswered.
    """

    gather: Annotated[float, Meta(gt=0)] = 5.0
    size: Annotated[int, Meta(ge=1, le=1000)] = 500
    poll: Annotated[float, Meta(gt=0)] = 30.0
    hours: Annotated[float, Meta(gt=0)] = 25.0


_OWN = {"model", "messages", "input", "stream", "background", "n", "best_of"}
_OWN |= {"max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens"}


def _beside(instance: object, attribute: Any, value: Mapping[str, Any]) -> None:
    for name in sorted(_OWN & set(value)):
        raise ValueError(
            f"extra: must not hold {name!r}: what a call may take is reserved by the settings"
        )


@frozen(kw_only=True)
class ApiSettings:
    """Settings of every model behind an API.

    Args:
        model: its name at the service.
        max_tokens: the maximum of tokens of one answer; a call may set a smaller one.
        temperature: of sampling; null leaves it to the service. Some models take none.
        top_p: of sampling, likewise.
        stop: texts that end an answer.
        timeout: the maximum of seconds of one attempt in total.
        idle_timeout: the maximum of seconds between two pieces of a streamed answer.
        limits: rate limits of the service.
        base_url: the address of a compatible server; null stands for the vendor's own.
        key_env: the environment variable of the key; null stands for the vendor's usual one at its
            own address, and for no key at others, so that no key is sent to another server.
        headers: sent with every call; values may be "${env:NAME}" and are treated as secrets.
        extra: further fields of the request's body. Fields that settings or calls set, or that ask
            for more than one answer, are refused.
        service: the name of the service in limits, journal and cache; null derives it from vendor,
            model and address. Models that share a limit share a name.
        cache: whether an equal call (same content, same key) may be answered from the cache: true
            in this run and from earlier ones, if `run.cache` is set; null from earlier ones only,
            but embeddings as with true.
        price: US dollars per million tokens; null looks it up in `genai-prices`. A budget in US
            dollars needs a price.
        image_tokens: the maximum of tokens that the service counts for an image; reserved for each.
        fallback: the model that is asked if this one finally fails by overload, limits, network or
            malformed answers.
        preflight: whether key and model are checked, by a free request, before a run begins.
        batch: send the calls of training through the vendor's batch API, at half the price; null
            makes them one by one, as all other commands do in any case. It needs `run.timeout:
            null` or as many hours. `limits` do not hold for it.
    """

    model: Annotated[str, Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=1)] = 4096
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    stop: Sequence[str] = ()
    timeout: Annotated[float, Meta(gt=0, le=86400)] = 600.0
    idle_timeout: Annotated[float, Meta(gt=0, le=86400)] = 120.0
    limits: Limits = Limits()
    base_url: str | None = field(default=None, validator=optional(check_address))
    key_env: Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    headers: Mapping[str, str] = field(factory=dict, repr=False, metadata={"secret": True})
    extra: Mapping[str, Any] = field(factory=dict, validator=_beside)
    service: Annotated[str, Meta(min_length=1)] | None = None
    cache: bool | None = None
    price: Price | None = None
    image_tokens: Annotated[int, Meta(ge=0)] = 16_000
    fallback: Model | None = None
    preflight: bool = True
    batch: Batch | None = None

    @property
    def vendor_tools(self) -> Sequence[str]:
        """The service's own tools that requests may name; see `Model`."""
        return ()


@frozen
class Vendor:
    """A vendor of models.

    Args:
        name: in names of services and in the table of prices.
        base_url: the address of its API.
        key_env: the usual environment variable of its key.
        models: the path of its list of models.
    """

    name: str
    base_url: str
    key_env: str
    models: str


@asynccontextmanager
async def opened(
    settings: ApiSettings,
    vendor: Vendor,
    wire: Wire,
    ctx: OpenContext,
    cache: PromptCache | None = None,
) -> AsyncIterator[Model]:
    """Yield the model; its client is closed at the end. `cache` marks prompts to be kept.

    Raises:
        UsageError: in a live run, if the key is missing or wrong, or there is no such model.
    """
    from orchestrion_llm.model import ApiModel

    price = settings.price or known_price(
        vendor.name, settings.model, settings.base_url, settings.extra
    )
    batch = settings.batch if ctx.trains else None
    if batch is not None and ctx.timeout is not None and ctx.timeout < batch.hours * 3600:
        raise UsageError(
            f"{ctx.path}.batch: a batch may take {batch.hours:g} hours, and run.timeout ends a "
            f"turn after {ctx.timeout:g} s; set `run: {{timeout: null}}`, or leave `batch` out"
        )
    if batch is None:
        settings = evolve(settings, batch=None)
    elif price is not None:
        price = price.batched()
    close = ""
    if price is None and settings.base_url is None:
        close = did_you_mean(settings.model, known_models(vendor.name))
    key_env = settings.key_env or ("" if settings.base_url else vendor.key_env)
    place = Place(ctx.path, _service(settings, vendor), settings.model, key_env)
    if not ctx.live:
        yield ApiModel(settings, wire, place, price, None, close)
        return
    key = _key(key_env, ctx)
    from orchestrion_llm.client import Client, check, open_sdk

    base_url = settings.base_url or vendor.base_url
    sdk = open_sdk(vendor.name, key, base_url, settings.headers, settings.timeout)
    client = Client(sdk, wire, place, price, settings)
    if batch is not None and ctx.directory is not None:
        client.wait_in_batches(vendor.name, batch, ctx.directory / "batches")
        cache = None  # requests of a batch are read at once
    try:
        if settings.preflight:
            await check(client, vendor.models, place, base_url, ctx.note)
        yield ApiModel(settings, wire, place, price, client, close, cache)
    finally:
        await client.close()


def _service(settings: ApiSettings, vendor: Vendor) -> str:
    if settings.service is not None:
        return settings.service
    name = f"{vendor.name}:{settings.model}"
    if settings.base_url is not None:
        name += f"@{urlsplit(settings.base_url).netloc}"
    # Different keys have different limits.
    return name if settings.key_env is None else f"{name}#{settings.key_env}"


def _key(key_env: str, ctx: OpenContext) -> str:
    """Return the key for the SDK; it is registered as a secret."""
    return ctx.secret(key_env, header=True).reveal() if key_env else _NO_KEY
