#!/bin/sh
# Installs the laboratory of a built tree: install-lab.sh PREFIX DESTDIR BUILD, where BUILD holds the program.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
. "$here/install-program.sh"
program syncline-lab
unit "$here/systemd/syncline-watch@.service"
for doc in LICENSE NOTICE LICENSE-d3; do
    put 644 "$here/../lab/vendor/$doc" "share/doc/syncline-lab/echarts/$doc"
done
# Beside the documents, whose examples name them.
for sample in "$here"/../samples/*.trace "$here/../samples/README.md"; do
    put 644 "$sample" "share/doc/syncline/samples/${sample##*/}"
done
