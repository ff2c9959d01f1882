"""Certificate authorities and certificates for tests, created with openssl."""

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

_EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
_CA = """[ca]
default_ca = ours
[ours]
database = issued
new_certs_dir = .
rand_serial = yes
policy = any
[any]
organizationName = optional
commonName = supplied
"""


class Authority:
    """A certificate authority; ``certificate`` is its own certificate, for clients to trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.certificate = folder / f"{name}.pem"
        self._openssl(
            "req", "-x509", *_EC, "-keyout", f"{name}-key.pem", "-out", f"{name}.pem", "-subj", f"/CN={name}",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",  # required by Python 3.13
        )  # fmt: skip

    def issue(
        self, name: str, seconds: float | None = None, *, organization: str = "", addresses: Sequence[str] = ()
    ) -> Path:
        """Issue a certificate for a name and 127.0.0.1; return the file that holds it and its key.

        Args:
            name: common name of the certificate and name of the file.
            seconds: validity from now on; None is two days.
            organization: organization, which is the group of the user for Kubernetes.
            addresses: further IP addresses.
        """
        file, key, request = self._folder / f"{name}.pem", self._folder / f"{name}-key.pem", f"{name}.csr"
        subject = f"/O={organization}/CN={name}" if organization else f"/CN={name}"
        self._openssl("req", *_EC, "-keyout", key.name, "-out", request, "-subj", subject)
        others = "".join(f",IP:{address}" for address in addresses)
        (self._folder / "names.cnf").write_text(f"subjectAltName=IP:127.0.0.1,DNS:localhost{others}\n")
        now = datetime.now(UTC)
        until = now + (timedelta(days=2) if seconds is None else timedelta(seconds=seconds))
        # openssl x509 accepts only whole days, openssl ca any end date.
        (self._folder / "ca.cnf").write_text(_CA)
        (self._folder / "issued").write_text("")
        self._openssl(
            "ca", "-batch", "-config", "ca.cnf", "-in", request, "-cert", f"{self._name}.pem", "-keyfile",
            f"{self._name}-key.pem", "-out", file.name, "-notext", "-md", "sha256", "-startdate",
            _time(now - timedelta(minutes=5)), "-enddate", _time(until), "-extfile", "names.cnf",
        )  # fmt: skip
        file.write_text(file.read_text() + key.read_text())
        return file

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)


def _time(when: datetime) -> str:
    return when.strftime("%Y%m%d%H%M%SZ")
