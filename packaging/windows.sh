#!/bin/sh
# The program for 64-bit Windows, cross-built with mingw: windows.sh DIR. It is one zip archive in DIR, the same bytes for
# the same commit.
set -eu
cd "$(dirname "$0")/.."
. packaging/lib.sh
out=$1
target=x86_64-pc-windows-gnu
command -v x86_64-w64-mingw32-gcc >/dev/null || {
    say "no program for Windows: no mingw; apt-get install gcc-mingw-w64-x86-64"
    exit 0
}
rustup target add $target >/dev/null 2>&1 || { say "no program for Windows: rustup has no $target here"; exit 0; }
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
# Without the time of the link in the program.
RUSTFLAGS="-C link-arg=-Wl,--no-insert-timestamp" \
    cargo build --locked --target-dir "$dist_build" --profile program --target $target -p syncline-cli
name=syncline-$version-x86_64-windows
stage=$dist_build/stage/$name
rm -rf "$stage"
install -D -m 755 "$dist_build/$target/program/syncline.exe" "$stage/syncline.exe"
for file in packaging/windows/README.txt LICENSE-APACHE LICENSE-MIT docs/COMPAT.md CHANGELOG.md; do
    text=$stage/$(basename "${file%.*}").txt
    # With the line ends of Windows.
    sed 's/$/\r/' "$file" >"$text"
done
(cd "$stage" && sha256sum -- * >"../SHA256SUMS" && mv ../SHA256SUMS .)
mkdir -p "$out"
python3 - "$stage" "$out/$name.zip" "$name" <<'END'
import os, sys, time, zipfile

stage, archive, folder = sys.argv[1:]
date = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
    for name in sorted(os.listdir(stage)):
        entry = zipfile.ZipInfo(f"{folder}/{name}", date)
        entry.external_attr = 0o644 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        with open(os.path.join(stage, name), "rb") as file:
            out.writestr(entry, file.read())
END
say "the program for Windows has $(stat -c %s "$stage/syncline.exe") bytes"
