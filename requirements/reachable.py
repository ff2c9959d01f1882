"""Say in one line when a service cannot be reached: ``python requirements/reachable.py URL``."""

import sys
import urllib.error
import urllib.parse
import urllib.request

try:
    urllib.request.urlopen(sys.argv[1], timeout=10).close()
except urllib.error.HTTPError:
    pass  # it answers, if only that this is no query
except OSError as error:
    host = urllib.parse.urlsplit(sys.argv[1]).hostname
    sys.exit(f"{host} cannot be reached, so nothing was audited: {getattr(error, 'reason', error)}")
