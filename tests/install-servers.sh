#!/bin/sh
# Install the servers that the tests need, as root with CI=true. Otherwise do nothing: a test whose server is missing is
# skipped, with the command that installs the server.
set -eu

[ "${CI:-}" = true ] && [ "$(id -u)" -eq 0 ] || exit 0

missing=
command -v prometheus >/dev/null && command -v promtool >/dev/null || missing="$missing prometheus"
command -v prometheus-node-exporter >/dev/null || missing="$missing prometheus-node-exporter"
command -v docker-compose >/dev/null || missing="$missing docker-compose"
command -v influxd >/dev/null || missing="$missing influxdb"
command -v ip >/dev/null || missing="$missing iproute2"
command -v nft >/dev/null || missing="$missing nftables"
command -v gcc >/dev/null || missing="$missing gcc libc6-dev"
command -v chromium >/dev/null || missing="$missing chromium"
command -v kubectl >/dev/null || missing="$missing kubernetes-client"
[ -n "$missing" ] || exit 0

log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086  # words are packages
if ! { apt-get update && apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "the tests need these packages, which could not be installed:$missing" >&2
  exit 1
fi
