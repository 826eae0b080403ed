#!/bin/sh
# A build of this project on a mount; what it makes runs.
. "$(dirname "$0")/lib.sh"
[ -n "$long" ] || skip "takes minutes; run it without --short"
need cargo cargo
need git git
begin build 8G
root=$(cd "$(dirname "$0")/../../.." && pwd)
mkdir "$mnt/source"
(cd "$root" && git ls-files -z | tar --null -T - -cf -) | tar -C "$mnt/source" -xf -
cd "$mnt/source"
CARGO_TARGET_DIR="$mnt/target" cargo build --quiet --locked -p syncline-cli -p syncline-lab
said=$("$mnt/target/debug/syncline" --version)
case $said in syncline*) ;; *) fail "the built program says $said" ;; esac
"$mnt/target/debug/syncline-lab" bench sqlite --sync eager >/dev/null
cd /
finish
