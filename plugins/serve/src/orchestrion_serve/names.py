"""What models are called: by a run's name, by a version of it, and by what a key calls its own."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrion import UsageError, did_you_mean
from orchestrion.runs import Trained
from orchestrion_serve.keys import Keys
from orchestrion_serve.refusals import Refusal


class Names:
    """The names that each client may ask for.

    `NAME@N` is the version of `NAME` after N iterations. It is answered as long as that is the
    version that serves, and by no other one.

    Args:
        teams: by the names of models.
        own: by client, the models that it has names of its own for; see `Keys`.

    Raises:
        UsageError: a key names a model that is not served.
    """

    def __init__(
        self, teams: Mapping[str, Trained], own: Mapping[str, Mapping[str, str]] | None = None
    ) -> None:
        self._teams, self._own = teams, own or {}
        private = {model for models in self._own.values() for model in models.values()}
        self._public = {name: name for name in teams if name not in private}
        if unknown := private - set(teams):
            raise UsageError(
                f"--keys: the model {min(unknown)!r} of a key is not served; name its run beside "
                f"{', '.join(teams)}"
            )

    def of(self, tenant: str) -> Mapping[str, str]:
        """Return the models that a client may ask for, by what it calls them."""
        own = self._own.get(tenant)
        return {**self._public, **own} if own else self._public

    def versions(self, tenant: str) -> list[str]:
        """Return the names that a client may ask for, each with that of its version if it has one.

        A config has no versions, and neither has a run that is served as `RUN@N`.
        """
        names = []
        for name, model in self.of(tenant).items():
            number = self._teams[model].iterations
            names += [name] if number is None or "@" in name else [name, f"{name}@{number}"]
        return list(dict.fromkeys(names))  # RUN may be served beside RUN@N

    def find(self, tenant: str, name: str) -> tuple[str, bool]:
        """Return the model that a client means, and whether it means this version alone.

        Raises:
            Refusal: there is none of this name.
        """
        models = self.of(tenant)
        model = models.get(name, models.get(name.rpartition("@")[0]))
        if model is not None:
            pinned = is_version(name, self._teams[model])
            if pinned or name in models:
                return model, pinned
        close = did_you_mean(name, self.versions(tenant)) or "; GET /v1/models lists them"
        raise Refusal(404, "model_not_found", f"there is no model {name!r:.80}{close}", "model")


def is_version(name: str, team: Trained) -> bool:
    """Return whether a name, `NAME@N`, means this version alone."""
    return team.iterations is not None and name.endswith(f"@{team.iterations}")


def logs_of(teams: Mapping[str, Trained], keys: Keys | None) -> Mapping[str, set[str]]:
    """Return the models that each folder of logs is for, "" being that of all clients.

    Raises:
        UsageError: a key names a model that is not served.
    """
    logs = {"": set(teams)}
    if keys is not None:
        names = Names(teams, keys.models)
        for client, own in keys.logs.items():
            logs.setdefault(own, set()).update(names.of(client).values())
    return logs
