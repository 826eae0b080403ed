#!/bin/sh
# Builds the program for Windows with mingw and runs tests of its commands under Wine: test_windows.sh [NAME...].
# The tests are those of Linux, with SYNCLINE_RUN: mke2fs, e2fsck, debugfs and tar of this machine judge.
#
# Left out, with the reason:
#   holes, maps that are lost          Windows tells where holes are by an unsafe call only: a file of terabytes is read
#   owners, modes, ACLs, special files Windows has none: dialects, trees that the tests make, files that cannot be read, fifos
#   names such as `a\b` and `x.`       Windows has none
#   copies of the program, terminals   the tests handle one program, not Wine and another
#   signals                            Ctrl-C of a console is another thing
#   messages of Linux                  "in use" is another sentence, e2fsck is found on Linux only
set -eu
cd "$(dirname "$0")/../.."
. packaging/wine.sh
missing=$(wine_missing)
[ -z "$missing" ] || {
    echo "test-windows: not found:$missing; install them: apt-get install wine64 gcc-mingw-w64-x86-64" >&2
    exit 1
}
target=x86_64-pc-windows-gnu
rustup target add $target >/dev/null 2>&1 || true
cargo build --locked -p syncline-cli --target $target --target-dir target/portable
program=$(pwd)/target/portable/$target/debug/syncline.exe
wine_stub "$(dirname "$program")"

[ $# -gt 0 ] || set -- archives:: copies:: failures:: layers:: recovery:: repair:: rescue:: shell:: transfer:: \
    newcomer::cp_ newcomer::errors_of_cp
export WINEDEBUG=-all WINEPREFIX="$(pwd)/target/wine"
# The first program makes the directory of Wine.
$wine "$program" --version
SYNCLINE_RUN="$wine $program" cargo test --locked -p syncline-cli --test it -- "$@" \
    --skip copies::a_tree_goes_in --skip copies::holes_links --skip copies::remarks_name --skip copies::files_that_cannot_be_read \
    --skip layers::a_full_host --skip archives::dialects \
    --skip transfer::a_file_that_was_never --skip rescue::a_file_whose_map --skip rescue::a_mount --skip transfer::a_container_becomes \
    --skip transfer::a_mounted_qcow2 --skip transfer::a_partition_of_a_disk --skip transfer::a_qcow2_goes \
    --skip transfer::an_export_goes_into_a_pipe --skip archives::a_program_that_pipes --skip repair::questions --skip failures::an_image_in_use \
    --skip failures::files_that_are_no_images --skip failures::damaged_images --skip recovery::reading_replays
