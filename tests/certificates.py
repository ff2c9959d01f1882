"""Authorities and certificates for tests, made by openssl."""

import subprocess
from pathlib import Path

_EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Authority:
    """An authority; ``certificate`` is what to trust."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self.certificate = folder / f"{name}.pem"
        self._openssl("req", "-x509", *_EC, "-keyout", f"{name}-key.pem", "-out", f"{name}.pem", "-subj", f"/CN={name}")

    def issue(self, name: str) -> Path:
        """Return a certificate for this name and 127.0.0.1, with its key in the same file."""
        file, key, request = self._folder / f"{name}.pem", self._folder / f"{name}-key.pem", f"{name}.csr"
        self._openssl("req", *_EC, "-keyout", key.name, "-out", request, "-subj", f"/CN={name}")
        (self._folder / "names.cnf").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        self._openssl(
            "x509", "-req", "-in", request, "-CA", f"{self._name}.pem", "-CAkey", f"{self._name}-key.pem",
            "-CAcreateserial", "-out", file.name, "-days", "2", "-extfile", "names.cnf",
        )  # fmt: skip
        file.write_text(file.read_text() + key.read_text())
        return file

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self._folder, check=True, capture_output=True)
