"""Exit with a one-line message if a service cannot be reached: ``python requirements/reachable.py URL``."""

import sys
import urllib.error
import urllib.parse
import urllib.request

try:
    urllib.request.urlopen(sys.argv[1], timeout=10).close()
except urllib.error.HTTPError:
    pass  # reachable: it rejects the request because the request has no query
except OSError as error:
    host = urllib.parse.urlsplit(sys.argv[1]).hostname
    sys.exit(f"{host} cannot be reached, so nothing was audited: {getattr(error, 'reason', error)}")
