"""Storage of the ledger in a ConfigMap."""

import logging
from typing import Final

from runtime.kubernetes.api import Sender
from runtime.kubernetes.config_map import ConfigMap
from trimaran.rebalancer.ledger import Ledger

KEY: Final = "ledger"
_log = logging.getLogger(__name__)


class LedgerConflict(Exception):
    """Another process wrote the ledger: read it again before the next write."""


class UnreadableLedger(Exception):
    """The ConfigMap has no readable ledger; nothing may move until a person deletes it."""


class LedgerStore:
    """ConfigMap with the ledger.

    Args:
        api: Kubernetes API.
        namespace: namespace of the ConfigMap.
        name: name of the ConfigMap.
    """

    def __init__(self, api: Sender, namespace: str, name: str) -> None:
        self._config_map = ConfigMap(api, namespace, name)
        self.where = str(self._config_map)

    def read(self) -> Ledger:
        """Return the ledger; an empty one if there is no ConfigMap.

        Raises:
            UnreadableLedger: the ConfigMap has no ledger, or one that cannot be read.
            requests.RequestException, OSError: see ``REQUEST_FAILURES``.
        """
        data = self._config_map.read()
        if data is None:
            return Ledger()
        try:
            return Ledger.from_json(data[KEY])
        except KeyError:
            why = f"the {self.where} has no key {KEY!r}; nothing is moved. Delete it to begin with empty caps"
            raise UnreadableLedger(why) from None
        except ValueError as error:
            raise UnreadableLedger(
                f"the {self.where} cannot be read: {error}; nothing is moved. Delete it to begin with empty caps"
            ) from error

    def write(self, ledger: Ledger) -> None:
        """Replace the ledger that was read or written last; old moves are dropped if the text would be too long.

        Raises:
            LedgerConflict: another process wrote the ledger in between.
            requests.RequestException, OSError: see ``REQUEST_FAILURES``; the write may have succeeded.
        """
        fitting = ledger.fitting()
        if left_out := len(ledger.records) - len(fitting.records):
            _log.warning("the ledger is too long: its oldest moves no longer count", extra={"moves": left_out})
        if not self._config_map.write({KEY: fitting.to_json()}):
            raise LedgerConflict(f"another process wrote the {self.where}; the next cycle reads it again")
