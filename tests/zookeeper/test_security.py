"""Credentials and TLS, against a server that takes all of them: digest, SASL, and a port that speaks TLS only."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl

import zkms
from tests.support.buses import Eventually
from zkms.bench.algorithms.original import client
from zkms.cli.connection import Inspector
from zkms.cli.operate.checks.security import check_access
from zkms.config import Config
from zkms.errors import ConnectionLost, InvalidArgument, StoreError, Unauthorised
from zkms.server.ports import free_ports
from zkms.testing import EmbeddedZooKeeper, Proxy
from zkms.testing.roots import new_root
from zkms.zookeeper.operations import Create
from zkms.zookeeper.session import Session, State
from zkms.zookeeper.wire import Multi

ALICE = ("digest", "alice:alices-s3cret")
SASL_ALICE = zkms.Sasl(username="alice", password="alices-s3cret")
KEY_PASSWORD = "keys-s3cret"


# -- a server with everything ----------------------------------------------------------------------------------------


class Certificates:
    """An authority of our own, and what it has signed."""

    def __init__(self, directory: Path) -> None:
        """Make the authority."""
        self._directory = directory
        self.ca = self._make("ca", "-x509", "-addext", "basicConstraints=critical,CA:TRUE", subject="/CN=zkms test CA")

    def _make(self, name: str, *options: str, subject: str) -> Path:
        """A self-made or requested certificate with its key beside it."""
        path = self._directory / f"{name}.pem"
        self._openssl(
            *("req", "-newkey", "rsa:2048", "-nodes", "-keyout", self.key(path), "-out", path),
            *("-subj", subject, "-days", "2", *options),
        )
        return path

    def key(self, certificate: Path) -> Path:
        """The key of a certificate."""
        return certificate.with_suffix(".key")

    def sign(self, name: str, names: str) -> Path:
        """A certificate for these names (DNS:..., IP:...), signed by the authority."""
        request = self._make(f"{name}-request", subject=f"/CN={name}")
        certificate = self._directory / f"{name}.pem"
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n")
        self._openssl(
            *("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.key(self.ca), "-CAcreateserial"),
            *("-out", certificate, "-days", "2", "-extfile", extensions),
        )
        shutil.copy(self.key(request), self.key(certificate))
        return certificate

    def locked(self, certificate: Path) -> Path:
        """A copy of a certificate's key that needs a password."""
        path = certificate.with_suffix(".locked.key")
        self._openssl("pkcs8", "-topk8", "-in", self.key(certificate), "-out", path, "-passout", f"pass:{KEY_PASSWORD}")
        return path

    def together(self, certificate: Path) -> Path:
        """Key and certificate in one file, as ZooKeeper wants them."""
        path = certificate.with_suffix(".both.pem")
        path.write_bytes(self.key(certificate).read_bytes() + certificate.read_bytes())
        return path

    def _openssl(self, *arguments: str | Path) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@dataclass
class Secured:
    """Where the server listens, and the certificates that it trusts or is trusted by."""

    zookeeper: EmbeddedZooKeeper
    certificates: Certificates
    client: Path
    tls_port: int

    @property
    def hosts(self) -> str:
        """The port without TLS."""
        return self.zookeeper.hosts

    @property
    def tls_hosts(self) -> str:
        """The port with TLS, by the name in the server's certificate."""
        return f"localhost:{self.tls_port}"

    def tls(self, **options: object) -> zkms.Tls:
        """What a client needs to get in."""
        given = {
            "ca": str(self.certificates.ca),
            "cert": str(self.client),
            "key": str(self.certificates.key(self.client)),
        }
        return zkms.Tls(**{**given, **options})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One server for all tests of this file."""
    if shutil.which("openssl") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("openssl makes the certificates of these tests and may not be missing under CI", pytrace=False)
        pytest.skip("openssl is needed to make certificates")
    directory = tmp_path_factory.mktemp("secured")
    certificates = Certificates(directory)
    server = certificates.sign("server", "DNS:localhost")
    client = certificates.sign("client", "DNS:client")
    jaas = directory / "jaas.conf"
    jaas.write_text(
        "Server {\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n"
        '  user_alice="alices-s3cret"\n  user_bob="bobs-s3cret";\n};\n'
    )
    [port] = free_ports(1)
    settings: dict[str, str | int | bool] = {
        "secureClientPort": port,
        "secureClientPortAddress": "127.0.0.1",
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.location": str(certificates.together(server)),
        "ssl.keyStore.type": "PEM",
        "ssl.trustStore.location": str(certificates.ca),
        "ssl.trustStore.type": "PEM",
        "ssl.clientAuth": "need",
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
    }
    with EmbeddedZooKeeper(config=settings, jvm_args=[f"-Djava.security.auth.login.config={jaas}"]) as zookeeper:
        yield Secured(zookeeper, certificates, client, port)


@pytest.fixture
def root() -> str:
    """A root of the test's own."""
    return new_root()


def acls(hosts: str, path: str, **options: object) -> set[tuple[str, str, int]]:
    """Who may do what with a znode."""
    client = KazooClient(hosts, **options)
    client.start()
    try:
        return {(acl.id.scheme, acl.id.id, acl.perms) for acl in client.get_acls(path)[0]}
    finally:
        client.stop()
        client.close()


def exchange(bus: zkms.Bus) -> None:
    """A message goes round."""
    subscription = bus.subscribe("topic")
    bus.publish("topic", "hello")
    message = subscription.get(timeout=10)
    assert message is not None
    assert message.data == "hello"


# -- digest ----------------------------------------------------------------------------------------------------------


def test_with_credentials_every_znode_is_open_to_their_holders_only(secured: Secured, root: str) -> None:
    """From the root down to a message, and the flag and the producer besides: one identity may do everything."""
    with zkms.connect(secured.hosts, root=root, auth=ALICE) as bus:
        bus.subscribe("topic", ack="manual")
        bus.publish("topic", "data")
        client = KazooClient(secured.hosts, auth_data=[ALICE])
        client.start()
        paths = [root]
        for path in paths:
            paths += [f"{path}/{child}" for child in client.get_children(path)]
        client.stop()
        client.close()
        assert len(paths) > 10
        assert any(path.count("/") == 5 for path in paths), "no message among them"
        for path in paths:
            [(scheme, identity, permissions)] = acls(secured.hosts, path, auth_data=[ALICE])
            assert (scheme, identity.partition(":")[0], permissions) == ("digest", "alice", 31), path


@pytest.mark.parametrize("auth", [None, ("digest", "alice:wrong-s3cret"), ("digest", "bob:bobs-s3cret")])
def test_who_has_no_or_other_credentials_is_told_so_at_once(
    secured: Secured, root: str, auth: tuple[str, str] | None
) -> None:
    """One clear sentence that names the znode, without waiting for any time-out."""
    with zkms.connect(secured.hosts, root=root, auth=ALICE):
        began = time.monotonic()
        with pytest.raises(Unauthorised, match=rf"^{root}: not allowed by the znode's ACL: check the credentials"):
            zkms.connect(secured.hosts, root=root, auth=auth)
        assert time.monotonic() - began < 3.0


def test_two_with_the_same_credentials_talk_to_each_other(secured: Secured, root: str) -> None:
    """Which is what credentials are for."""
    options = {"root": root, "auth": ALICE}
    with zkms.connect(secured.hosts, **options) as one, zkms.connect(secured.hosts, **options) as other:
        subscription = one.subscribe("topic")
        receipt = other.publish("topic", 1)
        assert subscription.get(timeout=5).data == 1
        assert receipt.wait(5).acked == (subscription.id,)


def test_credentials_are_sent_again_after_a_reconnect_and_after_an_expiry(
    secured: Secured, root: str, eventually: Eventually
) -> None:
    """A new connection is a stranger to ZooKeeper until it has shown them."""
    with Proxy(secured.hosts) as proxy, zkms.connect(proxy.hosts, root=root, auth=ALICE) as bus:
        subscription = bus.subscribe("topic")
        proxy.drop()
        bus.publish("topic", "after a reconnect")
        assert subscription.get(timeout=10).data == "after a reconnect"
        proxy.refuse()
        proxy.drop()
        client = KazooClient(secured.hosts, client_id=bus.parts.session.client_id)
        client.start()
        client.stop()
        client.close()
        proxy.accept()
        eventually(lambda: bus.parts.session.generation == 2)
        eventually(lambda: bus.subscriptions("topic"))
        bus.publish("topic", "after an expiry")
        assert subscription.get(timeout=10).data == "after an expiry"


def test_a_scheme_that_the_server_does_not_know_is_refused_at_once(secured: Secured, root: str) -> None:
    """The server answers with an error and hangs up; that is not a lost connection."""
    began = time.monotonic()
    with pytest.raises(Unauthorised, match="did not accept the credentials"):
        zkms.connect(secured.hosts, root=root, auth=("nonsense", "alice:alices-s3cret"))
    assert time.monotonic() - began < 5.0


# -- SASL ------------------------------------------------------------------------------------------------------------


def test_sasl_identifies_and_protects(secured: Secured, root: str) -> None:
    """The server knows who it is, and the znodes are theirs."""
    with zkms.connect(secured.hosts, root=root, auth=SASL_ALICE) as bus:
        exchange(bus)
        options = {"mechanism": "DIGEST-MD5", "username": "alice", "password": "alices-s3cret"}
        assert acls(secured.hosts, root, sasl_options=options) == {("sasl", "alice", 31)}
        bob = zkms.Sasl(username="bob", password="bobs-s3cret")
        with pytest.raises(Unauthorised, match="not allowed by the znode's ACL"):
            zkms.connect(secured.hosts, root=root, auth=bob)


def test_the_benchmark_s_bare_clients_show_the_same_credentials(
    secured: Secured, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SASL from the environment, and znodes that are theirs alone."""
    monkeypatch.setenv("ZKMS_AUTH", "sasl:alice:alices-s3cret")
    made = client(secured.hosts)
    try:
        made.create(root)
        assert {acl.id.id for acl in made.get_acls(root)[0]} == {"alice"}
    finally:
        made.stop()
        made.close()


@pytest.mark.parametrize("username", ["alice", "nobody"])
def test_a_wrong_sasl_password_is_refused_at_once(secured: Secured, root: str, username: str) -> None:
    """Not after the connect time-out, and not as a lost connection."""
    began = time.monotonic()
    with pytest.raises(Unauthorised, match="did not accept the credentials given as auth="):
        zkms.connect(secured.hosts, root=root, auth=zkms.Sasl(username=username, password="wrong-s3cret"))
    assert time.monotonic() - began < 5.0


def test_a_sasl_mechanism_that_does_not_exist_is_said_at_once(secured: Secured, root: str) -> None:
    """kazoo's thread dies of it; nothing can come of it, so nothing is tried again."""
    began = time.monotonic()
    with pytest.raises(StoreError, match="Unknown mechanism NONSENSE"):
        zkms.connect(secured.hosts, root=root, auth=zkms.Sasl(mechanism="NONSENSE", username="a", password="b"))
    assert time.monotonic() - began < 5.0


def test_a_connection_lost_in_the_middle_of_sasl_is_not_a_refusal(
    secured: Secured, root: str, eventually: Eventually
) -> None:
    """A server that goes down while a client introduces itself again must not shut that client out for ever."""
    with Proxy(secured.hosts) as proxy, zkms.connect(proxy.hosts, root=root, auth=SASL_ALICE) as bus:
        subscription = bus.subscribe("topic")
        cuts = [proxy.cut_reply(op="sasl"), proxy.cut_request(op="sasl")]
        proxy.drop()
        for cut in cuts:
            assert cut.wait(10)
        bus.publish("topic", "after", timeout=20)
        assert subscription.get(timeout=10).data == "after"
        assert bus.parts.session.state is State.CONNECTED


# -- TLS -------------------------------------------------------------------------------------------------------------


def test_tls_with_a_client_certificate(secured: Secured, root: str) -> None:
    """The chain, the host name and our own certificate are checked, and messages flow."""
    with zkms.connect(secured.tls_hosts, root=root, tls=secured.tls()) as bus:
        exchange(bus)
        bus.publish_many("topic", [b"x" * 1000] * 500)


def test_tls_with_a_key_that_needs_a_password(secured: Secured, root: str) -> None:
    """The right one opens it; a wrong one is said before anything is sent."""
    locked = str(secured.certificates.locked(secured.client))
    tls = secured.tls(key=locked, key_password=KEY_PASSWORD)
    with zkms.connect(secured.tls_hosts, root=root, tls=tls) as bus:
        exchange(bus)
    with pytest.raises(InvalidArgument, match=r"tls: cert .* with key .* cannot be used"):
        zkms.connect(secured.tls_hosts, root=root, tls=secured.tls(key=locked, key_password="wrong-s3cret"))


def test_tls_and_digest_together(secured: Secured, root: str) -> None:
    """The one protects the way, the other the znodes; ZooKeeper takes a client's certificate for an identity too."""
    with zkms.connect(secured.tls_hosts, root=root, tls=secured.tls(), auth=ALICE) as bus:
        exchange(bus)
    with zkms.connect(secured.hosts, root=root, auth=ALICE) as bus:
        exchange(bus)
    other = secured.certificates.sign("other", "DNS:other")
    tls = secured.tls(cert=str(other), key=str(secured.certificates.key(other)))
    with pytest.raises(Unauthorised):
        zkms.connect(secured.tls_hosts, root=root, tls=tls)


def test_roles_of_certificates_and_sasl(secured: Secured, root: str) -> None:
    """Whoever the server takes somebody for has a role by that: a certificate's subject, a SASL user, a digest."""
    policy = zkms.Access(
        producers=["sasl:bob"], subscribers=["x509:CN=client"], cleaners=[zkms.identity(*ALICE), "sasl:alice"]
    )
    bob = zkms.Sasl(username="bob", password="bobs-s3cret")
    with (
        zkms.connect(secured.hosts, root=root, auth=ALICE, access=policy),
        zkms.connect(secured.hosts, root=root, auth=bob) as producer,
        zkms.connect(secured.tls_hosts, root=root, tls=secured.tls(), access=policy) as subscriber,
        zkms.connect(secured.hosts, root=root, auth=SASL_ALICE) as cleaner,
    ):
        assert subscriber.parts.session.identities() == {"x509:CN=client"}
        assert producer.parts.session.identities() == {"sasl:bob"}
        subscription = subscriber.subscribe("topic")
        receipt = producer.publish("topic", "hello")
        assert subscription.get(timeout=20).data == "hello"
        assert receipt.wait(20).acked == (subscription.id,)
        with pytest.raises(Unauthorised):
            producer.subscribe("topic")
        with pytest.raises(Unauthorised):
            subscriber.publish("topic", "hello")
        assert cleaner.parts.session.rights is not None
        assert cleaner.parts.session.rights.cleans
    other = secured.certificates.sign("stranger", "DNS:other")
    tls = secured.tls(cert=str(other), key=str(secured.certificates.key(other)))
    with pytest.raises(Unauthorised):
        zkms.connect(secured.tls_hosts, root=root, tls=tls)


def refusal(hosts: str, tls: zkms.Tls | None) -> str:
    """Why no connection came about."""
    with pytest.raises(ConnectionLost) as failure:
        zkms.connect(hosts, tls=tls, connect_timeout=1.0)
    return str(failure.value)


def test_a_certificate_for_another_name_is_refused(secured: Secured, root: str) -> None:
    """It is for localhost, and not for 127.0.0.1; who wants that has to say so."""
    hosts = f"127.0.0.1:{secured.tls_port}"
    assert "certificate is not valid for '127.0.0.1'" in refusal(hosts, secured.tls())
    with zkms.connect(hosts, root=root, tls=secured.tls(check_hostname=False)) as bus:
        exchange(bus)


def test_a_certificate_of_an_unknown_authority_is_refused(secured: Secured, root: str, tmp_path: Path) -> None:
    """Trusting another one, or none at all; checking nothing has to be asked for."""
    assert "certificate" in refusal(secured.tls_hosts, secured.tls(ca=str(Certificates(tmp_path).ca)))
    assert "certificate" in refusal(secured.tls_hosts, secured.tls(ca=None))
    with zkms.connect(
        secured.tls_hosts, root=root, tls=secured.tls(ca=None, verify=False, check_hostname=False)
    ) as bus:
        exchange(bus)


def test_a_server_that_wants_a_certificate_says_so(secured: Secured) -> None:
    """Ours is missing, or signed by somebody whom the server does not know."""
    assert "certificate" in refusal(secured.tls_hosts, secured.tls(cert=None, key=None))


def test_tls_where_none_is_spoken_and_none_where_it_is(secured: Secured) -> None:
    """Both mistakes are named, for they are easily made."""
    assert "no TLS connection" in refusal(secured.hosts, secured.tls(check_hostname=False))
    assert f"{secured.tls_hosts} speaks TLS: pass tls=" in refusal(secured.tls_hosts, None)


def test_doctor_tries_without_the_certificate_whether_strangers_are_served(secured: Secured, root: str) -> None:
    """With it, the session that is to be a stranger's would be somebody's."""
    with zkms.connect(secured.tls_hosts, root=root, tls=secured.tls(), connect_timeout=3.0) as bus:
        [*_, strangers] = check_access(Inspector(bus.parts.session, bus.parts.tree))
    assert (strangers.level, strangers.finding) == ("ok", "a session without a certificate is not served")


def test_a_certificate_without_its_key_is_a_mistake(secured: Secured) -> None:
    """kazoo would leave it out without a word."""
    with pytest.raises(InvalidArgument, match="cert and key"):
        zkms.connect(secured.tls_hosts, tls=secured.tls(key=None))


def test_what_tls_has_deciphered_is_not_left_lying(secured: Secured) -> None:
    """Several answers in one TLS record: after the first, no socket tells that there is more to read."""
    session = Session(Config(hosts=secured.tls_hosts, tls=secured.tls(), session_timeout=30.0))
    session.start()
    try:
        for _ in range(20):
            replies = [session.get_async("/zookeeper/config") for _ in range(50)]
            for reply in replies:
                reply.result(timeout=5)  # the next ping, ten seconds from now, would bring out what lies there
    finally:
        session.close()


# -- secrets ---------------------------------------------------------------------------------------------------------


def test_no_secret_is_ever_logged(
    secured: Secured,
    root: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    eventually: Eventually,
) -> None:
    """With all loggers at DEBUG: credentials, payloads and passwords of sessions, on success and on failure."""
    caplog.set_level(logging.DEBUG)
    for auth in (ALICE, SASL_ALICE):
        with (
            Proxy(secured.hosts) as proxy,
            zkms.connect(proxy.hosts, root=f"{root}-{type(auth).__name__}", auth=auth) as bus,
        ):
            subscription = bus.subscribe("topic")
            bus.publish("topic", "payload-s3cret", key="key-s3cret", headers={"header": "s3cret"})
            assert subscription.get(timeout=5) is not None
            proxy.drop()
            bus.publish("topic", "payload-s3cret")
            eventually(lambda bus=bus: bus.parts.session.state is State.CONNECTED)
            session_password = bus.parts.session.client_id[1]
            shown = repr(bus) + repr(bus.parts.context.config) + repr(subscription)
            assert "s3cret" not in shown
            assert session_password.hex() not in caplog.text
            assert repr(session_password) not in caplog.text
    for wrong in (("digest", "alice:wrong-s3cret"), zkms.Sasl(username="alice", password="wrong-s3cret")):
        with pytest.raises(Unauthorised) as failure:
            zkms.connect(secured.hosts, root=f"{root}-tuple", auth=wrong)
        assert "s3cret" not in str(failure.value)
    tls = secured.tls(key=str(secured.certificates.locked(secured.client)), key_password=KEY_PASSWORD)
    with zkms.connect(secured.tls_hosts, root=f"{root}-tls", tls=tls) as bus:
        assert "s3cret" not in repr(bus.parts.context.config)
    assert len(caplog.records) > 10
    written = "".join(capfd.readouterr())
    for record in caplog.records:
        assert "s3cret" not in record.getMessage() + str(record.exc_text or ""), record.name
    assert "s3cret" not in caplog.text + written


def test_a_request_whose_answer_cannot_be_read_is_logged_without_its_contents(
    secured: Secured, root: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its kind is enough to know; and the message is stored all the same, once."""

    def unreadable_once(*_args: object) -> NoReturn:
        patch.undo()
        raise RuntimeError("an error code of a later ZooKeeper")

    with zkms.connect(secured.hosts, root=root) as bus:
        subscription = bus.subscribe("topic")
        bus.publish("topic", "first")
        with monkeypatch.context() as patch:
            patch.setattr(Multi, "read", unreadable_once)
            bus.publish("topic", "payload-s3cret")
        assert [subscription.get(timeout=5).data for _ in range(2)] == ["first", "payload-s3cret"]
        assert subscription.get(timeout=0.1) is None
    assert "answer to Multi cannot be read" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_session_with_an_own_acl_uses_that(secured: Secured, root: str) -> None:
    """Who knows what they want gets it."""
    acl = (make_acl("world", "anyone", read=True, create=True, delete=True, write=True),)
    session = Session(Config(hosts=secured.hosts, auth=(ALICE,), acl=acl))
    session.start()
    session.multi([Create(root)])
    session.close()
    assert acls(secured.hosts, root) == {("world", "anyone", 15)}
