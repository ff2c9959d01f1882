#!/bin/sh
# Install packages with pip and show the progress: sh requirements/install.sh PYTHON ARGUMENTS-OF-PIP-INSTALL...
# pip itself prints either nothing (--quiet) or a page for each package.
set -eu

python=$1
shift
terminal=0
if [ -t 1 ]; then terminal=1; fi

# A pipe has the exit status of its last command, so pip's status is passed on as a line.
{ status=0; "$python" -m pip install --disable-pip-version-check --progress-bar off "$@" || status=$?; echo "status $status"; } |
  awk -v terminal="$terminal" '
    function say(text) { if (terminal) { printf "\r\033[K  %s", text; fflush() } }
    /^Collecting / { say(sprintf("package %d: %s", ++count, $2)) }
    /^Building wheel/ { say("building " $4) }
    /^Installing collected packages/ { say(sprintf("unpacking %d packages", count)) }
    /^status / { if (terminal && count) print ""; exit $2 }'
