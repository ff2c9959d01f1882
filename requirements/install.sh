#!/bin/sh
# Installs packages with pip and shows how far it is: sh requirements/install.sh PYTHON ARGUMENTS-OF-PIP-INSTALL...
# pip alone says nothing (--quiet) or a page for each package.
set -eu

python=$1
shift
terminal=0
if [ -t 1 ]; then terminal=1; fi

# The status of a pipe is its last command's, so pip's is handed on as a line.
{ status=0; "$python" -m pip install --disable-pip-version-check --progress-bar off "$@" || status=$?; echo "status $status"; } |
  awk -v terminal="$terminal" '
    function say(text) { if (terminal) { printf "\r\033[K  %s", text; fflush() } }
    /^Collecting / { say(sprintf("package %d: %s", ++count, $2)) }
    /^Building wheel/ { say("building " $4) }
    /^Installing collected packages/ { say(sprintf("unpacking %d packages", count)) }
    /^status / { if (terminal && count) print ""; exit $2 }'
