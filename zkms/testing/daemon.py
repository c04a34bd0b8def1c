"""The Docker daemon: whether it answers, and which images can be had from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from zkms.server.errors import ServerError

if TYPE_CHECKING:
    from docker import DockerClient


def connect() -> DockerClient:
    """Return a client of the Docker daemon that testcontainers uses; ServerError says why there is none."""
    try:
        import docker.errors
        from testcontainers.core.docker_client import DockerClient as Finder
    except ImportError as error:
        raise ServerError("containers need testcontainers: `pip install zkms[test]`") from error
    try:
        # testcontainers knows more ways to find the daemon than the SDK alone: contexts and a properties file.
        client = Finder(timeout=60).client
        client.ping()
    except (docker.errors.DockerException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise ServerError(f"Docker does not answer: {reason}") from error
    return client


def docker_answers() -> str | None:
    """Return None if containers can be run here, else the reason why not."""
    try:
        connect().close()
    except ServerError as error:
        return str(error)
    return None


def can_have(client: DockerClient, image: str) -> bool:
    """Tell whether an image is here, after pulling it if it was not."""
    import docker.errors

    try:
        client.images.get(image)
    except docker.errors.ImageNotFound:
        try:
            client.images.pull(image)
        except (docker.errors.APIError, OSError):
            return False
    return True


def disable_ryuk_if_missing(client: DockerClient) -> None:
    """Do without testcontainers' reaper, in this process, where its image cannot be had: it would fail every start."""
    from testcontainers.core.config import testcontainers_config

    if not testcontainers_config.ryuk_disabled:
        testcontainers_config.ryuk_disabled = not can_have(client, testcontainers_config.ryuk_image)


@contextmanager
def docker_errors(what: str) -> Iterator[None]:
    """Turn the daemon's refusal to do `what` into a ServerError that says so."""
    import docker.errors

    try:
        yield
    except docker.errors.DockerException as error:
        reason = getattr(error, "explanation", None) or str(error).partition("\n")[0]
        raise ServerError(f"Docker cannot {what}: {reason}") from error
