#!/usr/bin/env bash
# The tests against the real vLLM: test.sh PYTEST… Where vLLM cannot be installed they
# are skipped, in so many words; REQUIRE_VLLM=1 makes that a failure.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
words=$(mktemp)
trap 'rm -f "$words"' EXIT

"$here/setup.sh" 2> >(tee "$words" >&2)
code=$?
wait
if [[ $code == 3 ]]; then
  why=$(grep '^vllm-cpu: ' "$words" | sed 's/^vllm-cpu: //' | tr '\n' ' ')
  printf 'test-vllm: SKIPPED, no test was run: vLLM cannot be installed here: %s\n' "${why:-no reason was given}"
  [[ -z ${REQUIRE_VLLM:-} ]]
  exit
fi
[[ $code == 0 ]] || exit "$code"
exec "$@" -m vllm
