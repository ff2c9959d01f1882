"""A real Kubernetes API for tests: etcd and kube-apiserver, on free ports of this machine."""

import secrets
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import requests
import yaml
from control_plane.api import Api
from control_plane.builds import binary
from control_plane.processes import Process
from support.certificates import Authority
from support.ports import start_on_free_ports

ADMINISTRATOR = "administrator"
SCHEDULER = "system:kube-scheduler"  # the user that RBAC's default roles bind
_USERS = {ADMINISTRATOR: "system:masters", SCHEDULER: ""}
# No controller runs that would create service accounts' secrets or remove the taints that these plugins add.
_DISABLED_PLUGINS = "ServiceAccount,TaintNodesByCondition,DefaultTolerationSeconds,Priority"


class ControlPlane:
    """A cluster without controllers: nothing changes the objects that tests write.

    Use it as a context manager: the API is ready when the block starts, and is killed at the end.

    Args:
        folder: folder for certificates, logs and etcd's data; the data is deleted at the end.
        program: API server to run, a key of :data:`control_plane.builds.PROGRAMS`.

    Attributes:
        api: API client of an administrator.
        certificates: CA that all programs here trust; it also signs the servers' certificates.
        etcd: process of etcd, which tests of faults kill or pause.
        apiserver: process of kube-apiserver. It restarts on the same port, see :meth:`Process.restart`.
        etcd_url: address of etcd, for operations that only etcd offers, such as compaction.
    """

    api: Api
    url: str
    etcd: Process
    apiserver: Process
    etcd_url: str
    _address = "127.0.0.1"

    def __init__(self, folder: Path, program: str = "kube-apiserver") -> None:
        self.folder, self._program = folder, program
        self.certificates = Authority(folder, "cluster")
        self.serving_certificate = self.certificates.issue("localhost")
        self._tokens = {user: secrets.token_hex(16) for user in _USERS}

    def __enter__(self) -> Self:
        try:
            self.etcd = start_on_free_ports(self._start_etcd, 2)
            self._write_apiserver_files()
            self.apiserver = start_on_free_ports(self._start_apiserver)
            self.apiserver.wait_until(self._is_ready, "the API answers", 120)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if hasattr(self, "api"):
            self.api.close()
        for process in (getattr(self, name, None) for name in ("apiserver", "etcd")):
            if process is not None:
                process.kill()
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)

    def client_for_token(self, token: str) -> Api:
        """Return an API client with this token; "" is anonymous."""
        return Api(self.url, self.certificates.certificate, token)

    def service_account(self, namespace: str, name: str, seconds: int = 3600) -> Api:
        """Return an API client of a service account, with the rights that RBAC grants it.

        Args:
            namespace: namespace of the account, which must exist.
            name: name of the account.
            seconds: validity of the token; the API refuses less than ten minutes.
        """
        request = {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": seconds},
        }  # fmt: skip
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.api.request("POST", path, json=request).json()
        return self.client_for_token(answer["status"]["token"])

    def create_account(self, name: str, *rules: Mapping[str, Any]) -> Api:
        """Create a service account in ``default`` with these RBAC rules; return its API client."""
        group, role = "rbac.authorization.k8s.io", {"kind": "ClusterRole", "metadata": {"name": f"tests-{name}"}}
        account = {"kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
        binding = {
            "kind": "ClusterRoleBinding", "metadata": role["metadata"],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"tests-{name}"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }  # fmt: skip
        self.api.create({"apiVersion": "v1", **account})
        self.api.create({"apiVersion": f"{group}/v1", **role, "rules": list(rules)})
        self.api.create({"apiVersion": f"{group}/v1", **binding})
        return self.service_account("default", name)

    def kubeconfig(self, user: str = ADMINISTRATOR, *, token: str | None = None, server: str = "") -> Path:
        """Write a kubeconfig for one of the two users or for a token; return its path.

        Args:
            user: user of the kubeconfig.
            token: token to use instead of the user's own.
            server: address of the API to use instead of the cluster's own, such as a relay's.
        """
        file = self.folder / f"{user.replace(':', '-')}{secrets.token_hex(3) if token or server else ''}.kubeconfig"
        cluster = {"server": server or self.url, "certificate-authority": str(self.certificates.certificate)}
        configuration = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self._tokens[user] if token is None else token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": user}}],
        }
        file.write_text(yaml.safe_dump(configuration))
        return file

    def _is_ready(self) -> bool:
        try:
            self.api.get("/api/v1/namespaces/default")
            return self.api.request("GET", "/readyz").text == "ok"
        except (requests.HTTPError, requests.Timeout):  # a busy machine
            return False

    def _flags(self) -> list[str | Path]:
        """Return the flags of kube-apiserver for authorization and admission."""
        return ["--authorization-mode", "RBAC", "--disable-admission-plugins", _DISABLED_PLUGINS]

    def _start_etcd(self, port: int, peer_port: int) -> Process:
        self.etcd_url, peer = (f"http://127.0.0.1:{each}" for each in (port, peer_port))
        url = self.etcd_url
        command = [
            binary("etcd"), "--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--log-level", "warn",
            "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        ]  # fmt: skip
        return Process(command, self.folder / "etcd.log")

    def _write_apiserver_files(self) -> None:
        folder = self.folder
        self._account_key = folder / "service-accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", self._account_key, "2048"], check=True, capture_output=True)
        tokens = [f'{self._tokens[user]},{user},{user},"{group}"\n' for user, group in _USERS.items()]
        (folder / "tokens.csv").write_text("".join(tokens))
        # A CA of its own: the API server trusts the user names that clients of this CA send.
        self._proxy = Authority(folder, "front-proxy")
        self._proxy_client = self._proxy.issue("front-proxy-client")

    def _start_apiserver(self, port: int) -> Process:
        self.url = f"https://{self._address}:{port}"
        self.api = self.client_for_token(self._tokens[ADMINISTRATOR])
        folder, key, proxy, proxy_client = self.folder, self._account_key, self._proxy, self._proxy_client
        command = [
            binary(self._program), "--etcd-servers", self.etcd_url,
            "--bind-address", self._address, "--advertise-address", self._address,
            "--secure-port", str(port), "--cert-dir", folder,
            "--tls-cert-file", self.serving_certificate, "--tls-private-key-file", self.serving_certificate,
            "--token-auth-file", folder / "tokens.csv", *self._flags(),
            "--client-ca-file", self.certificates.certificate,
            "--service-account-key-file", key, "--service-account-signing-key-file", key,
            "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-cluster-ip-range", "10.0.0.0/24",
            "--endpoint-reconciler-type", "none",
            "--requestheader-client-ca-file", proxy.certificate, "--requestheader-allowed-names", "front-proxy-client",
            "--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
            "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
            "--proxy-client-cert-file", proxy_client, "--proxy-client-key-file", proxy_client,
        ]  # fmt: skip
        return Process(command, folder / "kube-apiserver.log")
